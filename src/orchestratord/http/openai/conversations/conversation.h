#pragma once
// A conversation: what its client notes of it, and its items. Pure.
#include <boost/json/array.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "orchestratord/http/openai/deferred/kept_items.h"
#include "wire/openai.h"

namespace llorch::orchestratord::http::openai {

inline constexpr std::size_t kNewItemsMax = 20;  // of one request

struct Conversation {
  wire::Metadata metadata{};
  std::vector<ListedItem> items{};  // oldest first; each has an id of its own
};

// As text, and back. Errors: CORRUPT_FILE.
std::string text_of_conversation(const Conversation& conversation);
base::Result<Conversation> conversation_of(std::string_view text);

// Items as a client sends them, with ids where they have none: `call_id` ("conv_UUID") is what these are made of, and new for each
// call. Errors: INVALID_PARAMS with details {field, reason}: what POST /v1/responses would refuse, a reference, too many.
base::Result<std::vector<ListedItem>> new_items(const wire::JsonArray& sent, std::string_view call_id);

// Whether each of `items` has an id of its own that fits a path. `field`: what the request calls their list.
// Errors: INVALID_PARAMS with details {field, reason}.
base::Result<> check_ids(const Conversation& conversation, const std::vector<ListedItem>& items,
                         std::string_view field);

boost::json::array json_of(const std::vector<ListedItem>& items);

// {"id","object":"conversation","created_at","metadata"}
std::string conversation_object(std::string_view id, std::int64_t created_unix_s, const wire::Metadata& metadata);

// {"object":"list","data":[...],"first_id","last_id","has_more":false}, in their order.
std::string item_list(const std::vector<ListedItem>& items);

}  // namespace llorch::orchestratord::http::openai
