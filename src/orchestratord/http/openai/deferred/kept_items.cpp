#include "orchestratord/http/openai/deferred/kept_items.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/id.h"
#include "base/parse_json.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/openai/deferred/kept_text.h"
#include "wire/json_checks.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using base::Error;
using base::ErrorCode;
using chat::text_at;

constexpr std::size_t kUuidBytes = 36;
constexpr std::string_view kReference = "item_reference";
constexpr std::string_view kThoughtPrefix = "rs_";

std::string_view type_of(const json::object& item) {
  const std::string_view type = text_at(item, "type");
  return type.empty() ? "message" : type;
}

std::string_view prefix_of(std::string_view type) {
  if (type == "message") return "msg";
  if (type == "function_call") return "fc";
  if (type == "function_call_output") return "fco";
  if (type == "custom_tool_call") return "ctc";
  if (type == "custom_tool_call_output") return "ctco";
  return type == "reasoning" ? "rs" : "item";
}

// "msg_UUID_in2" of "resp_UUID".
std::string id_of(const json::object& item, std::string_view response_id, std::size_t index) {
  if (const std::string_view own = text_at(item, "id"); !own.empty()) return std::string(own);
  return fmt::format("{}_{}_in{}", prefix_of(type_of(item)), response_id.substr(response_id.find('_') + 1), index);
}

// The other way round; empty: it is of none.
std::string response_of(std::string_view item_id) {
  const std::size_t begin = item_id.find('_');
  if (begin == std::string_view::npos) return "";
  const std::string_view uuid = item_id.substr(begin + 1, kUuidBytes);
  return base::is_uuid(uuid) ? fmt::format("resp_{}", uuid) : "";
}

json::value parts_of(const json::object& item) {
  const json::value* content = item.if_contains("content");
  if (content == nullptr || !content->is_string()) return content == nullptr ? json::value(json::array()) : *content;
  const bool says = text_at(item, "role") == "assistant";
  json::object part{{"type", says ? "output_text" : "input_text"}, {"text", *content}};
  if (says) part["annotations"] = json::array();
  return json::array{std::move(part)};
}

// An item that a client sent is any JSON that decode_response() took.
json::array items_in(std::string_view input) {
  json::error_code ec;
  json::value parsed = base::parse_json(input, ec);
  return !ec && parsed.is_array() ? std::move(parsed.get_array()) : json::array();
}

std::string field_of(const ItemReference& reference) { return fmt::format("input[{}].id", reference.index); }

}  // namespace

std::vector<ListedItem> listed_items(std::string_view response_id, std::string_view input) {
  std::vector<ListedItem> out;
  for (const json::value& value : items_in(input)) {
    const json::object* sent = value.if_object();
    if (sent == nullptr) continue;
    json::object item = *sent;
    item["id"] = id_of(*sent, response_id, out.size());
    item["type"] = json::string(type_of(*sent));
    if (!item.contains("status")) item["status"] = "completed";
    if (type_of(*sent) == "message") item["content"] = parts_of(*sent);
    std::string id(item["id"].get_string());
    out.push_back({std::move(id), json::serialize(item)});
  }
  return out;
}

base::Error no_such_item(const ItemReference& reference) {
  return Error{ErrorCode::kNotFound,
               "no kept response has an item of this id: only responses with background or store are kept, until "
               "orchestratord.files.responses_retention_ms after their end; send the item itself",
               {}}
      .with("field", field_of(reference));
}

base::Result<std::optional<ReferringRequest>> ReferringRequest::read(std::string_view body) {
  if (body.find(kReference) == std::string_view::npos) return std::nullopt;
  json::error_code ec;
  json::value parsed = base::parse_json(body, ec);
  if (ec || !parsed.is_object()) return std::nullopt;
  const json::value* input = parsed.get_object().if_contains("input");
  if (input == nullptr || !input->is_array()) return std::nullopt;
  ReferringRequest out(parsed.get_object());
  bool leaves_out = false;
  for (std::size_t i = 0; i < input->get_array().size(); ++i) {
    const json::object* item = input->get_array()[i].if_object();
    if (item == nullptr || text_at(*item, "type") != kReference) continue;
    ItemReference reference{.index = i, .id = std::string(text_at(*item, "id"))};
    std::string response_id = response_of(reference.id);
    if (response_id.empty()) {
      TRY(out.leave_out({reference}));
      leaves_out = true;
      continue;
    }
    out.references_[std::move(response_id)].push_back(std::move(reference));
  }
  if (out.references_.empty() && !leaves_out) return std::nullopt;
  TRY(wire::check_json(body, parsed));
  if (out.references_.size() > kReferredResponsesMax) {
    return chat::refused("input", "range",
                         fmt::format("input names items of {} responses; up to {} are read for a request, so send the "
                                     "others themselves, or previous_response_id",
                                     out.references_.size(), kReferredResponsesMax));
  }
  return out;
}

base::Result<> ReferringRequest::leave_out(const std::vector<ItemReference>& references) {
  for (const ItemReference& reference : references) {
    if (!reference.id.starts_with(kThoughtPrefix)) return base::fail(no_such_item(reference));
    body_.at("input").as_array().at(reference.index) =
        json::object{{"type", "reasoning"}, {"id", reference.id}, {"summary", json::array()}};
  }
  return {};
}

base::Result<> ReferringRequest::insert(std::string_view response_id, std::string_view kept,
                                        const std::vector<ItemReference>& references, std::size_t bytes_max) {
  std::map<std::string, json::value, std::less<>> items;
  std::size_t index = 0;
  for (json::value& item : items_in(input_kept(kept))) {
    json::object* const object = item.if_object();
    if (object == nullptr) continue;
    std::string id = id_of(*object, response_id, index++);
    (*object)["id"] = id;  // whoever keeps it tells where it is of
    items.try_emplace(std::move(id), std::move(item));
  }
  for (json::value& item : TRY(output_kept(kept))) {
    std::string id(text_at(item.as_object(), "id"));
    items.insert_or_assign(std::move(id), std::move(item));
  }
  json::array& input = body_.at("input").as_array();
  for (const ItemReference& reference : references) {
    const auto it = items.find(reference.id);
    if (it == items.end()) {
      TRY(leave_out({reference}));
      continue;
    }
    inserted_bytes_ += json::serialize(it->second).size();
    if (inserted_bytes_ > bytes_max) {
      return chat::refused("input", "length",
                           fmt::format("the items that input names have more than {} bytes", bytes_max));
    }
    input.at(reference.index) = it->second;
  }
  return {};
}

std::string ReferringRequest::body() const { return json::serialize(body_); }

}  // namespace llorch::orchestratord::http::openai
