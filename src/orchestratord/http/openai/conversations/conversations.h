#pragma once
// /v1/conversations: items that a client asked to have kept from turn to turn, and the responses that are turns of them.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/http/context.h"
#include "orchestratord/http/openai/conversations/conversation.h"
#include "orchestratord/http/openai/request.h"

namespace llorch::orchestratord::http::openai {

// REQUIRES: `context` outlives it and has blobs; every member is called on the thread of kept files.
class Conversations {
 public:
  static constexpr std::string_view kKind = "conversation";

  explicit Conversations(const Context& context) : context_(context) {}

  void create(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void update(const net::Request& request, const net::ExchangePtr& exchange);
  void remove(const net::Request& request, const net::ExchangePtr& exchange);
  void add_items(const net::Request& request, const net::ExchangePtr& exchange);
  void list_items(const net::Request& request, const net::ExchangePtr& exchange);
  void show_item(const net::Request& request, const net::ExchangePtr& exchange);
  void remove_item(const net::Request& request, const net::ExchangePtr& exchange);

  // ---- turns: one at a time ----
  // The request of a response with the items of its conversation before its input. Errors: NOT_FOUND, the caller has no such
  // conversation; CONFLICT, a turn of it runs; INVALID_PARAMS, it is too long; with the field.
  struct Continued {
    std::string body;
    std::int64_t version = 0;
  };
  base::Result<Continued> continued(const net::Request& request, const std::string& id) const;
  // Begins the turn that `response_id` is. `input`: all of it, with the items of the conversation; how many these are is given
  // back. Errors: as of continued(), also where the conversation is not the one that was seen; INVALID_PARAMS, an id of an item.
  base::Result<std::int64_t> begin_turn(const net::http::Principal& caller, const ConversationUse& use,
                                        const std::string& response_id, const std::vector<ListedItem>& input);
  // The same of a turn that an earlier process has begun.
  void resume_turn(const std::string& id, const std::string& response_id) { turns_[id] = response_id; }
  // Puts the items of a turn behind the others, once, however often it is called; of a conversation that was deleted meanwhile
  // nothing is kept. Errors: STORE_UNAVAILABLE, CORRUPT_FILE.
  base::Result<> keep_turn(const std::string& id, const std::string& response_id, std::vector<ListedItem> items);
  void end_turn(const std::string& id) { turns_.erase(id); }
  // Whether it stays, however long nobody used it.
  bool in_use(const store::blobs::Blob& blob) const { return turns_.contains(blob.id); }

 private:
  // What of a blob's facts is no item: read without its content.
  struct State {
    std::int64_t version = 0;      // of the items: grows with each change
    std::string last_response_id;  // whose items were put behind the others last
  };
  static State state_of(const store::blobs::Blob& blob);
  static std::string encode(const State& state);

  base::Result<const store::blobs::Blob*> find(const net::http::Principal& caller, const std::string& id) const;
  // Where its items may be changed. Errors: as of continued().
  base::Result<const store::blobs::Blob*> find_idle(const net::http::Principal& caller, const std::string& id) const;
  base::Result<Conversation> read(const std::string& id) const;
  // As BlobStore::replace() returns.
  base::Result<bool> write(const store::blobs::Blob& blob, const Conversation& conversation, const State& state) const;
  // What each route does behind the refusals; gives the answer's body.
  base::Result<std::string> created(const net::Request& request) const;
  base::Result<std::string> shown(const net::Request& request) const;
  base::Result<std::string> updated(const net::Request& request) const;
  base::Result<std::string> removed(const net::Request& request);
  base::Result<std::string> with_new_items(const net::Request& request) const;
  base::Result<std::string> page_of_items(const net::Request& request) const;
  base::Result<std::string> item(const net::Request& request) const;
  base::Result<std::string> without_item(const net::Request& request) const;
  void answer(base::Result<std::string> body, const net::ExchangePtr& exchange) const;

  const Context& context_;
  std::map<std::string, std::string> turns_;  // that run: response by conversation
};

}  // namespace llorch::orchestratord::http::openai
