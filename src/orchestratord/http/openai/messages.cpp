#include "orchestratord/http/openai/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "base/parse_json.h"
#include "orchestratord/http/chat/parsing.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using chat::refused;
using chat::text_at;

constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
// Of an answer that a client sends back as it got it.
constexpr std::array<std::string_view, 3> kNotForTemplates = {"annotations", "audio", "refusal"};

// Into an object of its own: each erasure from the old one would move all members behind it.
void drop_unused(json::object& message) {
  json::object kept;
  kept.reserve(message.size());
  for (auto& member : message) {
    const bool unused = std::ranges::find(kNotForTemplates, std::string_view(member.key())) != kNotForTemplates.end();
    if (!unused && !member.value().is_null()) kept.emplace(member.key(), std::move(member.value()));
  }
  message = std::move(kept);
}

base::Result<> settle_role(json::object& message, const std::string& path) {
  std::string_view role = text_at(message, "role");
  if (role == "developer") message["role"] = role = "system";
  if (std::ranges::find(kRoles, role) == kRoles.end()) {
    return refused(path + ".role", "enum", path + ".role must be one of: developer, system, user, assistant, tool");
  }
  if (message.contains("function_call")) {
    return refused(path + ".function_call", "unsupported", path + ".function_call is not supported; use tool_calls");
  }
  return {};
}

// The text of a part; nullopt for an image.
base::Result<std::optional<std::string_view>> text_of_part(const json::value& part, const std::string& path) {
  const json::object* object = part.if_object();
  const std::string_view type = object == nullptr ? "" : text_at(*object, "type");
  if (type == "image_url") return std::nullopt;
  if (type != "text" && type != "refusal") {
    return refused(path + ".type", "unsupported",
                   path + ".type must be text or image_url; sound and files are not supported");
  }
  const json::value* text = object->if_contains(type);
  if (text == nullptr || !text->is_string()) {
    return refused(path, "type", fmt::format("{0} must have its text under `{1}`", path, type));
  }
  return std::string_view(text->get_string());
}

base::Result<> settle_content(json::object& message, const std::string& path) {
  json::value* content = message.if_contains("content");
  if (content == nullptr && text_at(message, "role") == "assistant") {
    message["content"] = "";
    return {};
  }
  if (content != nullptr && content->is_string()) return {};
  const json::array* parts = content == nullptr ? nullptr : content->if_array();
  if (parts == nullptr) {
    return refused(path + ".content", content == nullptr ? "missing" : "type",
                   path + ".content must be a text or a list of parts");
  }
  json::string joined;
  bool all_text = true;
  for (std::size_t p = 0; p < parts->size(); ++p) {
    const auto text = TRY(text_of_part((*parts)[p], fmt::format("{}.content[{}]", path, p)));
    all_text = all_text && text;
    if (!text) continue;
    if (!joined.empty()) joined += "\n";
    joined += *text;
  }
  if (all_text) *content = std::move(joined);
  return {};
}

}  // namespace

base::Result<wire::JsonArray> template_messages(const wire::JsonArray& messages) {
  json::value list = base::parse_known_json(messages.text);  // it was read from JSON
  for (std::size_t m = 0; m < list.get_array().size(); ++m) {
    const std::string path = fmt::format("messages[{}]", m);
    json::object* message = list.get_array()[m].if_object();
    if (message == nullptr) return refused(path, "type", path + " must be an object");
    drop_unused(*message);
    TRY(settle_role(*message, path));
    TRY(settle_content(*message, path));
  }
  return wire::JsonArray{json::serialize(list)};
}

}  // namespace llorch::orchestratord::http::openai
