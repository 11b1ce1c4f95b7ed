#pragma once
// The OpenAI API under /v1: a decoder in front of the submission of jobs, a renderer behind their streams.
#include "orchestratord/http/context.h"
#include "orchestratord/http/openai/request.h"
#include "orchestratord/http/tasks/submit.h"

namespace llorch::orchestratord::http::openai {

// Thread-safe. REQUIRES: `context` and `submitter` outlive it.
class Gateway {
 public:
  Gateway(const Context& context, tasks::Submitter& submitter) : context_(context), submitter_(submitter) {}

  // These take long for a long prompt. REQUIRES: on the desk's thread.
  void chat_completions(const net::Request& request, const net::ExchangePtr& exchange);
  void completions(const net::Request& request, const net::ExchangePtr& exchange);
  void responses(const net::Request& request, const net::ExchangePtr& exchange);
  void embeddings(const net::Request& request, const net::ExchangePtr& exchange);

  void models(const net::Request& request, const net::ExchangePtr& exchange);
  void model(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  void submit(base::Result<Request> decoded, const net::Request& request, const net::ExchangePtr& exchange);
  // The jobs of several choices are submitted one after the other, and either all of them are admitted or none stays.
  struct Admissions;
  void submit_next(const std::shared_ptr<Admissions>& admissions);
  void answer_choices(const Admissions& admissions) const;
  // Answers with the job of `admission`, as `options` say.
  void answer(const tasks::Admission& admission, const AnswerOptions& options,
              const base::CorrelationId& correlation_id, const net::ExchangePtr& exchange) const;
  void attach(const tasks::Admission& admission, const streams::Stream::Reader& reader) const;
  std::int64_t started_unix_s() const;

  const Context& context_;
  tasks::Submitter& submitter_;
};

}  // namespace llorch::orchestratord::http::openai
