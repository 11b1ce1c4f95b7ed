#pragma once
// The OpenAI API under /v1: a decoder in front of the submission of jobs, a renderer behind their streams.
#include <functional>
#include <memory>
#include <string>

#include "orchestratord/http/context.h"
#include "orchestratord/http/openai/calls.h"
#include "orchestratord/http/openai/conversations/conversations.h"
#include "orchestratord/http/openai/deferred/batches.h"
#include "orchestratord/http/openai/deferred/files.h"
#include "orchestratord/http/openai/deferred/kept_responses.h"
#include "orchestratord/http/tasks/submit.h"

namespace llorch::orchestratord::http::openai {

// Thread-safe. REQUIRES: `context`, `submitter` and `batch_runner` outlive it.
class Gateway {
 public:
  Gateway(const Context& context, tasks::Submitter& submitter, deferred::BatchRunner& batch_runner)
      : context_(context),
        submitter_(submitter),
        conversations_(context),
        responses_(context, submitter, conversations_),
        files_(context, batch_runner),
        batches_(context, batch_runner) {}

  // What is kept for clients, and outlives a process. REQUIRES: the context has blobs.
  Conversations& conversations() { return conversations_; }
  KeptResponses& responses() { return responses_; }
  Files& files() { return files_; }
  Batches& batches() { return batches_; }

  // A call, by its path. Takes long for a long prompt. REQUIRES: on the request executor's thread, and decoder_of() knows the path.
  void create(const net::Request& request, const net::ExchangePtr& exchange);
  // The tokens that a response to this body would read. REQUIRES: on the request executor's thread.
  void count_input_tokens(const net::Request& request, const net::ExchangePtr& exchange);

  void models(const net::Request& request, const net::ExchangePtr& exchange);
  void model(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  // The jobs of several choices are submitted one after the other, and either all of them are admitted or none stays. Those of one prompt
  // are prepared once.
  struct Admissions;
  // Gives `then`, on the request executor's thread, the call of this path that the body is, with what it names of kept responses put in; or
  // refuses the exchange.
  using Then = std::function<void(Call call, const net::Request& whole)>;
  void read(const std::string& path, const net::Request& request, const net::ExchangePtr& exchange, Then then);
  // Of a request whose input names no item that is kept elsewhere.
  void read_whole(const std::string& path, const net::Request& request, const net::ExchangePtr& exchange,
                  const Then& then);
  // `then` with what the request grew into, on the request executor's thread.
  void go_on(net::Request whole, const net::ExchangePtr& exchange, std::function<void(const net::Request&)> then);
  // Of a response that is a turn of a conversation.
  void read_turn(const std::string& conversation_id, const net::Request& request, const net::ExchangePtr& exchange,
                 const Then& then);
  // `call` with the name by which its model is known.
  base::Result<> name_model(Call& call) const;
  void submit(Call call, const net::Request& request, const net::ExchangePtr& exchange);
  void submit_next(const std::shared_ptr<Admissions>& admissions);
  // Errors: INVALID_PARAMS, where one answer would tell too much of the prompts.
  static base::Result<> add(tasks::Admission admission, Admissions& to);
  void withdraw(const Admissions& admissions, base::Error error) const;
  void answer_choices(const Admissions& admissions) const;
  void answer(const tasks::Admission& admission, const Call& call, const base::CorrelationId& correlation_id,
              const net::ExchangePtr& exchange) const;

  const Context& context_;
  tasks::Submitter& submitter_;
  Conversations conversations_;
  KeptResponses responses_;
  Files files_;
  Batches batches_;
};

}  // namespace llorch::orchestratord::http::openai
