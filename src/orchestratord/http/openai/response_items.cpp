#include "orchestratord/http/openai/response_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <string_view>

#include "base/parse_json.h"
#include "base/sha256.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/tools.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using chat::refused;
using chat::text_at;

// What OpenAI's server runs, or a client by a notation that functions do not have.
constexpr std::array<std::string_view, 3> kToolsLeftOut = {"image_generation", "local_shell", "tool_search"};
// What was done with such tools by a model that had them, but for custom ones.
constexpr std::array<std::string_view, 7> kItemsLeftOut = {
    "image_generation_call", "local_shell_call",   "local_shell_call_output", "reasoning",
    "tool_search_call",      "tool_search_output", "web_search_call"};

constexpr std::size_t kNameBytesMax = chat::FunctionRules().name_bytes_max;

// crm and find are crm__find. Where that is too long, or taken by another one (`clash` counts such names), a digest tells them apart.
std::string joined_name(const MemberName& member, int clash = 0) {
  std::string plain = fmt::format("{}{}{}", member.space, member.space.ends_with("__") ? "" : "__", member.name);
  if (clash == 0 && plain.size() <= kNameBytesMax) return plain;
  const std::string digest =
      base::to_hex(base::sha256(fmt::format("{}\n{}\n{}", member.space, member.name, clash))).substr(0, 8);
  return fmt::format("{}_{}", plain.substr(0, kNameBytesMax - digest.size() - 1), digest);
}

// The model's name for it; of one that the request's tools do not have, what it would be.
std::string known_name(const MemberName& member, const MemberNames& members) {
  const auto it = std::ranges::find(members, member, &MemberNames::value_type::second);
  return it != members.end() ? it->first : joined_name(member);
}

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

// A custom tool takes one text.
std::string arguments_of(const json::object& item) {
  if (text_at(item, "type") == "function_call") return std::string(text_at(item, "arguments"));
  return json::serialize(json::object{{"input", json::string(text_at(item, "input"))}});
}

// Calls stand in the message of the assistant who made them.
base::Result<> add_call(const json::object& item, const std::string& path, const MemberNames& members,
                        json::array& messages) {
  std::string name(text_at(item, "name"));
  if (const std::string_view space = text_at(item, "namespace"); !space.empty()) {
    TRY(chat::check_function({{"name", json::string(space)}}, path + ".namespace", {}));
    TRY(chat::check_function({{"name", name}}, path, {}));
    name = known_name({.space = std::string(space), .name = name}, members);
  }
  const bool has_assistant = !messages.empty() && text_at(messages.back().get_object(), "role") == "assistant";
  if (!has_assistant) messages.push_back({{"role", "assistant"}, {"content", ""}});
  json::object& message = messages.back().get_object();
  if (!message.contains("tool_calls")) message["tool_calls"] = json::array();
  message["tool_calls"].get_array().push_back(
      {{"id", json::string(text_at(item, "call_id"))},
       {"type", "function"},
       {"function", {{"name", name}, {"arguments", json::string(arguments_of(item))}}}});
  return {};
}

base::Result<> add_item(const json::value& value, const std::string& path, const MemberNames& members,
                        json::array& messages) {
  const json::object* item = value.if_object();
  if (item == nullptr) return refused(path, "type", path + " must be an object");
  const std::string_view type = text_at(*item, "type");
  if (type == "message" || (type.empty() && item->contains("role"))) {
    messages.push_back(
        {{"role", json::string(text_at(*item, "role"))}, {"content", TRY(chat_content(*item, "content", path))}});
  } else if (type == "function_call" || type == "custom_tool_call") {
    TRY(add_call(*item, path, members, messages));
  } else if (type == "function_call_output" || type == "custom_tool_call_output") {
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", json::string(text_at(*item, "call_id"))},
                        {"content", TRY(chat_content(*item, "output", path))}});
  } else if (type == "item_reference") {
    return refused(path + ".type", "unsupported",
                   path + " names an item of a kept response, which a line of a batch does not; send the item itself");
  } else if (std::ranges::find(kItemsLeftOut, type) == kItemsLeftOut.end()) {
    return refused(path + ".type", "unsupported",
                   path +
                       ".type must be message, function_call, function_call_output, custom_tool_call, "
                       "custom_tool_call_output or reasoning");
  }
  return {};
}

// Its functions become functions of the list, under names that no other one there has.
base::Result<> add_namespace(const json::object& tool, const std::string& path, ResponseTools& tools,
                             json::array& functions) {
  const std::string_view space = text_at(tool, "name");
  TRY(chat::check_function({{"name", json::string(space)}}, path, {}));
  const json::value* list = tool.if_contains("tools");
  if (list == nullptr || !list->is_array()) {
    return refused(path + ".tools", "type", path + ".tools must be a list of functions");
  }
  TRY(chat::check_tools_count(functions.size() + list->get_array().size(), {}));
  for (std::size_t f = 0; f < list->get_array().size(); ++f) {
    const std::string full = fmt::format("{}.tools[{}]", path, f);
    const json::object* sent = list->get_array()[f].if_object();
    if (sent == nullptr || text_at(*sent, "type") != "function") {
      return refused(full + ".type", "unsupported", full + ".type must be function: no tool runs here");
    }
    TRY(chat::check_function(*sent, full, {}));
    const MemberName member{.space = std::string(space), .name = std::string(text_at(*sent, "name"))};
    std::string name = known_name(member, tools.members);
    const auto is_taken = [&] {
      const auto it = tools.members.find(name);
      return tools.plain.contains(name) || (it != tools.members.end() && it->second != member);
    };
    for (int clash = 1; is_taken(); ++clash) name = joined_name(member, clash);
    json::object function = *sent;
    function.stable_erase("type");
    function["name"] = name;
    functions.push_back(std::move(function));
    tools.members.emplace(std::move(name), member);
  }
  return {};
}

