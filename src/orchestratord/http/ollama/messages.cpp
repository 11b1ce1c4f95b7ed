#include "orchestratord/http/ollama/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <deque>
#include <utility>

#include "base/parse_json.h"
#include "orchestratord/http/chat/parsing.h"

namespace llorch::orchestratord::http::ollama {
namespace {

namespace json = boost::json;
using chat::refused;
using chat::text_at;

constexpr std::array<std::string_view, 5> kRoles = {"system", "user", "assistant", "tool", "thinking"};

// A text, after the images it speaks of. What kind of image each is its own bytes say.
json::value content_of(std::string_view text, const std::vector<std::string>& images) {
  if (images.empty()) return json::string(text);
  json::array parts;
  for (const std::string& image : images) {
    parts.push_back({{"type", "image_url"}, {"image_url", {{"url", "data:image/png;base64," + image}}}});
  }
  parts.push_back({{"type", "text"}, {"text", json::string(text)}});
  return parts;
}

base::Result<std::vector<std::string>> images_of(const json::object& message, const std::string& path) {
  std::vector<std::string> out;
  const json::value* images = message.if_contains("images");
  if (images == nullptr || images->is_null()) return out;
  const json::array* list = images->if_array();
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const json::value& image = (*list)[i];
    if (!image.is_string()) return refused(path + ".images", "type", path + ".images must be base64 texts");
    out.emplace_back(image.get_string());
  }
  if (list == nullptr) return refused(path + ".images", "type", path + ".images must be a list");
  return out;
}

// A client has an empty list where a message has images alone.
bool is_text_or_none(const json::value& content) {
  return content.is_string() || content.is_null() || (content.is_array() && content.get_array().empty());
}

class Conversation {
 public:
  base::Result<> add(const json::value& value, const std::string& path) {
    const json::object* message = value.if_object();
    if (message == nullptr) return refused(path, "type", path + " must be an object");
    const std::string_view role = text_at(*message, "role");
    if (std::ranges::find(kRoles, role) == kRoles.end()) {
      return refused(path + ".role", "enum", path + ".role must be one of: system, user, assistant, tool, thinking");
    }
    const json::value* content = message->if_contains("content");
    if (content != nullptr && !is_text_or_none(*content)) {
      return refused(path + ".content", "type", path + ".content must be a text");
    }
    if (role == "thinking") {
      add_thought(text_at(*message, "content"));
      return {};
    }
    const auto images = TRY(images_of(*message, path));
    json::object out{{"role", json::string(role)}, {"content", content_of(text_at(*message, "content"), images)}};
    if (role == "tool") add_result(*message, out);
    if (role == "assistant") {
      add_thought(text_at(*message, "thinking"));
      set_thought(out);
      TRY(add_calls(*message, path, out));
    } else if (role != "tool" && !thought_.empty()) {
      // The turn ended before its answer began. Templates want turns to alternate.
      json::object unanswered{{"role", "assistant"}, {"content", ""}};
      set_thought(unanswered);
      messages_.push_back(std::move(unanswered));
    }
    messages_.push_back(std::move(out));
    return {};
  }
  // A thought behind the last message is left out: the model thinks anew.
  json::array take() { return std::move(messages_); }

 private:
  void add_thought(std::string_view text) {
    if (!thought_.empty() && !text.empty()) thought_ += '\n';
    thought_ += text;
  }
  void set_thought(json::object& message) {
    if (!thought_.empty()) message["reasoning_content"] = std::exchange(thought_, {});
  }

  void add_result(const json::object& message, json::object& out) {
    if (const auto name = text_at(message, "tool_name"); !name.empty()) out["name"] = json::string(name);
    std::string id(text_at(message, "tool_call_id"));
    if (id.empty() && !open_calls_.empty()) id = open_calls_.front();
    if (!open_calls_.empty()) open_calls_.pop_front();
    if (!id.empty()) out["tool_call_id"] = id;
  }

  base::Result<> add_calls(const json::object& message, const std::string& path, json::object& out) {
    const json::value* calls = message.if_contains("tool_calls");
    if (calls == nullptr || calls->is_null()) return {};
    if (!calls->is_array()) return refused(path + ".tool_calls", "type", path + ".tool_calls must be a list");
    open_calls_.clear();
    json::array told;
    for (std::size_t c = 0; c < calls->get_array().size(); ++c) {
      const std::string call_path = fmt::format("{}.tool_calls[{}]", path, c);
      const json::object* call = calls->get_array()[c].if_object();
      const json::value* function = call == nullptr ? nullptr : call->if_contains("function");
      const json::object* described = function == nullptr ? nullptr : function->if_object();
      if (described == nullptr || text_at(*described, "name").empty()) {
        return refused(call_path + ".function", "type", call_path + ".function must have a name and arguments");
      }
      const json::value* arguments = described->if_contains("arguments");
      if (arguments != nullptr && arguments->is_null()) arguments = nullptr;
      if (arguments != nullptr && !arguments->is_object()) {
        return refused(call_path + ".function.arguments", "type", call_path + ".function.arguments must be an object");
      }
      std::string id(text_at(*call, "id"));
      if (id.empty()) id = fmt::format("call_{}_{}", messages_.size(), c);
      told.push_back({{"id", id},
                      {"type", "function"},
                      {"function",
                       {{"name", described->at("name")},
                        {"arguments", arguments == nullptr ? "{}" : json::serialize(*arguments)}}}});
      open_calls_.push_back(std::move(id));
    }
    if (!told.empty()) out["tool_calls"] = std::move(told);
    return {};
  }

  json::array messages_;
  std::string thought_;  // of messages of role thinking, until the assistant's message that it belongs to
  std::deque<std::string> open_calls_;  // ids of the last calls that have no result yet
};

}  // namespace

base::Result<wire::JsonArray> template_messages(const wire::JsonArray& messages) {
  const json::value list = base::parse_known_json(messages.text);  // it was read from JSON
  Conversation out;
  for (std::size_t m = 0; m < list.get_array().size(); ++m) {
    TRY(out.add(list.get_array()[m], fmt::format("messages[{}]", m)));
  }
  return wire::JsonArray{json::serialize(out.take())};
}

wire::JsonArray one_turn(std::string_view system, std::string_view prompt, const std::vector<std::string>& images) {
  json::array out;
  if (!system.empty()) out.push_back({{"role", "system"}, {"content", json::string(system)}});
  out.push_back({{"role", "user"}, {"content", content_of(prompt, images)}});
  return {json::serialize(out)};
}

}  // namespace llorch::orchestratord::http::ollama
