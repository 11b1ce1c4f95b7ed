#pragma once
// llama.cpp's server: what it tells of prompts, models and workers, /tokenize, /detokenize, /apply-template, /props, /slots, of which no
// job comes; and its /completion, /infill, /embedding and /rerank.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "orchestratord/http/context.h"
#include "orchestratord/http/llamacpp/completion/request.h"
#include "orchestratord/http/tasks/submit.h"

namespace llorch::orchestratord::http::llamacpp {

// Thread-safe. All but slots() take long for a long text. REQUIRES: those on the request executor's thread, and both references outlive it.
class Gateway {
 public:
  Gateway(const Context& context, tasks::Submitter& submitter) : context_(context), submitter_(submitter) {}

  void tokenize(const net::Request& request, const net::ExchangePtr& exchange);
  void detokenize(const net::Request& request, const net::ExchangePtr& exchange);
  void apply_template(const net::Request& request, const net::ExchangePtr& exchange);
  void props(const net::Request& request, const net::ExchangePtr& exchange);
  void completion(const net::Request& request, const net::ExchangePtr& exchange);
  void infill(const net::Request& request, const net::ExchangePtr& exchange);
  void embedding(const net::Request& request, const net::ExchangePtr& exchange);
  void rerank(const net::Request& request, const net::ExchangePtr& exchange);
  void slots(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  using Answer = std::function<base::Result<std::string>(const models::KnownModel&)>;  // a body
  struct Asked {
    std::optional<std::string> model;
    std::optional<wire::Workload> workload;  // of the model of a request that names none; absent: any
  };
  base::Result<std::string> name_of(const std::optional<std::string>& model,
                                    std::optional<wire::Workload> workload) const;
  void answer(const net::Request& request, const Asked& asked, Answer answer, const net::ExchangePtr& exchange) const;
  struct Caller {
    net::http::Principal principal;
    base::CorrelationId correlation_id;
    net::ExchangePtr exchange;
  };
  // False: refused.
  bool name_model(CompletionCall& call, const Caller& caller) const;
  void submit(CompletionCall call, Caller caller);
  // A job that is answered at its end.
  using MakeRenderer = std::function<std::shared_ptr<streams::Renderer>(std::string model, chat::AnswerIdentity)>;
  void submit_whole(wire::SubmitRequest submission, Caller caller, MakeRenderer make_renderer);
  void tell_slots(const core::AnswerQueryPools& pools, const core::Gauges& gauges, const net::Request& request,
                  const net::ExchangePtr& exchange) const;

  const Context& context_;
  tasks::Submitter& submitter_;
};

}  // namespace llorch::orchestratord::http::llamacpp
