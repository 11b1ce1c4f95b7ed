#include "orchestratord/models/chat_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/join.h"

namespace llorch::orchestratord::models {
namespace {

using text::formats::Format;
using wire::ChatFormatSource;

// By token.
std::vector<bool> ends_of_generation(const text::TokenizerData& data) {
  std::vector<bool> out(data.kinds.size());
  const auto note = [&](base::TokenId token) {
    if (base::index(token) < out.size()) out[base::index(token)] = true;
  };
  for (const std::optional<base::TokenId>& named : {data.eos, data.eot, data.eom}) {
    if (named) note(*named);
  }
  std::ranges::for_each(data.more_end_of_generation, note);
  return out;
}

// Of tokens that are spelled alike, as any number may be, the first.
ControlTokens markers_of(Format format, const ControlTokens& tokens) {
  const std::vector<std::string_view> spellings = text::formats::markers(format);
  ControlTokens out;
  for (const auto& token : tokens) {
    const bool is_marker = std::ranges::find(spellings, token.second) != spellings.end();
    const bool is_there = std::ranges::find(out, token.second, &ControlTokens::value_type::second) != out.end();
    if (is_marker && !is_there) out.push_back(token);
  }
  return out;
}

std::string reason_of(const ChatFormat& format) {
  switch (format.source) {
    case ChatFormatSource::kConfiguration: return "models.chat_format names it";
    case ChatFormatSource::kTemplate:
      return fmt::format("the chat template spells {}", base::join(text::formats::signs(format.format), " and "));
    case ChatFormatSource::kDefault: break;
  }
  return "the model has no chat template, or one that spells no markers of calls that are known";
}

}  // namespace

ControlTokens control_tokens(const text::TokenizerData& data) {
  const std::vector<bool> ends = ends_of_generation(data);
  ControlTokens out;
  for (std::size_t i = 0; i < data.kinds.size(); ++i) {
    if (data.kinds[i] != text::TokenKind::kControl || ends[i]) continue;
    out.emplace_back(base::TokenId{static_cast<std::uint32_t>(i)}, data.tokens[i]);
  }
  return out;
}

ChatFormat ChatFormat::of(std::string_view chat_template, const ControlTokens& tokens) {
  const Format format = text::formats::detect(chat_template);
  return {.format = format,
          .source = format == Format::kGeneric ? ChatFormatSource::kDefault : ChatFormatSource::kTemplate,
          .turn = text::formats::Turn::of(chat_template),
          .markers = markers_of(format, tokens)};
}

ChatFormat ChatFormat::in(Format configured, const ControlTokens& tokens) const {
  return {.format = configured,
          .source = ChatFormatSource::kConfiguration,
          .turn = turn,
          .markers = markers_of(configured, tokens)};
}

std::string_view ChatFormat::marker(base::TokenId token) const {
  const auto it = std::ranges::lower_bound(markers, token, {}, &ControlTokens::value_type::first);
  return it != markers.end() && it->first == token ? std::string_view(it->second) : std::string_view();
}

wire::ChatFormatFacts chat_format_facts(const ChatFormat& with_tools, const ChatFormat& without_tools) {
  wire::ChatFormatFacts out{.name = std::string(text::formats::name_of(with_tools.format)),
                            .source = with_tools.source,
                            .reason = reason_of(with_tools)};
  for (const auto& marker : with_tools.markers) out.control_tokens.push_back(marker.second);
  if (without_tools.format != with_tools.format) {
    out.without_tools = std::string(text::formats::name_of(without_tools.format));
  }
  return out;
}

base::Result<> check_chat_formats(const config::ModelsConfig& config) {
  for (const auto& [model, format] : config.chat_format) {
    if (text::formats::parse_format(format)) continue;
    std::vector<std::string_view> names;
    for (const Format each : text::formats::all_formats()) names.push_back(text::formats::name_of(each));
    return base::fail(
        base::ErrorCode::kConfigInvalid,
        fmt::format("models.chat_format.{} is no chat format; there are {}", model, base::join(names, ", ")));
  }
  return {};
}

}  // namespace llorch::orchestratord::models
