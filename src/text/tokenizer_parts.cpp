#include "text/tokenizer_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "text/infill/infill.h"
#include "text/tokenizer_models/bpe.h"
#include "text/tokenizer_models/spm.h"
#include "text/tokenizer_models/unigram.h"
#include "text/tokenizer_models/wordpiece.h"

namespace llorch::text {

using base::ErrorCode;

namespace {

// Control tokens that end a generation although no key of the file says so.
constexpr auto kEndSpellings =
    std::to_array<std::string_view>({"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>",
                                     "<|endoftext|>", "<end_of_turn>", "<|return|>", "<|call|>", "<EOT>",
                                     "<\xEF\xBD\x9C"
                                     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"});

tl::unexpected<base::Error> invalid_key(std::string message) {
  return base::fail(ErrorCode::kConfigKeyInvalid, std::move(message));
}

base::Result<> check_shape(const TokenizerData& data) {
  using L = TokenizerLimits;
  const std::size_t count = data.tokens.size();
  if (count == 0 || count > L::kTokensMax || data.merges.size() > L::kMergesMax) {
    return invalid_key(fmt::format("tokenizer: {} tokens and {} merges, limits are 1..{} and {}", count,
                                   data.merges.size(), L::kTokensMax, L::kMergesMax));
  }
  if (!data.kinds.empty() && data.kinds.size() != count) {
    return invalid_key(fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens", data.kinds.size(), count));
  }
  const auto too_long = [](const std::string& text) { return text.size() > L::kStringBytesMax; };
  if (std::any_of(data.tokens.begin(), data.tokens.end(), too_long) ||
      std::any_of(data.merges.begin(), data.merges.end(), too_long)) {
    return invalid_key(fmt::format("tokenizer: a token or merge is longer than {} bytes", L::kStringBytesMax));
  }
  if (has_too_long_tokens(data.tokens)) {
    return invalid_key(fmt::format("tokenizer: its tokens have more than {} bytes together", L::kTokensBytesMax));
  }
  if (!data.scores.empty() && data.scores.size() != count) {
    return invalid_key(fmt::format("the tokenizer has {} scores for {} tokens", data.scores.size(), count));
  }
  if (std::any_of(data.scores.begin(), data.scores.end(), [](double score) { return std::isnan(score); })) {
    return invalid_key("a score of the tokenizer is not a number");
  }
  const auto outside = [count](TokenId id) { return index(id) >= count; };
  for (const auto& id : {data.bos, data.eos, data.eot, data.eom, data.unknown}) {
    if (id && outside(*id)) return invalid_key(fmt::format("tokenizer: special token id {} of {}", index(*id), count));
  }
  static const std::vector<TokenId> kNone;
  const auto& between = data.json.pair ? data.json.pair->between : kNone;
  for (const auto* ids : {&data.more_end_of_generation, &data.json.prefix, &data.json.suffix, &between}) {
    if (std::any_of(ids->begin(), ids->end(), outside)) {
      return invalid_key(
          "tokenizer: an end-of-generation id or one of those around every text is not in the vocabulary");
    }
  }
  if (data.json.pair && data.json.pair->second_type > 1) return invalid_key("tokenizer: a pair of more than two types");
  const auto rule_outside = [&](const AddedTokenRule& rule) { return outside(rule.id); };
  if (std::any_of(data.json.added.begin(), data.json.added.end(), rule_outside)) {
    return invalid_key("tokenizer: an added token is not in the vocabulary");
  }
  return {};
}

std::vector<TokenId> end_of_generation_ids(const TokenizerData& data) {
  std::vector<TokenId> ids = data.more_end_of_generation;
  for (const auto& id : {data.eos, data.eot, data.eom}) {
    if (id) ids.push_back(*id);
  }
  // A model that fills in the middle goes on with another file, or with nothing, by one of these.
  const InfillTokens infill = infill_tokens(data);
  for (const auto& id : {infill.pad, infill.repository, infill.separator}) {
    if (id) ids.push_back(*id);
  }
  std::optional<TokenId> end, with_return, with_call;
  for (std::size_t i = 0; i < data.tokens.size(); ++i) {
    if (data.kinds[i] != TokenKind::kControl) continue;
    const std::string& text = data.tokens[i];
    if (std::find(kEndSpellings.begin(), kEndSpellings.end(), text) == kEndSpellings.end()) continue;
    const TokenId id{static_cast<std::uint32_t>(i)};
    if (text == "<|end|>") {
      end = id;
      continue;
    }
    ids.push_back(id);
    if (text == "<|return|>") with_return = id;
    if (text == "<|call|>") with_call = id;
  }
  // In the harmony format <|end|> only ends one message of the answer.
  if (end && !(with_return && with_call)) ids.push_back(*end);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Whether to add BOS or EOS: the file's word, else the family's habit where the token exists.
base::Result<bool> adds(const std::optional<bool>& said, bool by_default, const std::optional<TokenId>& id,
                        std::string_view name) {
  if (said.value_or(false) && !id) {
    return invalid_key(fmt::format("the tokenizer adds {0} to every text, but there is no {0} token", name));
  }
  return id && said.value_or(by_default);
}

base::Error unknown_model(const std::string& name) {
  return {ErrorCode::kUnsupportedTokenizer,
          fmt::format(
              "the tokenizer's model is \"{}\"; this build has llama (SPM), gpt2 (byte-level BPE) and bert of GGUF, "
              "bpe, unigram and wordpiece of tokenizer.json: use a file of a family with one of these",
              name.substr(0, 64)),
          {}};
}

base::Result<> check_every_text_encodes(const model::Fallback& fallback) {
  if (fallback.covers_every_text()) return {};
  const auto missing = std::count(fallback.byte_tokens.begin(), fallback.byte_tokens.end(), std::nullopt);
  return base::fail(ErrorCode::kUnsupportedTokenizer,
                    fmt::format("the vocabulary has no token for {} of the 256 bytes and no unknown token, so some "
                                "text could not be encoded; use a file whose vocabulary is whole",
                                missing));
}

base::Result<> check_scores(const TokenizerData& data) {
  if (data.scores.size() == data.tokens.size()) return {};
  return invalid_key(fmt::format("the tokenizer has {} scores for {} tokens", data.scores.size(), data.tokens.size()));
}

std::unique_ptr<const model::Vocabulary> make_vocabulary(const TokenizerData& data,
                                                         const std::vector<model::TokenSpelling>& spellings) {
  return std::make_unique<const model::Vocabulary>(data.kinds, spellings);
}

// How user-defined and control tokens stand in texts.
std::vector<std::string_view> spellings_in_text(const TokenizerData& data, const model::Vocabulary& vocabulary) {
  std::vector<std::string_view> spellings(data.tokens.begin(), data.tokens.end());
  if (data.model != "llama") return spellings;
  for (std::uint32_t i = 0; i < spellings.size(); ++i) {
    if (data.kinds[i] == TokenKind::kUserDefined) spellings[i] = vocabulary.output(TokenId{i});
  }
  return spellings;
}

base::Result<std::unique_ptr<const partition::Partition>> make_partition(const TokenizerData& data,
                                                                         const model::Vocabulary& vocabulary,
                                                                         partition::Partition::Options options) {
  return std::make_unique<const partition::Partition>(
      TRY(partition::Partition::create(data, spellings_in_text(data, vocabulary), std::move(options))));
}

// For a tokenizer.json: its post-processor's word, unless the model's configuration has one about BOS or EOS.
void apply_flag(const std::optional<bool>& flag, const std::optional<TokenId>& id, std::vector<TokenId>& affix) {
  if (!flag || !id) return;
  const bool has = std::find(affix.begin(), affix.end(), *id) != affix.end();
  if (*flag && !has) affix.push_back(*id);
  if (!*flag) std::erase(affix, *id);
}

void settle_json_affixes(const TokenizerData& data, TokenizerParts& parts) {
  parts.prefix = data.json.prefix;
  parts.suffix = data.json.suffix;
  parts.pair = data.json.pair;
  apply_flag(data.add_bos, data.bos, parts.prefix);
  apply_flag(data.add_eos, data.eos, parts.suffix);
  const auto holds = [](const std::vector<TokenId>& affix, const std::optional<TokenId>& id) {
    return id && std::find(affix.begin(), affix.end(), *id) != affix.end();
  };
  parts.facts.add_bos = holds(parts.prefix, data.bos);
  parts.facts.add_eos = holds(parts.suffix, data.eos);
}

base::Result<> settle_gguf_affixes(const TokenizerData& data, bool adds_bos_by_default, TokenizerParts& parts) {
  parts.facts.add_bos = TRY(adds(data.add_bos, adds_bos_by_default, data.bos, "BOS"));
  parts.facts.add_eos = TRY(adds(data.add_eos, false, data.eos, "EOS"));
  if (parts.facts.add_bos) parts.prefix.push_back(*data.bos);
  if (parts.facts.add_eos) parts.suffix.push_back(*data.eos);
  return {};
}

base::Result<> build_spm(const TokenizerData& data, TokenizerParts& parts) {
  const bool add_space_prefix = data.add_space_prefix.value_or(true);
  parts.facts.kind = "gguf-spm";
  parts.leading_space = add_space_prefix ? model::LeadingSpace::kDropOne : model::LeadingSpace::kKeep;
  parts.vocabulary = make_vocabulary(data, model::spm_spellings(data));
  TRY(check_scores(data));
  const model::Fallback fallback{.byte_tokens = model::byte_tokens(data), .unknown = data.unknown};
  TRY(check_every_text_encodes(fallback));
  parts.model = std::make_unique<const model::SpmModel>(
      *parts.vocabulary, data.scores, model::SpmOptions{.add_space_prefix = add_space_prefix, .fallback = fallback});
  parts.partition = TRY(make_partition(data, *parts.vocabulary, {.order = partition::Partition::Order::kLongestFirst}));
  return settle_gguf_affixes(data, true, parts);
}

base::Result<> build_byte_bpe(const TokenizerData& data, TokenizerParts& parts) {
  auto named = pre_tokenizer::pre_tokenizer_by_name(data.pre);
  if (!named) {
    return base::fail(
        ErrorCode::kUnsupportedTokenizer,
        fmt::format("tokenizer.ggml.pre is \"{}\"; this build has {}. Another one would give wrong tokens without a "
                    "sign: use a file of a supported family",
                    data.pre.substr(0, 64), pre_tokenizer::pre_tokenizer_names()));
  }
  parts.facts.kind = "gguf-bpe";
  parts.pre_tokenizer = std::move(named->pre_tokenizer);
  parts.vocabulary = make_vocabulary(data, model::byte_bpe_spellings(data));
  const model::Fallback fallback = model::byte_level_fallback(*parts.vocabulary, data.unknown);
  TRY(check_every_text_encodes(fallback));
  parts.model = TRY(model::BpeModel::create(
      *parts.vocabulary, data.merges,
      {.unit = model::BpeUnit::kByte, .whole_piece_first = named->whole_piece_first, .fallback = fallback}));
  parts.partition = TRY(make_partition(data, *parts.vocabulary, {.order = partition::Partition::Order::kLongestFirst}));
  return settle_gguf_affixes(data, named->add_bos, parts);
}

bool is_byte_level(const Pipeline& pipeline) {
  return !pipeline.pre_tokenizers.empty() && pipeline.pre_tokenizers.back().kind == PreTokenizerKind::kByteLevel;
}

base::Result<std::unique_ptr<const model::Model>> make_json_model(const TokenizerData& data,
                                                                  const model::Vocabulary& vocabulary,
                                                                  bool byte_level) {
  model::Fallback fallback{.byte_tokens = {}, .unknown = data.unknown};
  if (byte_level) fallback = model::byte_level_fallback(vocabulary, data.unknown);
  if (!byte_level && data.json.byte_fallback) fallback.byte_tokens = model::byte_tokens(data);
  TRY(check_every_text_encodes(fallback));
  if (data.model == "unigram") {
    TRY(check_scores(data));
    if (!std::all_of(data.scores.begin(), data.scores.end(), [](double score) { return std::isfinite(score); })) {
      return invalid_key("a score of the tokenizer is not finite");
    }
    return std::unique_ptr<const model::Model>(std::make_unique<const model::UnigramModel>(
        vocabulary, data.scores, model::UnigramOptions{.fuse_unknown = data.json.fuse_unknown, .fallback = fallback}));
  }
  if (data.model == "wordpiece") {
    return std::unique_ptr<const model::Model>(std::make_unique<const model::WordPieceModel>(vocabulary, fallback));
  }
  return model::BpeModel::create(vocabulary, data.json.merges,
                                 {.unit = byte_level ? model::BpeUnit::kByte : model::BpeUnit::kCharacter,
                                  .whole_piece_first = data.json.whole_piece_first,
                                  .fuse_unknown = data.json.fuse_unknown,
                                  .fallback = fallback});
}

base::Result<> build_json(const TokenizerData& data, TokenizerParts& parts) {
  const bool byte_level = is_byte_level(data.json.pipeline);
  auto normalizer = TRY(normalizer::Normalizer::create(data.json.pipeline.normalizers));
  const model::DecodedSpellings decoded = TRY(model::decoded_spellings(data, normalizer));
  if (byte_level != decoded.byte_level || (byte_level && data.model != "bpe")) {
    return base::fail(ErrorCode::kUnsupportedTokenizer,
                      "the tokenizer is byte-level in a part only (pre-tokenizer, model, decoder), which this build "
                      "does not have: use the model's GGUF");
  }
  parts.facts.kind = "hf-json";
  parts.leading_space = decoded.leading_space;
  parts.vocabulary = make_vocabulary(data, decoded.spellings);
  parts.pre_tokenizer = TRY(pre_tokenizer::PreTokenizer::create(data.json.pipeline.pre_tokenizers));
  parts.model = TRY(make_json_model(data, *parts.vocabulary, byte_level));
  parts.partition =
      TRY(make_partition(data, *parts.vocabulary,
                         {.order = partition::Partition::Order::kLeftmostFirst, .normalizer = std::move(normalizer)}));
  settle_json_affixes(data, parts);
  return {};
}

}  // namespace

base::Result<TokenizerParts> build_tokenizer(TokenizerData data) {
  TRY(check_shape(data));
  if (data.kinds.empty()) data.kinds.assign(data.tokens.size(), TokenKind::kNormal);
  TokenizerParts parts;
  if (data.model == "llama") {
    TRY(build_spm(data, parts));
  } else if (data.model == "gpt2") {
    TRY(build_byte_bpe(data, parts));
  } else if (data.model == "bpe" || data.model == "unigram" || data.model == "wordpiece") {
    TRY(build_json(data, parts));
  } else {
    return base::fail(unknown_model(data.model));
  }
  parts.facts.vocab_size = data.tokens.size();
  parts.facts.bos = data.bos;
  parts.facts.eos = data.eos;
  parts.facts.end_of_generation = end_of_generation_ids(data);
  parts.facts.drops_leading_space = parts.leading_space != model::LeadingSpace::kKeep;
  return parts;
}

}  // namespace llorch::text
