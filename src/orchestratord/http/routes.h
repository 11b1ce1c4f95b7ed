#pragma once
// What orchestratord serves: /v2 as contracts/openapi/orchestratord.yaml describes it, and the gateways, each with a file of
// its own there.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "orchestratord/http/anthropic/gateway.h"
#include "orchestratord/http/artifacts.h"
#include "orchestratord/http/backups.h"
#include "orchestratord/http/catalog_models.h"
#include "orchestratord/http/context.h"
#include "orchestratord/http/deferred/batch_runner.h"
#include "orchestratord/http/llamacpp/gateway.h"
#include "orchestratord/http/meta.h"
#include "orchestratord/http/ollama/gateway.h"
#include "orchestratord/http/openai/gateway.h"
#include "orchestratord/http/pool_control.h"
#include "orchestratord/http/pools.h"
#include "orchestratord/http/preloads.h"
#include "orchestratord/http/sessions.h"
#include "orchestratord/http/tasks/submit.h"
#include "orchestratord/http/tasks/tasks.h"
#include "orchestratord/http/v1/gateway.h"
#include "orchestratord/http/watched_models.h"

namespace llorch::orchestratord::http {

class Api {
 public:
  // REQUIRES: `context` outlives the Api, and the Api the server.
  explicit Api(const Context& context)
      : context_(context),
        submitter_(context),
        kept_results_(context, submitter_),
        batch_runner_(context, submitter_),
        tasks_(context, submitter_, kept_results_),
        sessions_(context),
        pools_(
            context,
            [this](const base::PoolId& pool_id, const std::vector<wire::WatchedModel>& models) {
              watched_models_.seen(pool_id, models);
            },
            [this](const base::PoolId& pool_id) { watched_models_.unpaired(pool_id); }),
        preloads_(context, submitter_),
        pool_control_(context, preloads_),
        artifacts_(context),
        backups_(context),
        catalog_models_(context),
        watched_models_(context, catalog_models_),
        meta_(context, preloads_),
        anthropic_(context, submitter_, batch_runner_),
        llamacpp_(context, submitter_),
        ollama_(context, submitter_, catalog_models_),
        openai_(context, submitter_, batch_runner_),
        v1_(context, submitter_, tasks_) {}

  struct Route {
    std::string_view method;
    std::string_view pattern;
    net::Scope scope;
    net::Handler handler;
    net::HeadCheck check{};
  };
  // All of /v2, and what belongs to no version.
  std::vector<Route> routes();
  // An API of another system, or the web console.
  struct Gateway {
    std::vector<net::http::Gateway> paths;  // where errors are written and tokens read as that API does
    std::vector<Route> routes;
  };
  // Those that are switched on and the router of /v1, in the order in which their paths are looked through.
  std::vector<Gateway> gateways(const config::GatewaysConfig& enabled);
  // Goes on with what an earlier process has begun: pulls, responses in the background, batches. Begins preloads.
  void resume();

 private:
  // `method` of `part` on the request executor's thread.
  template <class Part>
  net::Handler on_request_executor(Part& part, void (Part::*method)(const net::Request&, const net::ExchangePtr&));
  // On the thread of kept files.
  template <class Part>
  net::Handler on_files(Part& part, void (Part::*method)(const net::Request&, const net::ExchangePtr&));
  net::HeadCheck may_submit();
  // Of a route whose body may name a task.
  net::HeadCheck may_submit_again();
  // The throttle counts what arrives, whatever becomes of it; what it refuses reaches neither of the two threads.
  enum class Arrival : std::uint8_t { kAsk, kSubmission };
  net::Handler counted(net::Handler then, Arrival what = Arrival::kAsk);
  template <class Part>
  net::Handler on_request_executor_counted(Part& part,
                                           void (Part::*method)(const net::Request&, const net::ExchangePtr&));
  template <class Part>
  net::Handler on_request_executor_submitted(Part& part,
                                             void (Part::*method)(const net::Request&, const net::ExchangePtr&));
  template <class Part>
  net::Handler on_files_counted(Part& part, void (Part::*method)(const net::Request&, const net::ExchangePtr&));
  net::HeadCheck may_ask();
  // Counted, and on the request executor's thread, where it asks for facts of models.
  net::Handler facts_counted(void (CatalogModels::*method)(const net::Request&, const net::ExchangePtr&));
  std::vector<Route> kept_routes();
  // Lets go of what has expired, from now on. REQUIRES: on the thread of kept files.
  void expire_kept();
  Gateway anthropic();
  Gateway router_v1();
  Gateway root(const config::GatewaysConfig& enabled);
  Gateway console();
  Gateway llamacpp();
  Gateway ollama();
  Gateway models(const config::GatewaysConfig& enabled);
  Gateway openai();

  const Context& context_;
  tasks::Submitter submitter_;
  tasks::KeptResults kept_results_;
  deferred::BatchRunner batch_runner_;
  tasks::Tasks tasks_;
  Sessions sessions_;
  Pools pools_;
  Preloads preloads_;
  PoolControl pool_control_;
  Artifacts artifacts_;
  Backups backups_;
  CatalogModels catalog_models_;
  WatchedModels watched_models_;
  Meta meta_;
  anthropic::Gateway anthropic_;
  llamacpp::Gateway llamacpp_;
  ollama::Gateway ollama_;
  openai::Gateway openai_;
  v1::Gateway v1_;
};

}  // namespace llorch::orchestratord::http
