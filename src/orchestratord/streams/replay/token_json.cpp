#include "orchestratord/streams/replay/token_json.h"

#include <array>
#include <charconv>
#include <limits>

#include "base/json_text.h"
#include "base/utf8.h"
#include "wire/worker.h"

namespace llorch::orchestratord::streams {
namespace {

// What the letter after a backslash stands for; 0 for \u and what is no escape.
char unescaped(char letter) {
  switch (letter) {
    case '"': return '"';
    case '\\': return '\\';
    case '/': return '/';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return 0;
  }
}

// Appends the text of a JSON string and returns where its closing quote is; npos if it is not that simple.
std::size_t read_string(std::string_view json, std::size_t at, std::string& text) {
  const std::size_t begin = text.size();
  while (at < json.size() && json[at] != '"') {
    char c = json[at++];
    if (static_cast<unsigned char>(c) < 0x20) return std::string_view::npos;
    if (c == '\\') c = at < json.size() ? unescaped(json[at++]) : 0;
    if (c == 0) return std::string_view::npos;
    text += c;
  }
  const bool whole = at < json.size() && base::is_valid_utf8(std::string_view(text).substr(begin));
  return whole ? at : std::string_view::npos;
}

// Reads digits without a sign or a leading zero, at most `max`; null if there are none.
const char* read_number(const char* begin, const char* end, std::int64_t max, std::int64_t& value) {
  const auto [after, error] = std::from_chars(begin, end, value);
  const bool canonical = begin < end && *begin != '-' && (*begin != '0' || after == begin + 1);
  return error == std::errc() && canonical && value <= max ? after : nullptr;
}

}  // namespace

void append_token_json(std::string& out, const TokenView& token) {
  out.append("{\"t\":");
  base::append_json_string(out, token.t);
  out.append(",\"i\":");
  std::array<char, 20> digits;
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), token.i).ptr);
  if (!token.logprobs.empty())
    out.append(token.of_prompt ? ",\"prompt_logprobs\":" : ",\"logprobs\":").append(token.logprobs);
  out += '}';
}

std::optional<TokenNumbers> read_token_json(std::string_view json, std::string& text) {
  constexpr std::string_view kText = "{\"t\":\"", kIndex = "\",\"i\":", kId = ",\"id\":";
  const std::size_t before = text.size();
  const std::size_t quote = json.starts_with(kText) ? read_string(json, kText.size(), text) : std::string_view::npos;
  if (quote != std::string_view::npos && json.substr(quote).starts_with(kIndex)) {
    const char* const end = json.data() + json.size();
    TokenNumbers numbers;
    const char* at =
        read_number(json.data() + quote + kIndex.size(), end, std::numeric_limits<std::int64_t>::max(), numbers.i);
    if (at != nullptr && std::string_view(at, end).starts_with(kId)) {
      std::int64_t id = 0;
      at = read_number(at + kId.size(), end, wire::kTokenIdMax, id);
      numbers.id = base::TokenId{static_cast<std::uint32_t>(id)};
    }
    if (at != nullptr && std::string_view(at, end) == "}") return numbers;
  }
  text.resize(before);
  return std::nullopt;
}

}  // namespace llorch::orchestratord::streams
