#include "orchestratord/http/openai/deferred/multipart.h"

#include <optional>

#include "net/http/message.h"
#include "orchestratord/http/chat/parsing.h"

namespace llorch::orchestratord::http::openai {
namespace {

using chat::refused;

constexpr std::size_t kBoundaryBytesMax = 70;  // RFC 2046

// The value of `;name=value` or `;name="value"`, where \" and \\ stand for themselves.
std::optional<std::string> parameter(std::string_view header, std::string_view name) {
  while (!header.empty()) {
    const std::size_t semicolon = header.find(';');
    if (semicolon == std::string_view::npos) return std::nullopt;
    header.remove_prefix(semicolon + 1);
    while (header.starts_with(' ')) header.remove_prefix(1);
    const std::size_t equals = header.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const bool is_it = net::http::equals_ignoring_case(header.substr(0, equals), name);
    header.remove_prefix(equals + 1);
    std::string value;
    if (header.starts_with('"')) {
      std::size_t at = 1;
      for (; at < header.size() && header[at] != '"'; ++at) {
        if (header[at] == '\\' && at + 1 < header.size()) ++at;
        value += header[at];
      }
      header.remove_prefix(std::min(at + 1, header.size()));
    } else {
      value = header.substr(0, header.find_first_of("; \t"));
      header.remove_prefix(value.size());
    }
    if (is_it) return value;
  }
  return std::nullopt;
}

base::Result<FormPart> parse_part(std::string_view part) {
  const std::size_t head_end = part.find("\r\n\r\n");
  if (head_end == std::string_view::npos) return refused("", "multipart", "a part of the form has no header");
  FormPart out{.name = {}, .filename = {}, .content = part.substr(head_end + 4)};
  std::string_view head = part.substr(0, head_end);
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(head.size(), line.size() + 2));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    if (!net::http::equals_ignoring_case(line.substr(0, colon), "Content-Disposition")) continue;
    out.name = parameter(line, "name").value_or("");
    out.filename = parameter(line, "filename").value_or("");
  }
  if (out.name.empty()) return refused("", "multipart", "a part of the form has no name");
  return out;
}

}  // namespace

base::Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body) {
  const auto boundary = parameter(content_type, "boundary");
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  if (!net::http::equals_ignoring_case(type, "multipart/form-data") || !boundary || boundary->empty() ||
      boundary->size() > kBoundaryBytesMax) {
    return refused("Content-Type", "multipart", "a file is sent as multipart/form-data with a boundary");
  }
  const std::string mark = "\r\n--" + *boundary;
  const auto broken = [] { return refused("", "multipart", "the form is cut off: its last boundary is missing"); };
  // The first boundary may begin the body.
  std::size_t at = body.starts_with(std::string_view(mark).substr(2)) ? mark.size() - 2 : body.find(mark);
  if (at == std::string_view::npos) return broken();
  if (!body.starts_with(std::string_view(mark).substr(2))) at += mark.size();
  std::vector<FormPart> parts;
  while (!body.substr(at).starts_with("--")) {
    const std::size_t begin = body.find("\r\n", at);
    if (begin == std::string_view::npos) return broken();
    const std::size_t end = body.find(mark, begin);
    if (end == std::string_view::npos) return broken();
    if (parts.size() == kFormPartsMax) return refused("", "range", "the form has more than 32 parts");
    // An empty part begins where it ends.
    const std::size_t from = std::min(begin + 2, end);
    parts.push_back(TRY(parse_part(body.substr(from, end - from))));
    at = end + mark.size();
  }
  return parts;
}

}  // namespace llorch::orchestratord::http::openai
