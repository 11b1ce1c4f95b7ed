#include "text/roles.h"

#include <boost/json.hpp>

#include <string_view>
#include <utility>

namespace llorch::text {
namespace {

namespace bj = boost::json;

constexpr std::string_view kBlankLine = "\n\n";

std::string_view role_of(const bj::object& message) { return message.at("role").get_string(); }

bool says_nothing(const bj::value& value) {
  return value.is_null() || (value.is_string() && value.get_string().empty()) ||
         (value.is_array() && value.get_array().empty());
}

bool says_nothing_of(const bj::object& message, std::string_view key) {
  const bj::value* value = message.if_contains(key);
  return value == nullptr || says_nothing(*value);
}

// Of a content part; null where it is no text.
bj::string* text_of_part(bj::value& part) {
  bj::object* object = part.if_object();
  bj::value* text = object == nullptr ? nullptr : object->if_contains("text");
  return text == nullptr ? nullptr : text->if_string();
}

bj::array content_parts(bj::value content) {
  if (bj::array* parts = content.if_array()) return std::move(*parts);
  bj::object part;
  part["type"] = "text";
  part["text"] = std::move(content);
  bj::array parts;
  parts.push_back(std::move(part));
  return parts;
}

// Texts, or lists of parts, of which one may be a text.
void append(bj::value& content, bj::value more) {
  if (says_nothing(more)) return;
  if (says_nothing(content)) {
    content = std::move(more);
    return;
  }
  if (content.is_string() && more.is_string()) {
    content.get_string().append(kBlankLine).append(more.get_string());
    return;
  }
  bj::array parts = content_parts(std::move(content));
  bj::array next = content_parts(std::move(more));
  bj::string* end = text_of_part(parts.back());
  const bj::string* begin = text_of_part(next.front());
  const bool is_one_text = end != nullptr && begin != nullptr;
  if (is_one_text) end->append(kBlankLine).append(*begin);
  for (std::size_t p = is_one_text ? 1 : 0; p < next.size(); ++p) parts.push_back(std::move(next[p]));
  content = std::move(parts);
}

bool has_joinable_content(const bj::object& message) {
  const bj::value* content = message.if_contains("content");
  return content == nullptr || content->is_null() || content->is_string() || content->is_array();
}

bool joins(const bj::object& before, const bj::object& message, RoleRule rule) {
  if (!has_joinable_content(before) || !has_joinable_content(message)) return false;
  const std::string_view role = role_of(message);
  if (role_of(before) == "tool") return rule == RoleRule::kTextsJoinResults && role == "user";
  if (role_of(before) != role || !says_nothing_of(before, "tool_calls")) return false;
  return role == "system" || role == "user" || role == "assistant";
}

void join(bj::object& before, bj::object message) {
  for (const char* text : {"content", "reasoning_content"}) {
    if (!says_nothing_of(message, text)) append(before[text], std::move(message[text]));
  }
  if (role_of(before) == "tool") return;
  for (auto& member : message) {
    if (says_nothing_of(before, std::string_view(member.key()))) before[member.key()] = std::move(member.value());
  }
}

}  // namespace

bool follow(RoleRule rule, bj::array& messages) {
  bool is_changed = false, is_leading = true;
  bj::array out;
  out.reserve(messages.size());
  for (bj::value& value : messages) {
    bj::object& message = value.get_object();
    const bool is_system = role_of(message) == "system";
    is_leading = is_leading && is_system;
    if (is_system && (!is_leading || rule == RoleRule::kNoSystemMessage)) {
      message["role"] = "user";
      is_changed = true;
    }
    if (!out.empty() && joins(out.back().get_object(), message, rule)) {
      join(out.back().get_object(), std::move(message));
      is_changed = true;
    } else {
      out.push_back(std::move(value));
    }
  }
  messages = std::move(out);
  return is_changed;
}

}  // namespace llorch::text
