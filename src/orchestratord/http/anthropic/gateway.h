#pragma once
// The Anthropic API under /v1/messages and its view of /v1/models: a decoder in front of the submission of jobs, a renderer behind their streams.
#include "orchestratord/http/anthropic/deferred/message_batches.h"
#include "orchestratord/http/anthropic/request.h"
#include "orchestratord/http/context.h"
#include "orchestratord/http/tasks/submit.h"

namespace llorch::orchestratord::http::anthropic {

// Thread-safe. REQUIRES: `context`, `submitter` and `batch_runner` outlive it.
class Gateway {
 public:
  Gateway(const Context& context, tasks::Submitter& submitter, deferred::BatchRunner& batch_runner)
      : context_(context), submitter_(submitter), batches_(context, batch_runner) {}

  // What is kept for clients, and outlives a process. REQUIRES: the context has blobs.
  MessageBatches& batches() { return batches_; }

  // These two take long for a long prompt. REQUIRES: on the request executor's thread.
  void messages(const net::Request& request, const net::ExchangePtr& exchange);
  void count_tokens(const net::Request& request, const net::ExchangePtr& exchange);

  // Their paths are the OpenAI API's as well, so they write their errors themselves.
  void models(const net::Request& request, const net::ExchangePtr& exchange);
  void model(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  void refuse_here(const net::Request& request, const net::ExchangePtr& exchange, const base::Error& error) const;

  const Context& context_;
  tasks::Submitter& submitter_;
  MessageBatches batches_;
};

}  // namespace llorch::orchestratord::http::anthropic
