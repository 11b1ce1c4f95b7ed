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

}  // namespace

base::Result<> read_tokenizer_roles(const GgufFile& file, text::TokenizerData& data) {
  TRY(read_id(file, "tokenizer.ggml.bos_token_id", data.bos));
  TRY(read_id(file, "tokenizer.ggml.eos_token_id", data.eos));
  TRY(read_id(file, "tokenizer.ggml.eot_token_id", data.eot));
  TRY(read_id(file, "tokenizer.ggml.eom_token_id", data.eom));
  TRY(read_id(file, "tokenizer.ggml.unknown_token_id", data.unknown));
  TRY(read_flag(file, "tokenizer.ggml.add_bos_token", data.add_bos));
  TRY(read_flag(file, "tokenizer.ggml.add_eos_token", data.add_eos));
  TRY(read_flag(file, "tokenizer.ggml.add_space_prefix", data.add_space_prefix));
  return read_chat_templates(file, data);
}

base::Result<text::TokenizerData> read_tokenizer_data(const GgufFile& file) {
  using Limits = text::TokenizerLimits;
  text::TokenizerData data;
  data.model = TRY(file.string("tokenizer.ggml.model"));
  data.tokens = TRY(read_strings(file, "tokenizer.ggml.tokens", Limits::kTokensMax));
  data.kinds = TRY(read_kinds(file, "tokenizer.ggml.token_type"));
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
  TRY(check_sizes(data));
  return data;
}

}  // namespace llorch::engine::io
