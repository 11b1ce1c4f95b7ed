#include "engine/io/tokenizer_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

namespace llorch::engine::io {
namespace {

using base::ErrorCode;
using text::TokenId;

base::Result<std::vector<std::string>> read_strings(const GgufFile& file, std::string_view key, std::size_t count_max) {
  const std::vector<std::string_view> views = TRY(file.string_array(key));
  if (views.size() > count_max) {
    return base::fail(ErrorCode::kConfigKeyInvalid,
                      fmt::format("{} has {} entries, the limit is {}", key, views.size(), count_max));
  }
  std::vector<std::string> strings;
  strings.reserve(views.size());
  for (const std::string_view view : views) {
    if (view.size() > text::TokenizerLimits::kStringBytesMax) {
      return base::fail(ErrorCode::kConfigKeyInvalid, fmt::format("{} has an entry of {} bytes, the limit is {}", key,
                                                                  view.size(), text::TokenizerLimits::kStringBytesMax));
    }
    strings.emplace_back(view);
  }
  return strings;
}

base::Result<std::vector<text::TokenKind>> read_kinds(const GgufFile& file, std::string_view key) {
  std::vector<text::TokenKind> kinds;
  if (!file.contains(key)) return kinds;
  for (const std::int32_t number : TRY(file.i32_array(key))) {
    if (number < 1 || number > 6) {
      return base::fail(ErrorCode::kConfigKeyInvalid, fmt::format("{} holds {}, the range is 1..6", key, number));
    }
    kinds.push_back(static_cast<text::TokenKind>(number));
  }
  return kinds;
}

// What a converter says of rows without a token is for readers that want a text for each: nothing spells them, and they spell nothing.
void forget_paddings(text::TokenizerData& data) {
  for (std::size_t i = 0; i < std::min(data.tokens.size(), data.kinds.size()); ++i) {
    if (data.kinds[i] == text::TokenKind::kUnused && data.tokens[i] == padding_spelling(i)) data.tokens[i].clear();
  }
}

// Lists and names within what text::serialize takes.
base::Result<> check_sizes(const text::TokenizerData& data) {
  const std::size_t count = data.tokens.size();
  if ((!data.scores.empty() && data.scores.size() != count) || (!data.kinds.empty() && data.kinds.size() != count)) {
    return base::fail(ErrorCode::kConfigKeyInvalid,
                      fmt::format("tokenizer.ggml: {} tokens, but {} scores and {} token types", count,
                                  data.scores.size(), data.kinds.size()));
  }
  if (std::max(data.model.size(), data.pre.size()) > text::TokenizerLimits::kStringBytesMax) {
    return base::fail(ErrorCode::kConfigKeyInvalid, "tokenizer.ggml.model or .pre is no name: it is too long");
  }
  return {};
}

base::Result<> read_id(const GgufFile& file, std::string_view key, std::optional<TokenId>& id) {
  if (file.contains(key)) id = TokenId{TRY(file.u32(key))};
  return {};
}

// The newer key, else the one of the first files that had any.
base::Result<> read_infill_id(const GgufFile& file, std::string_view key, std::string_view older_key,
                              std::optional<TokenId>& id) {
  TRY(read_id(file, older_key, id));
  return read_id(file, key, id);
}

base::Result<> read_infill_tokens(const GgufFile& file, text::InfillTokens& tokens) {
  TRY(read_infill_id(file, "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id", tokens.prefix));
  TRY(read_infill_id(file, "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id", tokens.suffix));
  TRY(read_infill_id(file, "tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id", tokens.middle));
  TRY(read_id(file, "tokenizer.ggml.fim_pad_token_id", tokens.pad));
  TRY(read_id(file, "tokenizer.ggml.fim_rep_token_id", tokens.repository));
  return read_id(file, "tokenizer.ggml.fim_sep_token_id", tokens.separator);
}

base::Result<> read_flag(const GgufFile& file, std::string_view key, std::optional<bool>& flag) {
  if (file.contains(key)) flag = TRY(file.boolean(key));
  return {};
}

base::Result<std::string> read_chat_template(const GgufFile& file, std::string_view key) {
  const std::string_view text = TRY(file.string(key));
  if (text.size() > text::TokenizerLimits::kChatTemplateBytesMax) {
    return base::fail(ErrorCode::kConfigKeyInvalid, fmt::format("{} has {} bytes, the limit is {}", key, text.size(),
                                                                text::TokenizerLimits::kChatTemplateBytesMax));
  }
  return std::string(text);
}

base::Result<> read_chat_templates(const GgufFile& file, text::TokenizerData& data) {
  if (file.contains("tokenizer.chat_template")) {
    data.chat_template = TRY(read_chat_template(file, "tokenizer.chat_template"));
  }
  if (!file.contains("tokenizer.chat_templates")) return {};
  for (std::string& name :
       TRY(read_strings(file, "tokenizer.chat_templates", text::TokenizerLimits::kNamedChatTemplatesMax))) {
    std::string template_text = TRY(read_chat_template(file, "tokenizer.chat_template." + name));
    data.named_chat_templates.push_back({std::move(name), std::move(template_text)});
  }
  return {};
}

// How the converter spells the tokens of a WordPiece vocabulary: a word's beginning with U+2581, what continues one as it is, and
// [NAMES] as they are.
constexpr std::string_view kWordBegin = "\xE2\x96\x81";
std::string word_piece_spelling(const std::string& token) {
  if (token.starts_with('[') && token.ends_with(']')) return token;
  return token.starts_with(kWordBegin) ? token.substr(kWordBegin.size()) : "##" + token;
}

// BERT's steps, which a file of this kind does not say: its texts are of one case.
text::Pipeline bert_pipeline() {
  using text::NormalizerKind;
  text::Pipeline out;
  for (const NormalizerKind kind : {NormalizerKind::kClean, NormalizerKind::kSpaceCjk, NormalizerKind::kNfd,
                                    NormalizerKind::kDropNonspacing, NormalizerKind::kLowercase})
    out.normalizers.push_back({.kind = kind, .pattern = {}, .text = {}});
  for (const auto kind : {text::PreTokenizerKind::kWhitespaceSplit, text::PreTokenizerKind::kPunctuation}) {
    text::PreTokenizerStep step;
    step.kind = kind;
    out.pre_tokenizers.push_back(std::move(step));
  }
  text::DecoderStep decoder;
  decoder.kind = text::DecoderKind::kWordPiece;
  decoder.start = 1;
  out.decoders.push_back(std::move(decoder));
  return out;
}

std::optional<TokenId> find_token(const std::vector<std::string>& tokens, std::string_view spelling) {
  const auto at = std::ranges::find(tokens, spelling);
  if (at == tokens.end()) return std::nullopt;
  return TokenId{static_cast<std::uint32_t>(at - tokens.begin())};
}

// GGUF's "bert": WordPiece between [CLS] and [SEP].
base::Result<> read_word_piece(const GgufFile& file, text::TokenizerData& data) {
  data.model = "wordpiece";
  for (std::string& token : data.tokens) {
    token = word_piece_spelling(token);
    if (token.size() <= text::TokenizerLimits::kStringBytesMax) continue;
    return base::fail(
        ErrorCode::kConfigKeyInvalid,
        fmt::format("tokenizer.ggml.tokens has an entry of {} bytes as WordPiece spells it, the limit is {}",
                    token.size(), text::TokenizerLimits::kStringBytesMax));
  }
  data.json.pipeline = bert_pipeline();
  std::optional<TokenId> first, last;
  TRY(read_id(file, "tokenizer.ggml.cls_token_id", first));
  TRY(read_id(file, "tokenizer.ggml.bos_token_id", first));
  TRY(read_id(file, "tokenizer.ggml.seperator_token_id", last));  // as GGUF spells it
  if (!first) first = find_token(data.tokens, "[CLS]");
  if (!last) last = find_token(data.tokens, "[SEP]");
  if (!data.unknown) data.unknown = find_token(data.tokens, "[UNK]");
  if (!first || !last) {
    return base::fail(
        ErrorCode::kConfigKeyMissing,
        "tokenizer.ggml.bos_token_id and .seperator_token_id are not there, and the vocabulary has no [CLS] and [SEP]");
  }
  data.json.prefix = {*first};
  data.json.suffix = {*last};
  data.json.pair = {.between = {*last}, .second_type = 1};
  data.add_bos = data.add_eos = std::nullopt;
  // What stands in brackets is found as it is spelled and in no other case.
  if (data.kinds.empty()) data.kinds.assign(data.tokens.size(), text::TokenKind::kNormal);
  for (std::size_t i = 0; i < data.tokens.size() && i < data.kinds.size(); ++i) {
    for (const std::string_view special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})
      if (data.tokens[i] == special) data.kinds[i] = text::TokenKind::kControl;
  }
  return {};
}

}  // namespace

