#pragma once
// Responses whose client asked to have them kept: POST /v1/responses with `background` or `store`, and what comes back for their
// id later; and those that are turns of a conversation, which are kept until their items are in it. A response is kept, sealed, from before its job is admitted until orchestratord.files.responses_retention_ms after its
// end, and its input with it: another request may go on with its conversation.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orchestratord/http/openai/conversations/conversations.h"
#include "orchestratord/http/openai/deferred/deferred_call.h"
#include "orchestratord/http/openai/deferred/kept_items.h"

namespace llorch::orchestratord::http::openai {

// REQUIRES: `context`, `submitter` and `conversations` outlive it, and the context has blobs. create() may be called on any thread, everything
// else on the thread of kept files.
class KeptResponses {
 public:
  static constexpr std::string_view kKind = "response";

  KeptResponses(const Context& context, tasks::Submitter& submitter, Conversations& conversations)
      : context_(context), submitter_(submitter), conversations_(conversations) {}

  // Answers with its events where the call streams, with the response as it stands where it goes to the background, else with the
  // whole response. REQUIRES: `call` is a response that outlives its client, made of the client's `request`.
  void create(Call call, const net::Request& request, const net::ExchangePtr& exchange);
  // Gives `done`, on the thread of kept files, `request` with the conversation of a kept response before its input; or refuses the
  // exchange: NOT_FOUND (the caller has no such response), CONFLICT (it has not ended, or has failed). May be called on any thread.
  void continue_from(const std::string& previous_id, net::Request request, const net::ExchangePtr& exchange,
                     std::function<void(net::Request)> done);
  // Gives `done`, on the thread of kept files, `request` with the items that its input names; or refuses the exchange: NOT_FOUND
  // (the caller has no response with such an item), CONFLICT (it has not ended), INVALID_PARAMS (they are too long, or what holds
  // them is). May be called on any thread.
  void insert_items(ReferringRequest referring, net::Request request, const net::ExchangePtr& exchange,
                    std::function<void(net::Request)> done);
  // What was asked, with the conversation before it; a page of it.
  void input_items(const net::Request& request, const net::ExchangePtr& exchange);
  // The response as it stands; with the query stream=true its events, those behind starting_after where it is given.
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  // Answers with the response once its job has ended.
  void cancel(const net::Request& request, const net::ExchangePtr& exchange);
  // Whoever waits for it, where it has not ended, is told that it was cancelled.
  void remove(const net::Request& request, const net::ExchangePtr& exchange);

  // Goes on with what an earlier process did not finish.
  void resume();

 private:
  struct Reader {
    net::ExchangePtr exchange;
    std::optional<std::int64_t> after{};
    base::CorrelationId correlation_id{};
    std::string account{};  // of the caller
  };
  // A response that is not whole yet.
  struct Open {
    std::string id;
    DeferredCallPtr call;
    boost::json::object facts;
    std::optional<std::int64_t> asked_unix_ms{};  // of an earlier process
    std::optional<base::JobId> job_id{};          // of the try that runs
    tasks::Admission admission{};                 // of it
    bool cancelled = false;
    bool removed = false;
    std::function<void(base::Result<>)> created{};  // until the first try is admitted or refused
    std::vector<Reader> readers{};                  // that came while no try ran
    std::vector<net::ExchangePtr> waiting{};        // for the whole response
  };
  using OpenPtr = std::shared_ptr<Open>;

  base::Result<> begin(Open& open, std::int64_t now_ms);
  void run(const OpenPtr& open);
  void on_done(const OpenPtr& open, base::Result<net::Response> answer);
  void keep(const OpenPtr& open, const std::string& events);
  base::Result<> settle(const Open& open, const std::string& events);
  base::Result<> keep_turn(const Open& open);
  // The request was kept by another version, and this one cannot read it.
  void end_unreadable(const store::blobs::Blob& blob);
  base::Result<> keep_cancelled(Open& open);
  // Its blob is erased: ends its job and refuses whoever waits for it.
  void drop(const OpenPtr& open);
  void end_job(const Open& open);
  void attach(const Open& open, const Reader& reader) const;
  void answer_unfinished(const OpenPtr& open, const net::ExchangePtr& exchange);
  void serve_kept(const std::string& id, const Reader& reader, bool stream);
  // Errors: NOT_FOUND, the caller has no such response.
  base::Result<> check_owner(const net::http::Principal& caller, const std::string& id) const;
  base::Result<std::string> continued_body(const net::Request& request, const std::string& previous_id) const;
  base::Result<> insert_items(const net::http::Principal& caller, ReferringRequest& referring) const;
  // Before any of them is read: that all are there, have ended, and are not too long together.
  base::Result<> check_referred(const net::http::Principal& caller, const ReferringRequest& referring) const;
  // Nothing, and the exchange is refused: the caller has no such response.
  std::optional<std::string> find(const net::Request& request, const net::ExchangePtr& exchange);
  OpenPtr find_open(const std::string& id) const;

  const Context& context_;
  tasks::Submitter& submitter_;
  Conversations& conversations_;
  std::map<std::string, OpenPtr> open_;
};

}  // namespace llorch::orchestratord::http::openai
