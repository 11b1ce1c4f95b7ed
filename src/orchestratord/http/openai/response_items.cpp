#include "orchestratord/http/openai/response_items.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string_view>

#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/tools.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using chat::refused;
using chat::text_at;

base::Result<json::value> chat_part(const json::value& part, const std::string& path) {
  const json::object* object = part.if_object();
  const std::string_view type = object == nullptr ? "" : text_at(*object, "type");
  if (type == "input_text" || type == "output_text" || type == "refusal") {
    const json::value* text = object->if_contains(type == "refusal" ? "refusal" : "text");
    if (text == nullptr) return refused(path, "missing", path + " has no text");
    return json::value{{"type", "text"}, {"text", *text}};
  }
  if (type == "input_image") {
    if (text_at(*object, "image_url").empty()) {
      return refused(path + ".image_url", "missing", path + ".image_url must be a data: URL; files are not kept");
    }
    return json::value{{"type", "image_url"}, {"image_url", {{"url", object->at("image_url")}}}};
  }
  return refused(path + ".type", "unsupported", path + ".type must be input_text, output_text or input_image");
}

// Of a message or of a call's result: a text, or parts.
base::Result<json::value> chat_content(const json::object& item, std::string_view name, const std::string& path) {
  const std::string full = fmt::format("{}.{}", path, name);
  const json::value* content = item.if_contains(name);
  if (content == nullptr) return refused(full, "missing", full + " is required");
  if (!content->is_array()) return *content;
  json::array parts;
  for (std::size_t p = 0; p < content->get_array().size(); ++p) {
    parts.push_back(TRY(chat_part(content->get_array()[p], fmt::format("{}[{}]", full, p))));
  }
  return parts;
}

// Calls stand in the message of the assistant who made them.
void add_call(const json::object& item, json::array& messages) {
  const bool has_assistant = !messages.empty() && text_at(messages.back().get_object(), "role") == "assistant";
  if (!has_assistant) messages.push_back({{"role", "assistant"}, {"content", ""}});
  json::object& message = messages.back().get_object();
  if (!message.contains("tool_calls")) message["tool_calls"] = json::array();
  message["tool_calls"].get_array().push_back(
      {{"id", json::string(text_at(item, "call_id"))},
       {"type", "function"},
       {"function",
        {{"name", json::string(text_at(item, "name"))}, {"arguments", json::string(text_at(item, "arguments"))}}}});
}

base::Result<> add_item(const json::value& value, const std::string& path, json::array& messages) {
  const json::object* item = value.if_object();
  if (item == nullptr) return refused(path, "type", path + " must be an object");
  const std::string_view type = text_at(*item, "type");
  if (type == "message" || (type.empty() && item->contains("role"))) {
    messages.push_back(
        {{"role", json::string(text_at(*item, "role"))}, {"content", TRY(chat_content(*item, "content", path))}});
  } else if (type == "function_call") {
    add_call(*item, messages);
  } else if (type == "function_call_output") {
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", json::string(text_at(*item, "call_id"))},
                        {"content", TRY(chat_content(*item, "output", path))}});
  } else if (type == "item_reference") {
    return refused(path + ".type", "unsupported",
                   path + " names an item of a kept response, which a line of a batch does not; send the item itself");
  } else if (type != "reasoning") {
    return refused(path + ".type", "unsupported",
                   path + ".type must be message, function_call, function_call_output or reasoning");
  }
  return {};
}

}  // namespace

base::Result<wire::JsonArray> chat_messages(const wire::TextOrList& input,
                                            const std::optional<std::string>& instructions, std::string_view field) {
  const json::value items = json::parse(input.json);  // it was read from JSON
  json::array messages;
  if (instructions) messages.push_back({{"role", "system"}, {"content", *instructions}});
  if (items.is_string()) {
    messages.push_back({{"role", "user"}, {"content", items}});
  } else {
    for (std::size_t i = 0; i < items.get_array().size(); ++i) {
      TRY(add_item(items.get_array()[i], fmt::format("{}[{}]", field, i), messages));
    }
  }
  return wire::JsonArray{json::serialize(messages)};
}

// Coding agents offer it whatever the model; that the model is not told of it is an answer that they know.
bool is_left_out(const json::value& tool) {
  return tool.is_object() && text_at(tool.get_object(), "type").starts_with("web_search");
}

base::Result<std::optional<wire::JsonArray>> chat_tools(const std::optional<wire::JsonArray>& tools) {
  if (!tools) return std::nullopt;
  json::array functions;
  const json::value list = json::parse(tools->text);
  for (std::size_t t = 0; t < list.get_array().size(); ++t) {
    const std::string path = fmt::format("tools[{}]", t);
    if (is_left_out(list.get_array()[t])) continue;
    const json::object* tool = list.get_array()[t].if_object();
    if (tool == nullptr || text_at(*tool, "type") != "function") {
      return refused(path + ".type", "unsupported", path + ".type must be function: no tool runs here");
    }
    json::object function = *tool;
    function.stable_erase("type");
    functions.push_back(std::move(function));
  }
  return TRY(chat::nested_functions(std::move(functions)));
}

}  // namespace llorch::orchestratord::http::openai
