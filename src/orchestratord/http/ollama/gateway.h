#pragma once
// The Ollama API under /api: decoders in front of the submission of jobs, a renderer behind their streams, and what is told of
// models.
#include <memory>
#include <string>

#include "orchestratord/http/catalog_models.h"
#include "orchestratord/http/context.h"
#include "orchestratord/http/ollama/embeddings.h"
#include "orchestratord/http/ollama/request.h"
#include "orchestratord/http/tasks/submit.h"

namespace llorch::orchestratord::http::ollama {

// Thread-safe. REQUIRES: `context`, `submitter` and `models` outlive it.
class Gateway {
 public:
  Gateway(const Context& context, tasks::Submitter& submitter, CatalogModels& models)
      : context_(context), submitter_(submitter), models_(models) {}

  // These take long for a long prompt. REQUIRES: on the request executor's thread.
  void chat(const net::Request& request, const net::ExchangePtr& exchange);
  void generate(const net::Request& request, const net::ExchangePtr& exchange);

  void embed(const net::Request& request, const net::ExchangePtr& exchange);
  void embeddings(const net::Request& request, const net::ExchangePtr& exchange);

  // A model is fetched, as by POST /v2/catalog/models; a client that goes away does not end that. REQUIRES: on the request
  // executor's thread, as the next.
  void pull(const net::Request& request, const net::ExchangePtr& exchange);
  void copy(const net::Request& request, const net::ExchangePtr& exchange);
  void remove(const net::Request& request, const net::ExchangePtr& exchange);

  void tags(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void ps(const net::Request& request, const net::ExchangePtr& exchange);
  void version(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  struct Caller {
    net::http::Principal principal;
    base::CorrelationId correlation_id;
    net::ExchangePtr exchange;
  };
  void serve(base::Result<Request> decoded, Caller caller);
  void answer_empty(const Request& request, const Caller& caller, const std::string& digest);
  void submit(Request request, Caller caller);
  void serve_embeddings(base::Result<EmbeddingsCall> decoded, const Caller& caller);
  void submit_embeddings(EmbeddingsCall call, const Caller& caller);
  struct Following;
  // Tells the client how far its pull is until it is over.
  void follow(const std::shared_ptr<Following>& following);
  base::Result<wire::CatalogModel> pulled(const std::string& model_id) const;
  static void tell(Following& following, std::string line);
  std::int64_t started_unix_ms() const;

  const Context& context_;
  tasks::Submitter& submitter_;
  CatalogModels& models_;
};

}  // namespace llorch::orchestratord::http::ollama