// A custom tool becomes a function with one text; a regular expression is the text's pattern.
base::Result<> add_custom(const json::object& tool, const std::string& path, json::array& functions) {
  TRY(chat::check_function({{"name", json::string(text_at(tool, "name"))}}, path, {}));
  json::object input{{"type", "string"}};
  if (const json::value* sent = tool.if_contains("format"); sent != nullptr && !sent->is_null()) {
    const json::object format = sent->is_object() ? sent->get_object() : json::object();
    const std::string_view type = text_at(format, "type");
    if (type != "text" && type != "grammar") {
      return refused(path + ".format.type", "unsupported", path + ".format.type must be text or grammar");
    }
    if (type == "grammar") {
      const std::string_view definition = text_at(format, "definition");
      if (definition.empty()) {
        return refused(path + ".format.definition", "missing", path + ".format.definition is required");
      }
      input["pattern"] = fmt::format("^({})$", definition);
    }
  }
  json::object function{{"name", json::string(text_at(tool, "name"))}};
  if (const json::value* description = tool.if_contains("description")) function["description"] = *description;
  function["parameters"] = json::object{{"type", "object"},
                                        {"properties", json::object{{"input", std::move(input)}}},
                                        {"required", json::array{"input"}},
                                        {"additionalProperties", false}};
  functions.push_back(std::move(function));
  return {};
}

// The names of all tools that are in no namespace, before those in one get theirs. One name of a custom tool and another tool would
// leave open what a call is.
base::Result<> note_plain_names(const json::array& list, ResponseTools& tools) {
  for (std::size_t t = 0; t < list.size(); ++t) {
    const json::object* tool = list[t].if_object();
    const std::string_view type = tool == nullptr ? "" : text_at(*tool, "type");
    const bool is_custom = type == "custom";
    if ((type != "function" && !is_custom) || is_left_out(list[t])) continue;
    const std::string name(text_at(*tool, "name"));
    const bool is_new = tools.plain.insert(name).second;
    if (!is_new && (is_custom || tools.custom.contains(name))) {
      const std::string field = fmt::format("tools[{}].name", t);
      return refused(field, "duplicate", field + " is another tool's as well, and one of the two is a custom tool");
    }
    if (is_custom) tools.custom.insert(name);
  }
  return {};
}

}  // namespace

base::Result<wire::JsonArray> chat_messages(const wire::TextOrList& input,
                                            const std::optional<std::string>& instructions, const MemberNames& members,
                                            std::string_view field) {
  const json::value items = base::parse_known_json(input.json);  // it was read from JSON
  json::array messages;
  if (instructions) messages.push_back({{"role", "system"}, {"content", *instructions}});
  if (items.is_string()) {
    messages.push_back({{"role", "user"}, {"content", items}});
  } else {
    for (std::size_t i = 0; i < items.get_array().size(); ++i) {
      TRY(add_item(items.get_array()[i], fmt::format("{}[{}]", field, i), members, messages));
    }
  }
  return wire::JsonArray{json::serialize(messages)};
}

// Coding agents offer these whatever the model; that the model is not told of them is an answer that they know.
bool is_left_out(const json::value& tool) {
  if (!tool.is_object()) return false;
  const std::string_view type = text_at(tool.get_object(), "type");
  if (type == "custom") {
    const json::value* format = tool.get_object().if_contains("format");
    return format != nullptr && format->is_object() && text_at(format->get_object(), "type") == "grammar" &&
           text_at(format->get_object(), "syntax") != "regex";
  }
  return type.starts_with("web_search") || std::ranges::find(kToolsLeftOut, type) != kToolsLeftOut.end();
}

std::string ResponseTools::chosen(std::string_view name) const {
  const auto is_named = [&](const auto& member) { return member.second.name == name; };
  if (plain.contains(name) || std::ranges::count_if(members, is_named) != 1) return std::string(name);
  return std::ranges::find_if(members, is_named)->first;
}

base::Result<ResponseTools> chat_tools(const std::optional<wire::JsonArray>& tools) {
  ResponseTools out;
  if (!tools) return out;
  json::array functions;
  const json::value list = base::parse_known_json(tools->text);
  TRY(note_plain_names(list.get_array(), out));
  for (std::size_t t = 0; t < list.get_array().size(); ++t) {
    const std::string path = fmt::format("tools[{}]", t);
    if (is_left_out(list.get_array()[t])) continue;
    const json::object* tool = list.get_array()[t].if_object();
    const std::string_view type = tool == nullptr ? "" : text_at(*tool, "type");
    if (type == "namespace") {
      TRY(add_namespace(*tool, path, out, functions));
      continue;
    }
    if (type == "custom") {
      TRY(add_custom(*tool, path, functions));
      continue;
    }
    if (type != "function") {
      return refused(path + ".type", "unsupported",
                     path + ".type must be function, custom, or namespace with functions: no tool runs here");
    }
    json::object function = *tool;
    function.stable_erase("type");
    functions.push_back(std::move(function));
  }
  out.functions = TRY(chat::nested_functions(std::move(functions)));
  return out;
}

}  // namespace llorch::orchestratord::http::openai
