#include "engine/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/assert.h"
#include "engine/text/model/byte_bpe.h"
#include "engine/text/model/special_tokens.h"
#include "engine/text/model/spm.h"
#include "engine/text/model/vocabulary.h"

namespace llorch::engine::text {

using base::ErrorCode;

struct Tokenizer::Parts {
  Parts(const TokenizerData& data, model::Spelling spelling) : vocabulary(data, spelling) {}

  model::Vocabulary vocabulary;
  std::unique_ptr<const model::Model> model;
  std::unique_ptr<const model::SpecialTokens> special;
};

namespace {

// Control tokens that end a generation although no key of the file says so (engine.md §4.1).
constexpr auto kEndSpellings =
    std::to_array<std::string_view>({"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>",
                                     "<|endoftext|>", "<end_of_turn>", "<|return|>", "<|call|>", "<EOT>",
                                     "<\xEF\xBD\x9C"
                                     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"});

tl::unexpected<base::Error> invalid(std::string message) {
  return base::fail(ErrorCode::kConfigKeyInvalid, std::move(message));
}

base::Result<> check_shape(const TokenizerData& data) {
  using L = TokenizerLimits;
  const std::size_t count = data.tokens.size();
  if (count == 0 || count > L::kTokensMax || data.merges.size() > L::kMergesMax) {
    return invalid(fmt::format("tokenizer: {} tokens and {} merges, limits are 1..{} and {}", count, data.merges.size(),
                               L::kTokensMax, L::kMergesMax));
  }
  if (!data.kinds.empty() && data.kinds.size() != count) {
    return invalid(fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens", data.kinds.size(), count));
  }
  const auto too_long = [](const std::string& text) { return text.size() > L::kStringBytesMax; };
  if (std::any_of(data.tokens.begin(), data.tokens.end(), too_long) ||
      std::any_of(data.merges.begin(), data.merges.end(), too_long)) {
    return invalid(fmt::format("tokenizer: a token or merge is longer than {} bytes", L::kStringBytesMax));
  }
  const auto outside = [count](TokenId id) { return index(id) >= count; };
  for (const auto& id : {data.bos, data.eos, data.eot, data.eom, data.unknown}) {
    if (id && outside(*id)) return invalid(fmt::format("tokenizer: special token id {} of {}", index(*id), count));
  }
  if (std::any_of(data.more_end_of_generation.begin(), data.more_end_of_generation.end(), outside)) {
    return invalid("tokenizer: an end-of-generation id is not in the vocabulary");
  }
  return {};
}

std::vector<TokenId> end_of_generation_ids(const TokenizerData& data) {
  std::vector<TokenId> ids = data.more_end_of_generation;
  for (const auto& id : {data.eos, data.eot, data.eom}) {
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
    return invalid(fmt::format("tokenizer.ggml.add_{0}_token is true, but there is no {0}_token_id", name));
  }
  return id && said.value_or(by_default);
}

base::Result<> check_every_byte_encodes(const model::Vocabulary& vocabulary, const std::optional<TokenId>& unknown) {
  int missing = 0;
  for (int byte = 0; byte < 256; ++byte) missing += !vocabulary.byte_token(static_cast<std::uint8_t>(byte));
  if (missing == 0 || unknown) return {};
  return base::fail(
      ErrorCode::kUnsupportedTokenizer,
      fmt::format("the vocabulary has no token for {} of the 256 bytes and no unknown token, so some text "
                  "could not be encoded; use a file whose vocabulary is whole",
                  missing));
}

base::Result<std::unique_ptr<const model::Model>> make_spm(const TokenizerData& data,
                                                           const model::Vocabulary& vocabulary, bool add_space_prefix) {
  if (data.scores.size() != data.tokens.size()) {
    return invalid(
        fmt::format("tokenizer.ggml.scores has {} entries for {} tokens", data.scores.size(), data.tokens.size()));
  }
  if (std::any_of(data.scores.begin(), data.scores.end(), [](float score) { return std::isnan(score); })) {
    return invalid("tokenizer.ggml.scores holds a value that is not a number");
  }
  return std::unique_ptr<const model::Model>(std::make_unique<model::SpmModel>(
      vocabulary, data.scores, model::SpmOptions{.add_space_prefix = add_space_prefix, .unknown = data.unknown}));
}

base::Result<model::PreTokenizer> find_pre_tokenizer(const std::string& name) {
  if (const auto pre = model::pre_tokenizer_by_name(name)) return *pre;
  return base::fail(ErrorCode::kUnsupportedTokenizer,
                    fmt::format("tokenizer.ggml.pre is \"{}\"; this build has {}. Another one would give wrong tokens "
                                "without a sign: use a file of a supported family",
                                name.substr(0, 64), model::pre_tokenizer_names()));
}

// User-defined tokens stand in any text, control and unknown ones in trusted text only.
std::unique_ptr<const model::SpecialTokens> make_special(const TokenizerData& data,
                                                         const model::Vocabulary& vocabulary) {
  std::vector<model::SpelledToken> spelled;
  for (std::size_t i = 0; i < data.tokens.size(); ++i) {
    const TokenId id{static_cast<std::uint32_t>(i)};
    const bool trusted_only = data.kinds[i] == TokenKind::kControl || data.kinds[i] == TokenKind::kUnknown;
    if (!trusted_only && data.kinds[i] != TokenKind::kUserDefined) continue;
    const std::string_view text = trusted_only ? data.tokens[i] : vocabulary.bytes(id);
    if (!text.empty()) spelled.push_back({text, id, trusted_only});
  }
  return std::make_unique<model::SpecialTokens>(spelled);
}

base::Error unknown_model(const std::string& name) {
  return {
      ErrorCode::kUnsupportedTokenizer,
      fmt::format("tokenizer.ggml.model is \"{}\"; this build has llama (SPM) and gpt2 (byte-level BPE): use a file "
                  "of a family with one of these",
                  name.substr(0, 64)),
      {}};
}

}  // namespace

Tokenizer::Tokenizer(TokenizerFacts facts, std::unique_ptr<const Parts> parts)
    : facts_(std::move(facts)), parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

base::Result<Tokenizer> Tokenizer::create(TokenizerData data) {
  TRY(check_shape(data));
  if (data.kinds.empty()) data.kinds.assign(data.tokens.size(), TokenKind::kNormal);
  const bool spm = data.model == "llama";
  if (!spm && data.model != "gpt2") return base::fail(unknown_model(data.model));

  auto parts = std::make_unique<Parts>(data, spm ? model::Spelling::kSpm : model::Spelling::kByteBpe);
  TRY(check_every_byte_encodes(parts->vocabulary, data.unknown));
  TokenizerFacts facts;
  facts.kind = spm ? "gguf-spm" : "gguf-bpe";
  facts.vocab_size = data.tokens.size();
  facts.bos = data.bos;
  facts.eos = data.eos;
  facts.end_of_generation = end_of_generation_ids(data);
  bool adds_bos_by_default = true;
  if (spm) {
    facts.add_space_prefix = data.add_space_prefix.value_or(true);
    parts->model = TRY(make_spm(data, parts->vocabulary, facts.add_space_prefix));
  } else {
    const model::PreTokenizer pre = TRY(find_pre_tokenizer(data.pre));
    adds_bos_by_default = pre.add_bos;
    parts->model =
        TRY(model::ByteBpeModel::create(parts->vocabulary, data.merges, {.pre = pre, .unknown = data.unknown}));
  }
  facts.add_bos = TRY(adds(data.add_bos, adds_bos_by_default, data.bos, "bos"));
  facts.add_eos = TRY(adds(data.add_eos, false, data.eos, "eos"));
  parts->special = make_special(data, parts->vocabulary);
  return Tokenizer(std::move(facts), std::move(parts));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const model::TrustedSpan whole{0, text.size()};
  return encode(text, {&whole, options.parse_special ? 1u : 0u}, options.add_special);
}

std::vector<TokenId> Tokenizer::encode(std::span<const TextRun> runs, bool add_special) const {
  std::string text;
  std::vector<model::TrustedSpan> trusted;
  for (const TextRun& run : runs) {
    if (run.origin == TextOrigin::kTemplate) {
      const bool continues = !trusted.empty() && trusted.back().end == text.size();
      if (!continues) trusted.push_back({text.size(), text.size()});
      trusted.back().end += run.text.size();
    }
    text += run.text;
  }
  return encode(text, trusted, add_special);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, std::span<const model::TrustedSpan> trusted,
                                       bool add_special) const {
  ASSERT(text.size() < std::size_t{1} << 31, "bytes={}", text.size());
  std::vector<TokenId> ids;
  if (add_special && facts_.add_bos) ids.push_back(*facts_.bos);
  std::size_t done = 0;
  const auto encode_up_to = [&](std::size_t end) {
    if (end > done) parts_->model->encode(text.substr(done, end - done), ids);
  };
  for (const model::SpecialMatch& match : parts_->special->find(text, trusted)) {
    encode_up_to(match.begin);
    ids.push_back(match.id);
    done = match.begin + match.bytes;
  }
  encode_up_to(text.size());
  if (add_special && facts_.add_eos) ids.push_back(*facts_.eos);
  return ids;
}

std::string_view Tokenizer::token_bytes(TokenId token) const {
  ASSERT(index(token) < facts_.vocab_size, "token={} vocab_size={}", index(token), facts_.vocab_size);
  return parts_->vocabulary.bytes(token);
}

std::string Tokenizer::decode(std::span<const TokenId> tokens) const {
  std::string text;
  for (const TokenId token : tokens) text += token_bytes(token);
  if (facts_.add_space_prefix && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

bool Tokenizer::is_end_of_generation(TokenId token) const {
  return std::binary_search(facts_.end_of_generation.begin(), facts_.end_of_generation.end(), token);
}

}  // namespace llorch::engine::text
