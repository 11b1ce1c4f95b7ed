#include "orchestratord/models/chat_format.h"

#include <algorithm>
#include <array>
#include <optional>

namespace llorch::orchestratord::models {
namespace {

bool ends_generation(const text::TokenizerData& data, base::TokenId token) {
  const std::array<std::optional<base::TokenId>, 3> named{data.eos, data.eot, data.eom};
  return std::ranges::find(named, std::optional(token)) != named.end() ||
         std::ranges::find(data.more_end_of_generation, token) != data.more_end_of_generation.end();
}

}  // namespace

ChatFormat ChatFormat::of(std::string_view chat_template, const text::TokenizerData& data) {
  ChatFormat out{
      .format = text::formats::detect(chat_template), .turn = text::formats::Turn::of(chat_template), .markers = {}};
  const std::vector<std::string_view> spellings = text::formats::markers(out.format);
  for (std::size_t i = 0; i < data.kinds.size(); ++i) {
    const auto token = base::TokenId{static_cast<std::uint32_t>(i)};
    if (data.kinds[i] != text::TokenKind::kControl || ends_generation(data, token)) continue;
    if (std::ranges::find(spellings, data.tokens[i]) != spellings.end())
      out.markers.emplace_back(token, data.tokens[i]);
  }
  return out;
}

std::string_view ChatFormat::marker(base::TokenId token) const {
  const auto it = std::ranges::lower_bound(markers, token, {}, &std::pair<base::TokenId, std::string>::first);
  return it != markers.end() && it->first == token ? std::string_view(it->second) : std::string_view();
}

}  // namespace llorch::orchestratord::models
