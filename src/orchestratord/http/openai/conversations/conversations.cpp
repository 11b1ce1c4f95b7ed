#include "orchestratord/http/openai/conversations/conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <iterator>
#include <utility>

#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/deferred/list_page.h"
#include "orchestratord/http/deferred/owned_blobs.h"
#include "orchestratord/http/openai/deferred/kept_text.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "orchestratord/http/tenancy.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using base::Error;
using base::ErrorCode;
using store::blobs::Blob;

constexpr std::size_t kWholeBytesMax = 1ULL << 30;
constexpr std::string_view kConversationField = "conversation";

template <class T>
base::Result<T> read_body(const net::Request& request) {
  TRY(chat::check_utf8(request.body));
  return wire::decode<T>(request.body.empty() ? "{}" : request.body, wire::UnknownKeys::kRefuse);
}

std::string shown_as(const Blob& blob, const Conversation& conversation) {
  return conversation_object(blob.id, blob.facts.created_unix_ms / 1000, conversation.metadata);
}

base::Result<std::vector<ListedItem>::const_iterator> find_item(const Conversation& conversation,
                                                                const std::string& id) {
  const auto it = std::ranges::find(conversation.items, id, &ListedItem::id);
  if (it != conversation.items.end()) return it;
  return base::fail(ErrorCode::kNotFound, "no item of this conversation has this id: it never was, or was deleted");
}

Error of_field(Error error) { return std::move(error).with("field", std::string(kConversationField)); }

// As long as what a client could send itself.
base::Result<> check_bytes(std::size_t bytes, std::int64_t bytes_max) {
  if (std::cmp_less_equal(bytes, bytes_max)) return {};
  return chat::refused(
      kConversationField, "length",
      fmt::format("with these items the conversation has {} bytes; as a request, it has up to {}: delete "
                  "items, or begin a new one",
                  bytes, bytes_max));
}

}  // namespace

Conversations::State Conversations::state_of(const Blob& blob) {
  const json::object facts = tasks::object_of(blob.facts.body);
  return {tasks::number_of(facts, "version"), tasks::text_of(facts, "last_response_id")};
}

std::string Conversations::encode(const State& state) {
  return json::serialize(json::object{{"version", state.version}, {"last_response_id", state.last_response_id}});
}

base::Result<const Blob*> Conversations::find(const net::http::Principal& caller, const std::string& id) const {
  if (const Blob* blob = deferred::find_owned(context_, kKind, id, caller)) return blob;
  return base::fail(ErrorCode::kNotFound,
                    "no conversation has this id: it never was, was deleted, or nobody used it for "
                    "orchestratord.files.retention_ms");
}

base::Result<const Blob*> Conversations::find_idle(const net::http::Principal& caller, const std::string& id) const {
  const Blob* blob = TRY(find(caller, id));
  if (!turns_.contains(id)) return blob;
  return base::fail(ErrorCode::kConflict,
                    "a response of this conversation has not ended; wait until it has, or delete that response");
}

base::Result<Conversation> Conversations::read(const std::string& id) const {
  return conversation_of(TRY(context_.blobs->read(id, 0, kWholeBytesMax)));
}

base::Result<bool> Conversations::write(const Blob& blob, const Conversation& conversation, const State& state) const {
  store::blobs::Facts facts = blob.facts;
  facts.expires_unix_ms = context_.clock->now().unix_ms + context_.config->orchestratord.files.retention_ms;
  facts.body = encode(state);
  return context_.blobs->replace(blob.id, std::move(facts), text_of_conversation(conversation));
}

void Conversations::answer(base::Result<std::string> body, const net::ExchangePtr& exchange) const {
  if (!body) return refuse(context_, exchange, std::move(body).error());
  exchange->respond(net::http::json_response(200, *std::move(body)));
}

base::Result<std::string> Conversations::created(const net::Request& request) const {
  auto wanted = TRY(read_body<wire::CreateConversationRequest>(request));
  const std::string id = "conv_" + base::uuid_v4(*context_.entropy);
  Conversation conversation;
  if (wanted.metadata) conversation.metadata = *std::move(wanted.metadata);
  if (wanted.items) {
    auto items = TRY(new_items(*wanted.items, id));
    TRY(check_ids(conversation, items, "items"));
    conversation.items = std::move(items);
  }
  const std::int64_t now_ms = context_.clock->now().unix_ms;
  TRY(context_.blobs->create(id,
                             {.kind = std::string(kKind),
                              .tenant_id = request.peer.principal.account,
                              .created_unix_ms = now_ms,
                              .expires_unix_ms = now_ms + context_.config->orchestratord.files.retention_ms,
                              .body = encode({})},
                             text_of_conversation(conversation)));
  return shown_as(*context_.blobs->find(id), conversation);
}

base::Result<std::string> Conversations::shown(const net::Request& request) const {
  const Blob* blob = TRY(find(request.peer.principal, request.path_param("id")));
  return shown_as(*blob, TRY(read(blob->id)));
}

base::Result<std::string> Conversations::updated(const net::Request& request) const {
  const Blob* blob = TRY(find(request.peer.principal, request.path_param("id")));
  auto wanted = TRY(read_body<wire::UpdateConversationRequest>(request));
  Conversation conversation = TRY(read(blob->id));
  conversation.metadata = std::move(wanted.metadata);
  TRY(write(*blob, conversation, state_of(*blob)));
  return shown_as(*blob, conversation);
}