std::string padding_spelling(std::size_t id) { return fmt::format("[PAD{}]", id); }

base::Result<> read_tokenizer_roles(const GgufFile& file, text::TokenizerData& data) {
  TRY(read_id(file, "tokenizer.ggml.bos_token_id", data.bos));
  TRY(read_id(file, "tokenizer.ggml.eos_token_id", data.eos));
  TRY(read_id(file, "tokenizer.ggml.eot_token_id", data.eot));
  TRY(read_id(file, "tokenizer.ggml.eom_token_id", data.eom));
  TRY(read_id(file, "tokenizer.ggml.unknown_token_id", data.unknown));
  TRY(read_flag(file, "tokenizer.ggml.add_bos_token", data.add_bos));
  TRY(read_flag(file, "tokenizer.ggml.add_eos_token", data.add_eos));
  TRY(read_flag(file, "tokenizer.ggml.add_space_prefix", data.add_space_prefix));
  TRY(read_infill_tokens(file, data.infill));
  return read_chat_templates(file, data);
}

base::Result<text::TokenizerData> read_tokenizer_data(const GgufFile& file) {
  using Limits = text::TokenizerLimits;
  text::TokenizerData data;
  data.model = TRY(file.string("tokenizer.ggml.model"));
  data.tokens = TRY(read_strings(file, "tokenizer.ggml.tokens", Limits::kTokensMax));
  data.kinds = TRY(read_kinds(file, "tokenizer.ggml.token_type"));
  forget_paddings(data);
  // Each model reads its own keys only: converters also leave those of another behind.
  if (data.model == "llama") {
    const auto scores = TRY(file.f32_array("tokenizer.ggml.scores"));
    data.scores.assign(scores.begin(), scores.end());
  }
  if (data.model == "gpt2") {
    data.pre = TRY(file.string_or("tokenizer.ggml.pre", ""));
    data.merges = TRY(read_strings(file, "tokenizer.ggml.merges", Limits::kMergesMax));
  }
  TRY(read_tokenizer_roles(file, data));
  if (data.model == "bert") TRY(read_word_piece(file, data));
  TRY(check_sizes(data));
  return data;
}

}  // namespace llorch::engine::io
