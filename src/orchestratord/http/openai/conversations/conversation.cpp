#include "orchestratord/http/openai/conversations/conversation.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <set>

#include "base/id.h"
#include "base/json_text.h"
#include "base/parse_json.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/openai/messages.h"
#include "orchestratord/http/openai/response_items.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using chat::refused;
using chat::text_at;

// `"metadata":{...}`
std::string metadata_member(const wire::Metadata& metadata) {
  const std::string object = wire::encode(wire::UpdateConversationRequest{metadata});
  return object.substr(1, object.size() - 2);
}

void append_items(const std::vector<ListedItem>& items, std::string& out) {
  out += '[';
  for (const ListedItem& item : items) out.append(out.back() == '[' ? "" : ",").append(item.json);
  out += ']';
}

}  // namespace

std::string text_of_conversation(const Conversation& conversation) {
  std::string out = "{" + metadata_member(conversation.metadata) + R"(,"items":)";
  append_items(conversation.items, out);
  return out + "}";
}

base::Result<Conversation> conversation_of(std::string_view text) {
  const auto corrupt = [] {
    return base::fail(base::ErrorCode::kCorruptFile, "the kept conversation cannot be read; delete it and begin anew");
  };
  json::error_code ec;
  const json::value parsed = base::parse_json(text, ec);
  const json::object* object = ec ? nullptr : parsed.if_object();
  const json::value* metadata = object == nullptr ? nullptr : object->if_contains("metadata");
  const json::value* items = object == nullptr ? nullptr : object->if_contains("items");
  if (metadata == nullptr || items == nullptr || !items->is_array()) return corrupt();
  auto noted = wire::decode<wire::UpdateConversationRequest>(json::serialize(json::object{{"metadata", *metadata}}));
  if (!noted) return corrupt();
  Conversation out{.metadata = std::move(noted->metadata)};
  for (const json::value& item : items->get_array()) {
    if (!item.is_object()) return corrupt();
    out.items.push_back({std::string(text_at(item.get_object(), "id")), json::serialize(item)});
  }
  return out;
}

base::Result<std::vector<ListedItem>> new_items(const wire::JsonArray& sent, std::string_view call_id) {
  const json::array items = base::parse_known_json(sent.text).as_array();  // it was read from JSON
  if (items.size() > kNewItemsMax) {
    return refused("items", "length",
                   fmt::format("items has {} entries; a request adds up to {}", items.size(), kNewItemsMax));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_object() || text_at(items[i].get_object(), "type") != "item_reference") continue;
    return refused(fmt::format("items[{}].type", i), "unsupported",
                   fmt::format("items[{}] names an item that is kept elsewhere; send the item itself", i));
  }
  const auto settled = template_messages(TRY(chat_messages({sent.text}, std::nullopt, {}, "items")));
  if (!settled) return refused("items", "type", "items are no input of a response: " + settled.error().message);
  return listed_items(call_id, sent.text);
}

base::Result<> check_ids(const Conversation& conversation, const std::vector<ListedItem>& items,
                         std::string_view field) {
  std::set<std::string_view> ids;
  for (const ListedItem& item : conversation.items) ids.insert(item.id);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string path = fmt::format("{}[{}].id", field, i);
    if (!base::is_valid_identifier(items[i].id)) {
      return refused(path, "pattern", path + " has up to 256 letters, digits, _ and -; leave it out to get one");
    }
    if (!ids.insert(items[i].id).second) {
      return refused(path, "duplicate",
                     path + " is the id of another item of this conversation; it need not be sent again");
    }
  }
  return {};
}

json::array json_of(const std::vector<ListedItem>& items) {
  json::array out;
  for (const ListedItem& item : items) out.push_back(base::parse_known_json(item.json));
  return out;
}

std::string conversation_object(std::string_view id, std::int64_t created_unix_s, const wire::Metadata& metadata) {
  return fmt::format(R"({{"id":"{}","object":"conversation","created_at":{},{}}})", id, created_unix_s,
                     metadata_member(metadata));
}

std::string item_list(const std::vector<ListedItem>& items) {
  const auto id_of = [](const ListedItem& item) {
    std::string out;
    base::append_json_string(out, item.id);
    return out;
  };
  std::string out = R"({"object":"list","data":)";
  append_items(items, out);
  return out + fmt::format(R"(,"first_id":{},"last_id":{},"has_more":false}})",
                           items.empty() ? "null" : id_of(items.front()), items.empty() ? "null" : id_of(items.back()));
}

}  // namespace llorch::orchestratord::http::openai