base::Result<std::string> Conversations::removed(const net::Request& request) {
  const std::string id = TRY(find(request.peer.principal, request.path_param("id")))->id;
  TRY(context_.blobs->erase(id));
  return json::serialize(json::object{{"id", id}, {"object", "conversation.deleted"}, {"deleted", true}});
}

base::Result<std::string> Conversations::with_new_items(const net::Request& request) const {
  const Blob* blob = TRY(find_idle(request.peer.principal, request.path_param("id")));
  const auto wanted = TRY(read_body<wire::CreateItemsRequest>(request));
  const auto items = TRY(new_items(wanted.items, "conv_" + base::uuid_v4(*context_.entropy)));
  Conversation conversation = TRY(read(blob->id));
  TRY(check_ids(conversation, items, "items"));
  TRY(check_bytes(blob->content_bytes + request.body.size(), context_.config->orchestratord.limits.request_bytes_max));
  TRY(context_.blobs->check_room(blob->facts.tenant_id, request.body.size()));
  conversation.items.insert(conversation.items.end(), items.begin(), items.end());
  State state = state_of(*blob);
  ++state.version;
  TRY(write(*blob, conversation, state));
  return item_list(items);
}

base::Result<std::string> Conversations::page_of_items(const net::Request& request) const {
  const Blob* blob = TRY(find(request.peer.principal, request.path_param("id")));
  const Conversation conversation = TRY(read(blob->id));
  std::vector<std::string> ids;
  for (const ListedItem& item : conversation.items) ids.push_back(item.id);
  return deferred::list_page(request, {}, ids, [&](std::size_t index) { return conversation.items[index].json; });
}

base::Result<std::string> Conversations::item(const net::Request& request) const {
  const Blob* blob = TRY(find(request.peer.principal, request.path_param("id")));
  const Conversation conversation = TRY(read(blob->id));
  return TRY(find_item(conversation, request.path_param("item_id")))->json;
}

base::Result<std::string> Conversations::without_item(const net::Request& request) const {
  const Blob* blob = TRY(find_idle(request.peer.principal, request.path_param("id")));
  Conversation conversation = TRY(read(blob->id));
  conversation.items.erase(TRY(find_item(conversation, request.path_param("item_id"))));
  State state = state_of(*blob);
  ++state.version;
  if (!TRY(write(*blob, conversation, state))) {
    return base::fail(ErrorCode::kStoreUnavailable,
                      "the item is not in the conversation any more, but the disk did not overwrite its key yet; that "
                      "is tried again");
  }
  return shown_as(*blob, conversation);
}

void Conversations::create(const net::Request& request, const net::ExchangePtr& exchange) {
  answer(created(request), exchange);
}
void Conversations::show(const net::Request& request, const net::ExchangePtr& exchange) {
  answer(shown(request), exchange);
}
void Conversations::update(const net::Request& request, const net::ExchangePtr& exchange) {
  answer(updated(request), exchange);
}
void Conversations::remove(const net::Request& request, const net::ExchangePtr& exchange) {
  answer(removed(request), exchange);
}
void Conversations::add_items(const net::Request& request, const net::ExchangePtr& exchange) {
  answer(with_new_items(request), exchange);
}
void Conversations::list_items(const net::Request& request, const net::ExchangePtr& exchange) {
  answer(page_of_items(request), exchange);
}
void Conversations::show_item(const net::Request& request, const net::ExchangePtr& exchange) {
  answer(item(request), exchange);
}
void Conversations::remove_item(const net::Request& request, const net::ExchangePtr& exchange) {
  answer(without_item(request), exchange);
}

base::Result<Conversations::Continued> Conversations::continued(const net::Request& request,
                                                                const std::string& id) const {
  const auto blob = find_idle(request.peer.principal, id);
  if (!blob) return base::fail(of_field(blob.error()));
  TRY(check_bytes((*blob)->content_bytes + request.body.size(),
                  context_.config->orchestratord.limits.request_bytes_max));
  const Conversation conversation = TRY(read(id));
  return Continued{with_items_before(json_of(conversation.items), request.body), state_of(**blob).version};
}

base::Result<std::int64_t> Conversations::begin_turn(const net::http::Principal& caller, const ConversationUse& use,
                                                     const std::string& response_id,
                                                     const std::vector<ListedItem>& input) {
  const auto blob = find_idle(caller, use.id);
  if (!blob) return base::fail(of_field(blob.error()));
  if (state_of(**blob).version != use.version) {
    return base::fail(
        of_field({ErrorCode::kConflict, "this conversation was changed at the same time; try again", {}}));
  }
  const Conversation conversation = TRY(read(use.id));
  const auto count = std::ssize(conversation.items);
  TRY(check_ids(conversation, {input.begin() + count, input.end()}, "input"));
  turns_[use.id] = response_id;
  return count;
}

base::Result<> Conversations::keep_turn(const std::string& id, const std::string& response_id,
                                        std::vector<ListedItem> items) {
  const Blob* blob = context_.blobs->find(id);
  if (blob == nullptr) return {};
  State state = state_of(*blob);
  if (state.last_response_id == response_id) return {};
  Conversation conversation = TRY(read(id));
  std::ranges::move(items, std::back_inserter(conversation.items));
  ++state.version;
  state.last_response_id = response_id;
  TRY(write(*blob, conversation, state));
  return {};
}

}  // namespace llorch::orchestratord::http::openai
