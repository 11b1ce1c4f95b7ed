#include "orchestratord/http/anthropic/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/parse_json.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/tools.h"

namespace llorch::orchestratord::http::anthropic {
namespace {

namespace json = boost::json;
using chat::refused;
using chat::text_at;

constexpr chat::FunctionRules kFunctionRules{.schema = "input_schema", .name_bytes_max = 128, .tools_max = 1024};
constexpr std::array<std::string_view, 2> kImageTypes = {"image/jpeg", "image/png"};

// The content of one message or more, all of one role.
struct Turn {
  std::string_view role;  // "user" or "assistant"; empty: there is none yet
  json::array parts;      // of types text and image_url
  bool all_text = true;
  json::string thought;
  json::array calls;
};

// One text if it is nothing else.
json::value content_of(json::array parts, bool all_text) {
  if (!all_text) return parts;
  json::string joined;
  for (const json::value& part : parts) {
    if (&part != &parts.front()) joined += "\n";
    joined += part.at("text").get_string();
  }
  return joined;
}

// Appends the turn to `messages`, and begins another of the same role.
void flush(Turn& turn, json::array& messages) {
  const bool says_nothing = turn.parts.empty() && turn.calls.empty() && turn.thought.empty();
  const Turn done = std::exchange(turn, Turn{.role = turn.role});
  if (says_nothing && done.role != "assistant") return;  // results of calls stand in messages of their own
  json::object message{{"role", json::string(done.role)}, {"content", content_of(done.parts, done.all_text)}};
  if (!done.thought.empty()) message["reasoning_content"] = done.thought;
  if (!done.calls.empty()) message["tool_calls"] = done.calls;
  messages.push_back(std::move(message));
}

base::Result<json::value> text_part(const json::object& block, const std::string& path) {
  const json::value* text = block.if_contains("text");
  if (text == nullptr || !text->is_string()) return refused(path + ".text", "type", path + ".text must be a text");
  return json::value{{"type", "text"}, {"text", *text}};
}

base::Result<json::value> image_part(const json::object& block, const std::string& path) {
  const json::value* source = block.if_contains("source");
  const json::object* described = source == nullptr ? nullptr : source->if_object();
  if (described == nullptr || text_at(*described, "type") != "base64") {
    return refused(path + ".source.type", "unsupported",
                   path + ".source.type must be base64: no image is fetched and no file is kept");
  }
  const std::string_view type = text_at(*described, "media_type");
  if (std::ranges::find(kImageTypes, type) == kImageTypes.end()) {
    return refused(path + ".source.media_type", "enum", path + ".source.media_type must be image/jpeg or image/png");
  }
  json::string url = "data:";
  url.append(type).append(";base64,").append(text_at(*described, "data"));
  return json::value{{"type", "image_url"}, {"image_url", {{"url", std::move(url)}}}};
}

// The texts of a document's or a search result's own blocks, joined by line breaks.
base::Result<json::string> joined_texts(const json::value* content, const std::string& path) {
  if (content != nullptr && content->is_string()) return content->get_string();
  const json::array* blocks = content == nullptr ? nullptr : content->if_array();
  if (blocks == nullptr) return refused(path, "type", path + " must be a text or a list of blocks of type text");
  json::string out;
  for (std::size_t b = 0; b < blocks->size(); ++b) {
    const std::string full = fmt::format("{}[{}]", path, b);
    const json::object* block = (*blocks)[b].if_object();
    if (block == nullptr || text_at(*block, "type") != "text") {
      return refused(full + ".type", "unsupported", full + ".type must be text");
    }
    if (!out.empty()) out += "\n";
    out += TRY(text_part(*block, full)).at("text").get_string();
  }
  return out;
}

base::Result<json::string> document_text(const json::object& block, const std::string& path) {
  const json::value* source = block.if_contains("source");
  const json::object* described = source == nullptr ? nullptr : source->if_object();
  const std::string_view type = described == nullptr ? "" : text_at(*described, "type");
  if (type == "text") return json::string(text_at(*described, "data"));
  if (type == "content") return joined_texts(described->if_contains("content"), path + ".source.content");
  if (type == "base64") {
    return refused(path + ".source.type", "unsupported",
                   path +
                       " is a file, and files such as PDF are not read here; send its text, with a source of type "
                       "text, or its pages as images");
  }
  return refused(path + ".source.type", "unsupported",
                 path + ".source.type must be text or content: nothing is fetched and no file is kept");
}

// What heads a text, each a paragraph of its own, and the text.
json::value text_under(std::initializer_list<std::string_view> heads, std::string_view text) {
  json::string out;
  for (const std::string_view head : heads) {
    if (!head.empty()) out.append(head).append("\n\n");
  }
  out.append(text);
  return {{"type", "text"}, {"text", std::move(out)}};
}

constexpr std::array<std::string_view, 4> kUserParts = {"text", "image", "document", "search_result"};

// A text, or of a user's blocks any of kUserParts.
base::Result<json::value> part_of(const json::value& value, const std::string& path, bool is_user) {
  const json::object* block = value.if_object();
  const std::string_view type = block == nullptr ? "" : text_at(*block, "type");
  if (type == "text") return text_part(*block, path);
  if (type == "image" && is_user) return image_part(*block, path);
  if (type == "document" && is_user) {
    return text_under({text_at(*block, "title"), text_at(*block, "context")}, TRY(document_text(*block, path)));
  }
  if (type == "search_result" && is_user) {
    return text_under({text_at(*block, "title"), text_at(*block, "source")},
                      TRY(joined_texts(block->if_contains("content"), path + ".content")));
  }
  return refused(path + ".type", "unsupported",
                 path + (is_user ? ".type must be text, image, document or search_result" : ".type must be text"));
}

constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

// What a system prompt says behind the fields (`name=value;`) that Claude Code writes before it for its maker's server. One of them
// changes with each request, so no prompt would begin as the one before it did, and workers would read all of it again.
std::string_view without_billing_header(std::string_view text) {
  if (!text.starts_with(kBillingHeader)) return text;
  text.remove_prefix(kBillingHeader.size());
  const auto skip_spaces = [&] { text.remove_prefix(std::min(text.find_first_not_of(' '), text.size())); };
  for (skip_spaces(); !text.empty() && text.front() != '\n'; skip_spaces()) {
    const std::size_t end = std::min(text.find_first_of(";\n"), text.size());
    const std::size_t name_end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
    if (name_end == 0 || name_end >= end || text[name_end] != '=') break;
    text.remove_prefix(end < text.size() && text[end] == ';' ? end + 1 : end);
  }
  if (text.starts_with('\n')) text.remove_prefix(1);
  return text;
}

// Of the system prompt or of a call's result: a text, or blocks.
base::Result<json::value> settled_content(const json::value& content, const std::string& path, bool is_user) {
  if (content.is_string() && is_user) return content;
  if (content.is_string()) return json::value(json::string(without_billing_header(content.get_string())));
  const json::array* blocks = content.if_array();
  if (blocks == nullptr) return refused(path, "type", path + " must be a text or a list of blocks");
  json::array parts;
  bool all_text = true;
  for (std::size_t b = 0; b < blocks->size(); ++b) {
    json::value part = TRY(part_of((*blocks)[b], fmt::format("{}[{}]", path, b), is_user));
    if (!is_user) {
      json::string& text = part.at("text").get_string();
      json::string said(without_billing_header(text));
      if (said.empty() && !text.empty()) continue;
      text = std::move(said);
    }
    parts.push_back(std::move(part));
    all_text = all_text && text_at(parts.back().get_object(), "type") == "text";
  }
  return content_of(std::move(parts), all_text);
}

base::Result<json::value> call_of(const json::object& block, const std::string& path) {
  const json::value* input = block.if_contains("input");
  if (input == nullptr || !input->is_object()) {
    return refused(path + ".input", "type", path + ".input must be an object");
  }
  for (const char* name : {"id", "name"}) {
    if (text_at(block, name).empty())
      return refused(fmt::format("{}.{}", path, name), "missing", path + " needs an id and a name");
  }
  return json::value{{"id", block.at("id")},
                     {"type", "function"},
                     {"function", {{"name", block.at("name")}, {"arguments", json::serialize(*input)}}}};
}

base::Result<> add_result(const json::object& block, const std::string& path, Turn& turn, json::array& messages) {
  flush(turn, messages);
  if (text_at(block, "tool_use_id").empty()) {
    return refused(path + ".tool_use_id", "missing", path + ".tool_use_id must be the id of a call");
  }
  const json::value* content = block.if_contains("content");
  json::value settled = json::string();
  if (content != nullptr && !content->is_null()) settled = TRY(settled_content(*content, path + ".content", true));
  messages.push_back({{"role", "tool"}, {"tool_call_id", block.at("tool_use_id")}, {"content", std::move(settled)}});
  return {};
}

base::Result<> add_block(const json::value& value, const std::string& path, Turn& turn, json::array& messages) {
  const json::object* block = value.if_object();
  const std::string_view type = block == nullptr ? "" : text_at(*block, "type");
  const bool is_user = turn.role == "user";
  if (type == "text" || (is_user && std::ranges::count(kUserParts, type) > 0)) {
    turn.parts.push_back(TRY(part_of(value, path, is_user)));
    turn.all_text = turn.all_text && type != "image";
    return {};
  }
  if (type == "tool_result" && is_user) return add_result(*block, path, turn, messages);
  if (type == "tool_use" && !is_user) {
    turn.calls.push_back(TRY(call_of(*block, path)));
    return {};
  }
  if (type == "thinking" && !is_user) {
    turn.thought += text_at(*block, "thinking");
    return {};
  }
  if (type == "redacted_thinking" && !is_user) return {};
  return refused(path + ".type", "unsupported",
                 path + (is_user ? ".type must be text, image, document, search_result or tool_result"
                                 : ".type must be text, thinking, redacted_thinking or tool_use"));
}

// Between the turns. The next one is the user's: what says nothing is left out.
base::Result<> add_system(const json::object& message, const std::string& path, Turn& turn, json::array& messages) {
  const json::value* content = message.if_contains("content");
  if (content == nullptr) return refused(path + ".content", "missing", path + ".content is required");
  if (turn.role.empty()) {
    return refused(path + ".role", "enum", path + ".role must be user; a system prompt is the field system");
  }
  flush(turn, messages);
  turn.role = "user";
  messages.push_back({{"role", "system"}, {"content", TRY(settled_content(*content, path + ".content", false))}});
  return {};
}

base::Result<> add_message(const json::value& value, const std::string& path, Turn& turn, json::array& messages) {
  const json::object* message = value.if_object();
  if (message == nullptr) return refused(path, "type", path + " must be an object");
  const std::string_view role = text_at(*message, "role");
  if (role == "system") return add_system(*message, path, turn, messages);
  if (role != "user" && role != "assistant") {
    return refused(path + ".role", "enum", path + ".role must be user, assistant or system");
  }
  if (role != turn.role) {
    if (!turn.role.empty()) flush(turn, messages);
    turn.role = role == "user" ? "user" : "assistant";
  }
  const json::value* content = message->if_contains("content");
  if (content != nullptr && content->is_string()) {
    turn.parts.push_back({{"type", "text"}, {"text", *content}});
    return {};
  }
  const json::array* blocks = content == nullptr ? nullptr : content->if_array();
  if (blocks == nullptr) {
    return refused(path + ".content", content == nullptr ? "missing" : "type",
                   path + ".content must be a text or a list of blocks");
  }
  for (std::size_t b = 0; b < blocks->size(); ++b) {
    TRY(add_block((*blocks)[b], fmt::format("{}.content[{}]", path, b), turn, messages));
  }
  return {};
}

}  // namespace

base::Result<wire::JsonArray> template_messages(const wire::JsonArray& messages,
                                                const std::optional<wire::TextOrList>& system) {
  const json::value list = base::parse_known_json(messages.text);  // these two were read from JSON
  json::array out;
  if (system) {
    json::value content = TRY(settled_content(base::parse_known_json(system->json), "system", false));
    if (!content.get_string().empty()) out.push_back({{"role", "system"}, {"content", std::move(content)}});
  }
  Turn turn;
  for (std::size_t m = 0; m < list.get_array().size(); ++m) {
    TRY(add_message(list.get_array()[m], fmt::format("messages[{}]", m), turn, out));
  }
  if (turn.role != "user") {
    return refused("messages", "combination",
                   "the last turn must be the user's: an answer cannot be begun for the model");
  }
  flush(turn, out);
  return wire::JsonArray{json::serialize(out)};
}

base::Result<std::optional<wire::JsonArray>> template_tools(const std::optional<wire::JsonArray>& tools) {
  if (!tools) return std::nullopt;
  const json::value list = base::parse_known_json(tools->text);
  if (list.get_array().empty()) return std::nullopt;
  TRY(chat::check_tools_count(list.get_array().size(), kFunctionRules));
  json::array functions;
  for (std::size_t t = 0; t < list.get_array().size(); ++t) {
    const std::string path = fmt::format("tools[{}]", t);
    const json::object* tool = list.get_array()[t].if_object();
    if (tool == nullptr) return refused(path, "type", path + " must be an object");
    const json::value* type = tool->if_contains("type");
    if (type != nullptr && !type->is_null() && text_at(*tool, "type") != "custom") {
      return refused(path + ".type", "unsupported", path + ".type must be custom: no tool runs here");
    }
    TRY(chat::check_function(*tool, path, kFunctionRules));
    const json::value* schema = tool->if_contains("input_schema");
    if (schema == nullptr || schema->is_null()) {
      return refused(path + ".input_schema", "missing", path + ".input_schema is required");
    }
    json::object function{{"name", tool->at("name")}};
    if (!text_at(*tool, "description").empty()) function["description"] = tool->at("description");
    function["parameters"] = *schema;
    functions.push_back(std::move(function));
  }
  return TRY(chat::nested_functions(std::move(functions)));
}

}  // namespace llorch::orchestratord::http::anthropic
