#pragma once
// The items of kept responses, and what names them: items `item_reference` of a request. Pure.
//
// An item that a client sent without an id gets one of its response and its place, as the items of the output have, so that an
// id alone says which response holds its item.
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::orchestratord::http::openai {

// `input`: as of kept_text.h. Each gets an id, a type and a status, and a content that is a text becomes a list of one part.
struct ListedItem {
  std::string id;
  std::string json;
};
std::vector<ListedItem> listed_items(std::string_view response_id, std::string_view input);

inline constexpr std::size_t kReferredResponsesMax = 128;  // of one request: each is read

// Where the input of a request has references: by the response that holds what they name.
struct ItemReference {
  std::size_t index = 0;  // of the input
  std::string id;
};
using ItemReferences = std::map<std::string, std::vector<ItemReference>, std::less<>>;

// A request whose input has references. Absent: it has none, or is no request. Errors: INVALID_PARAMS, NOT_FOUND (an id that is no
// item's of any response), each with the field.
//
// No model is told the thoughts of an earlier turn, so those that are not kept lack nothing: what names them becomes an item of thoughts that
// is empty.
class ReferringRequest {
 public:
  static base::Result<std::optional<ReferringRequest>> read(std::string_view body);

  const ItemReferences& references() const { return references_; }
  // Puts items of the kept response, whose content `kept` is (kept_text.h), where `references` name them. Errors: NOT_FOUND,
  // and INVALID_PARAMS where the input gets longer than `bytes_max`; with the field.
  base::Result<> insert(std::string_view response_id, std::string_view kept,
                        const std::vector<ItemReference>& references, std::size_t bytes_max);
  // For those that name nothing. Errors: NOT_FOUND, with the field: one names more than thoughts.
  base::Result<> leave_out(const std::vector<ItemReference>& references);
  std::string body() const;

 private:
  explicit ReferringRequest(boost::json::object body) : body_(std::move(body)) {}

  boost::json::object body_;
  ItemReferences references_;
  std::size_t inserted_bytes_ = 0;
};

// NOT_FOUND, whatever there is under this id and whose it is.
base::Error no_such_item(const ItemReference& reference);

}  // namespace llorch::orchestratord::http::openai
