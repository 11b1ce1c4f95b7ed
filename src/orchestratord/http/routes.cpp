#include "orchestratord/http/routes.h"

#include <algorithm>

#include "orchestratord/http/anthropic/errors.h"
#include "orchestratord/http/console/console.h"
#include "orchestratord/http/llamacpp/errors.h"
#include "orchestratord/http/ollama/errors.h"
#include "orchestratord/http/openai/errors.h"
#include "orchestratord/http/v1/errors.h"

namespace llorch::orchestratord::http {
namespace {

using net::Scope;

constexpr std::int64_t kRetryAfterMs = 1000;
constexpr std::int64_t kExpireMs = 1000;  // between two looks at what is kept for clients

template <class Part>
net::Handler handler(Part& part, void (Part::*method)(const net::Request&, const net::ExchangePtr&)) {
  return [&part, method](const net::Request& request, const net::ExchangePtr& exchange) {
    (part.*method)(request, exchange);
  };
}

// `method` on the thread of `executor`, which may be null while nobody calls.
template <class Part>
net::Handler on(net::Executor* executor, Part& part,
                void (Part::*method)(const net::Request&, const net::ExchangePtr&)) {
  return [executor, &part, method](net::Request request, net::ExchangePtr exchange) {
    executor->post([&part, method, request = std::move(request), exchange = std::move(exchange)] {
      (part.*method)(request, exchange);
    });
  };
}

// `then` reads the call from the path, which a client may spell with percent signs.
net::Handler as_call(const char* path, net::Handler then) {
  return [path, then = std::move(then)](net::Request request, net::ExchangePtr exchange) {
    request.path = path;
    then(std::move(request), std::move(exchange));
  };
}

}  // namespace

std::int64_t started_unix_s(const Context& context) {
  const base::Time now = context.clock->now();
  return (now.unix_ms - (now.mono_ms - context.started_mono_ms)) / 1000;
}

std::map<std::string, std::string> names_by_reference(const Context& context) {
  std::map<std::string, std::string> out;
  for (const wire::CatalogModel& model : context.names->list()) out.emplace(model.model_ref, model.model_id);
  return out;
}

bool serves(const wire::WorkerInfo& worker) {
  return worker.status == wire::WorkerStatus::kReady || worker.status == wire::WorkerStatus::kBusy;
}

std::vector<std::string> model_names(const Context& context) {
  std::vector<std::string> names;
  for (const wire::CatalogModel& model : context.names->list()) {
    if (!model.model_ref.empty()) names.push_back(model.model_id);
  }
  return names;
}

base::Result<std::string> model_name(const Context& context, std::string_view spelled) {
  std::string name = context.names->known(std::string(spelled));
  if (context.names->has(name)) return name;
  return base::fail(base::ErrorCode::kModelNotFound, "no model has this name; GET /v1/models lists those that are");
}

void refuse(const Context& context, const net::ExchangePtr& exchange, base::Error error) {
  const base::ErrorInfo& row = base::info(error.code);
  context.metrics->error(row.name);
  bool says_when = false;
  for (const auto& [key, value] : error.details) says_when = says_when || key == "retry_after_ms";
  if (row.http_status == 503 && !says_when) error = std::move(error).with("retry_after_ms", kRetryAfterMs);
  exchange->respond_error(error);
}

template <class Part>
net::Handler Api::on_request_executor(Part& part, void (Part::*method)(const net::Request&, const net::ExchangePtr&)) {
  return on(context_.request_executor, part, method);
}

template <class Part>
net::Handler Api::on_files(Part& part, void (Part::*method)(const net::Request&, const net::ExchangePtr&)) {
  return on(context_.files, part, method);
}

net::HeadCheck Api::may_submit() {
  return [this](const net::http::Principal& caller) { return submitter_.check(caller); };
}

net::HeadCheck Api::may_submit_again() {
  return [this](const net::http::Principal& caller) { return submitter_.check_arrival(caller); };
}

net::Handler Api::counted(net::Handler then, Arrival what) {
  return [this, what, then = std::move(then)](net::Request request, net::ExchangePtr exchange) {
    if (!context_.live_config->limits_rates()) return then(std::move(request), std::move(exchange));
    core::CountArrival arrival{.request = {}, .tenant_id = request.peer.principal.account};
    context_.core->ask<core::AnswerArrival>(std::move(arrival),
                                            [this, what, then, request = std::move(request),
                                             exchange = std::move(exchange)](core::AnswerArrival answer) mutable {
                                              if (!answer.refusal) return then(std::move(request), std::move(exchange));
                                              if (what == Arrival::kSubmission)
                                                submitter_.count_refusal(*answer.refusal);
                                              refuse(context_, exchange, *std::move(answer.refusal));
                                            });
  };
}

template <class Part>
net::Handler Api::on_request_executor_counted(Part& part,
                                              void (Part::*method)(const net::Request&, const net::ExchangePtr&)) {
  return counted(on_request_executor(part, method));
}

template <class Part>
net::Handler Api::on_request_executor_submitted(Part& part,
                                                void (Part::*method)(const net::Request&, const net::ExchangePtr&)) {
  return counted(on_request_executor(part, method), Arrival::kSubmission);
}

template <class Part>
net::Handler Api::on_files_counted(Part& part, void (Part::*method)(const net::Request&, const net::ExchangePtr&)) {
  return counted(on_files(part, method));
}

net::HeadCheck Api::may_ask() {
  return [this](const net::http::Principal& caller) -> base::Result<> {
    auto error = context_.board->arrival_refusal(caller.account, context_.clock->now());
    if (!error) return {};
    context_.metrics->error(error->name());
    return base::fail(*std::move(error));
  };
}

net::Handler Api::facts_counted(void (CatalogModels::*method)(const net::Request&, const net::ExchangePtr&)) {
  return [plain = handler(catalog_models_, method), asking = on_request_executor_counted(catalog_models_, method)](
             net::Request request, net::ExchangePtr exchange) {
    const net::Handler& then = CatalogModels::asks_for_facts(request) ? asking : plain;
    then(std::move(request), std::move(exchange));
  };
}

std::vector<Api::Route> Api::routes() {
  return {
      {"POST", "/v2/tasks", Scope::kTenant, on_request_executor_submitted(tasks_, &tasks::Tasks::submit),
       may_submit_again()},
      {"POST", "/v2/tasks/preview", Scope::kTenant, on_request_executor_counted(tasks_, &tasks::Tasks::preview),
       may_ask()},
      {"GET", "/v2/tasks", Scope::kTenant, counted(handler(tasks_, &tasks::Tasks::list)), may_ask()},
      {"GET", "/v2/tasks/{id}", Scope::kTenant, handler(tasks_, &tasks::Tasks::show)},
      {"DELETE", "/v2/tasks/{id}", Scope::kTenant, handler(tasks_, &tasks::Tasks::cancel)},
      {"POST", "/v2/tasks/{id}/cancel", Scope::kTenant, handler(tasks_, &tasks::Tasks::cancel)},
      {"GET", "/v2/tasks/{id}/result", Scope::kTenant, counted(handler(tasks_, &tasks::Tasks::result)), may_ask()},
      {"DELETE", "/v2/tasks/{id}/result", Scope::kTenant, handler(tasks_, &tasks::Tasks::remove_result)},
      {"GET", "/v2/tasks/{id}/events", Scope::kTenant, handler(tasks_, &tasks::Tasks::events)},
      {"POST", "/v2/sessions", Scope::kTenant, on_request_executor_counted(sessions_, &Sessions::create), may_ask()},
      {"GET", "/v2/sessions", Scope::kTenant, counted(handler(sessions_, &Sessions::list)), may_ask()},
      {"GET", "/v2/sessions/{id}", Scope::kTenant, handler(sessions_, &Sessions::show)},
      {"DELETE", "/v2/sessions/{id}", Scope::kTenant, handler(sessions_, &Sessions::remove)},
      {"POST", "/v2/artifacts", Scope::kTenant, on_files_counted(artifacts_, &Artifacts::create), may_ask()},
      {"GET", "/v2/artifacts/{id}", Scope::kTenant, on_files_counted(artifacts_, &Artifacts::show), may_ask()},
      {"DELETE", "/v2/artifacts/{id}", Scope::kTenant, on_files(artifacts_, &Artifacts::remove)},
      {"GET", "/v2/pools", Scope::kReader, handler(pools_, &Pools::list)},
      {"POST", "/v2/cache/clear", Scope::kOperator, handler(pools_, &Pools::clear_caches)},
      {"POST", "/v2/pools/register", Scope::kNode, handler(pools_, &Pools::register_pool)},
      {"POST", "/v2/pools/{id}/heartbeat", Scope::kNode, handler(pools_, &Pools::heartbeat)},
      {"DELETE", "/v2/pools/{id}", Scope::kNode, handler(pools_, &Pools::leave)},
      {"POST", "/v2/pools/{id}/drain", Scope::kOperator, handler(pool_control_, &PoolControl::drain)},
      {"DELETE", "/v2/pools/{id}/drain", Scope::kOperator, handler(pool_control_, &PoolControl::undrain)},
      {"POST", "/v2/pools/{id}/reload", Scope::kOperator, on_request_executor(pool_control_, &PoolControl::reload)},
      {"POST", "/v2/pools/{id}/purge", Scope::kOperator, on_request_executor(pool_control_, &PoolControl::purge)},
      {"POST", "/v2/pools/{id}/credential", Scope::kOperator, handler(pools_, &Pools::pair)},
      {"DELETE", "/v2/pools/{id}/credential", Scope::kOperator, handler(pools_, &Pools::unpair)},
      {"GET", "/v2/pools/{id}/health", Scope::kReader, handler(pool_control_, &PoolControl::health)},
      {"POST", "/v2/store/backup", Scope::kOperator, handler(backups_, &Backups::make)},
      {"POST", "/v2/internal/workers/ready", Scope::kNode, handler(pools_, &Pools::worker_ready)},
      {"POST", "/v2/internal/workers/failed", Scope::kNode, handler(pools_, &Pools::worker_failed)},
      {"GET", "/v2/catalog/models", Scope::kPublic, facts_counted(&CatalogModels::list)},
      {"POST", "/v2/catalog/models", Scope::kOperator, on_request_executor(catalog_models_, &CatalogModels::create)},
      {"GET", "/v2/catalog/availability", Scope::kPublic,
       on_request_executor_counted(catalog_models_, &CatalogModels::availability), may_ask()},
      {"GET", "/v2/catalog/known", Scope::kPublic, handler(catalog_models_, &CatalogModels::known)},
      {"POST", "/v2/catalog/gc", Scope::kOperator, on_request_executor(catalog_models_, &CatalogModels::collect)},
      {"GET", "/v2/catalog/models/{id}", Scope::kPublic, facts_counted(&CatalogModels::show)},
      {"DELETE", "/v2/catalog/models/{id}", Scope::kOperator,
       on_request_executor(catalog_models_, &CatalogModels::remove)},
      {"POST", "/v2/catalog/models/{id}/state", Scope::kOperator,
       on_request_executor(catalog_models_, &CatalogModels::set_state)},
      {"POST", "/v2/catalog/models/{id}/verify", Scope::kOperator,
       on_request_executor(catalog_models_, &CatalogModels::verify)},
      {"GET", "/v2/meta/capabilities", Scope::kPublic, handler(meta_, &Meta::capabilities)},
      {"GET", "/v2/meta/settings", Scope::kOperator, handler(meta_, &Meta::settings)},
      {"GET", "/v2/meta/version", Scope::kPublic, handler(meta_, &Meta::version)},
      {"GET", "/v2/debug/snapshot", Scope::kOperator, handler(meta_, &Meta::placement_snapshot)},
      {"GET", "/v2/health", Scope::kPublic, handler(meta_, &Meta::health)},
      {"GET", "/health", Scope::kPublic, handler(meta_, &Meta::health)},
      {"GET", "/metrics", Scope::kReader, handler(meta_, &Meta::metrics)},
  };
}

Api::Gateway Api::anthropic() {
  using anthropic::Gateway;
  using anthropic::MessageBatches;
  MessageBatches& batches = anthropic_.batches();
  return {
      .paths = {{.prefix = "/v1/messages",
                 .write_error = anthropic::error_response,
                 .always_sends_token = true,
                 .takes_api_key = true}},
      .routes = {
          {"POST", "/v1/messages", Scope::kTenant, on_request_executor_submitted(anthropic_, &Gateway::messages),
           may_submit()},
          {"POST", "/v1/messages/count_tokens", Scope::kTenant,
           on_request_executor_counted(anthropic_, &Gateway::count_tokens), may_ask()},
          {"POST", "/v1/messages/batches", Scope::kTenant, on_files_counted(batches, &MessageBatches::create),
           may_submit()},
          {"GET", "/v1/messages/batches", Scope::kTenant, on_files_counted(batches, &MessageBatches::list), may_ask()},
          {"GET", "/v1/messages/batches/{id}", Scope::kTenant, on_files_counted(batches, &MessageBatches::show),
           may_ask()},
          {"GET", "/v1/messages/batches/{id}/results", Scope::kTenant,
           on_files_counted(batches, &MessageBatches::results), may_ask()},
          {"POST", "/v1/messages/batches/{id}/cancel", Scope::kTenant,
           on_files_counted(batches, &MessageBatches::cancel), may_ask()},
          {"DELETE", "/v1/messages/batches/{id}", Scope::kTenant, on_files(batches, &MessageBatches::remove)},
      }};
}

// The paths of the first specification that no other API has. What /v2 answers in the same form is served as there.
Api::Gateway Api::router_v1() {
  Api::Gateway out;
  for (const char* prefix :
       {"/v1/tasks", "/v1/sessions/", "/v1/capabilities", "/v1/pools/", "/v1/catalog/", "/v1/artifacts"}) {
    out.paths.push_back({.prefix = prefix, .write_error = v1::error_response});
  }
  out.routes = {
      {"POST", "/v1/tasks", Scope::kTenant, on_request_executor_submitted(v1_, &v1::Gateway::submit),
       may_submit_again()},
      {"POST", "/v1/tasks/preview", Scope::kTenant, on_request_executor_counted(v1_, &v1::Gateway::preview), may_ask()},
      {"GET", "/v1/tasks/{id}/stream", Scope::kTenant, counted(handler(v1_, &v1::Gateway::stream)), may_ask()},
      {"POST", "/v1/tasks/{id}/cancel", Scope::kTenant, handler(v1_, &v1::Gateway::cancel)},
      {"GET", "/v1/sessions/{id}", Scope::kTenant, handler(sessions_, &Sessions::show)},
      {"DELETE", "/v1/sessions/{id}", Scope::kTenant, handler(v1_, &v1::Gateway::remove_session)},
      {"GET", "/v1/capabilities", Scope::kPublic, handler(meta_, &Meta::capabilities)},
      {"GET", "/v1/pools/{id}/health", Scope::kReader, handler(pool_control_, &PoolControl::health)},
      {"POST", "/v1/pools/{id}/drain", Scope::kOperator, handler(pool_control_, &PoolControl::drain)},
      {"POST", "/v1/pools/{id}/reload", Scope::kOperator, on_request_executor(pool_control_, &PoolControl::reload)},
      {"POST", "/v1/pools/{id}/purge", Scope::kOperator, on_request_executor(pool_control_, &PoolControl::purge)},
      {"POST", "/v1/catalog/models", Scope::kOperator, on_request_executor(catalog_models_, &CatalogModels::create)},
      {"GET", "/v1/catalog/models/{id}", Scope::kPublic, facts_counted(&CatalogModels::show)},
      {"DELETE", "/v1/catalog/models/{id}", Scope::kOperator,
       on_request_executor(catalog_models_, &CatalogModels::remove)},
      {"POST", "/v1/catalog/models/{id}/state", Scope::kOperator,
       on_request_executor(catalog_models_, &CatalogModels::set_state)},
      {"POST", "/v1/catalog/models/{id}/verify", Scope::kOperator,
       on_request_executor(catalog_models_, &CatalogModels::verify)},
      {"POST", "/v1/artifacts", Scope::kTenant, on_files_counted(artifacts_, &Artifacts::create), may_ask()},
      {"GET", "/v1/artifacts/{id}", Scope::kTenant, on_files_counted(artifacts_, &Artifacts::show), may_ask()},
  };
  return out;
}

// Browsers ask for a page and get the console; clients of Ollama look there whether it runs.
Api::Gateway Api::root(const config::GatewaysConfig& enabled) {
  return {.paths = {},
          .routes = {
              {"GET", "/", Scope::kOpen,
               [enabled](const net::Request& request, const net::ExchangePtr& exchange) {
                 if (enabled.console && (console::is_asked_for(request.headers) || !enabled.ollama)) {
                   return console::serve(request, exchange);
                 }
                 exchange->respond({200, {{"Content-Type", "text/plain; charset=utf-8"}}, "Ollama is running"});
               }},
          }};
}

Api::Gateway Api::console() {
  return {.paths = {},
          .routes = {
              {"GET", "/console/{file}", Scope::kOpen, console::serve},
              {"GET", "/console/views/{file}", Scope::kOpen, console::serve},
          }};
}

Api::Gateway Api::llamacpp() {
  using llamacpp::Gateway;
  Api::Gateway out;
  for (const char* path :
       {"/tokenize", "/detokenize", "/apply-template", "/props", "/slots", "/completion", "/infill", "/embedding"}) {
    out.paths.push_back({.prefix = path, .write_error = llamacpp::error_response, .always_sends_token = true});
  }
  out.routes = {
      {"POST", "/tokenize", Scope::kTenant, on_request_executor_counted(llamacpp_, &Gateway::tokenize), may_ask()},
      {"POST", "/detokenize", Scope::kTenant, on_request_executor_counted(llamacpp_, &Gateway::detokenize), may_ask()},
      {"POST", "/apply-template", Scope::kTenant, on_request_executor_counted(llamacpp_, &Gateway::apply_template),
       may_ask()},
      {"GET", "/props", Scope::kTenant, on_request_executor_counted(llamacpp_, &Gateway::props), may_ask()},
      {"GET", "/slots", Scope::kTenant, handler(llamacpp_, &Gateway::slots)},
      {"POST", "/completion", Scope::kTenant, on_request_executor_submitted(llamacpp_, &Gateway::completion),
       may_submit()},
      {"POST", "/completions", Scope::kTenant, on_request_executor_submitted(llamacpp_, &Gateway::completion),
       may_submit()},
      {"POST", "/infill", Scope::kTenant, on_request_executor_submitted(llamacpp_, &Gateway::infill), may_submit()},
      {"POST", "/embedding", Scope::kTenant, on_request_executor_submitted(llamacpp_, &Gateway::embedding),
       may_submit()},
      {"POST", "/embeddings", Scope::kTenant, on_request_executor_submitted(llamacpp_, &Gateway::embedding),
       may_submit()},
      {"GET", "/v1/health", Scope::kPublic, handler(meta_, &Meta::health)},
  };
  for (const char* path : {"/rerank", "/reranking", "/v1/rerank", "/v1/reranking"}) {
    out.paths.push_back({.prefix = path, .write_error = llamacpp::error_response, .always_sends_token = true});
    out.routes.push_back(
        {"POST", path, Scope::kTenant, on_request_executor_submitted(llamacpp_, &Gateway::rerank), may_submit()});
  }
  return out;
}

Api::Gateway Api::ollama() {
  using ollama::Gateway;
  return {
      .paths = {{.prefix = "/api/", .write_error = ollama::error_response, .always_sends_token = true}},
      .routes = {
          {"POST", "/api/chat", Scope::kTenant, on_request_executor_submitted(ollama_, &Gateway::chat), may_submit()},
          {"POST", "/api/generate", Scope::kTenant, on_request_executor_submitted(ollama_, &Gateway::generate),
           may_submit()},
          {"POST", "/api/embed", Scope::kTenant, on_request_executor_submitted(ollama_, &Gateway::embed), may_submit()},
          {"POST", "/api/embeddings", Scope::kTenant, on_request_executor_submitted(ollama_, &Gateway::embeddings),
           may_submit()},
          {"POST", "/api/pull", Scope::kOperator, on_request_executor(ollama_, &Gateway::pull)},
          {"POST", "/api/copy", Scope::kOperator, on_request_executor(ollama_, &Gateway::copy)},
          {"DELETE", "/api/delete", Scope::kOperator, on_request_executor(ollama_, &Gateway::remove)},
          {"POST", "/api/show", Scope::kTenant, on_request_executor_counted(ollama_, &Gateway::show), may_ask()},
          {"GET", "/api/tags", Scope::kTenant, handler(ollama_, &Gateway::tags)},
          {"GET", "/api/ps", Scope::kTenant, handler(ollama_, &Gateway::ps)},
          {"GET", "/api/version", Scope::kPublic, handler(ollama_, &Gateway::version)},
      }};
}

Api::Gateway Api::openai() {
  using openai::Gateway;
  Api::Gateway out;
  const auto add_path = [&out](const char* prefix, bool takes_forms = false) {
    out.paths.push_back({.prefix = prefix,
                         .write_error = openai::error_response,
                         .always_sends_token = true,
                         .takes_forms = takes_forms});
  };
  add_path("/v1/files", true);
  add_path("/v1/");
  for (const char* call : {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"}) {
    out.routes.push_back({"POST", call, Scope::kTenant,
                          as_call(call, on_request_executor_submitted(openai_, &Gateway::create)), may_submit()});
  }
  out.routes.push_back({"POST", "/v1/responses/input_tokens", Scope::kTenant,
                        on_request_executor_counted(openai_, &Gateway::count_input_tokens), may_ask()});
  for (Route& route : kept_routes()) out.routes.push_back(std::move(route));
  return out;
}

// Both chat APIs have these routes; a header that only Anthropic's clients send says which one a client speaks.
Api::Gateway Api::models(const config::GatewaysConfig& enabled) {
  const auto of = [this, enabled](
                      void (openai::Gateway::*as_openai)(const net::Request&, const net::ExchangePtr&),
                      void (anthropic::Gateway::*as_anthropic)(const net::Request&, const net::ExchangePtr&)) {
    return [this, enabled, as_openai, as_anthropic](const net::Request& request, const net::ExchangePtr& exchange) {
      const bool names_version = request.headers.get("Anthropic-Version").has_value();
      if (enabled.anthropic && names_version) return (anthropic_.*as_anthropic)(request, exchange);
      if (enabled.openai) return (openai_.*as_openai)(request, exchange);
      refuse(context_, exchange,
             {base::ErrorCode::kNotFound, "these models are served to requests with anthropic-version", {}});
    };
  };
  return {.paths = {{.prefix = "/v1/models",
                     .write_error = enabled.openai ? openai::error_response : anthropic::error_response,
                     .always_sends_token = true,
                     .takes_api_key = enabled.anthropic}},
          .routes = {
              {"GET", "/v1/models", Scope::kTenant, of(&openai::Gateway::models, &anthropic::Gateway::models)},
              {"GET", "/v1/models/{id}", Scope::kTenant, of(&openai::Gateway::model, &anthropic::Gateway::model)},
          }};
}

std::vector<Api::Route> Api::kept_routes() {
  using openai::Batches;
  using openai::Conversations;
  using openai::Files;
  using openai::KeptResponses;
  KeptResponses& responses = openai_.responses();
  Conversations& conversations = openai_.conversations();
  Files& files = openai_.files();
  Batches& batches = openai_.batches();
  return {
      {"GET", "/v1/responses/{id}", Scope::kTenant, on_files_counted(responses, &KeptResponses::show), may_ask()},
      {"GET", "/v1/responses/{id}/input_items", Scope::kTenant,
       on_files_counted(responses, &KeptResponses::input_items), may_ask()},
      {"POST", "/v1/responses/{id}/cancel", Scope::kTenant, on_files_counted(responses, &KeptResponses::cancel),
       may_ask()},
      {"DELETE", "/v1/responses/{id}", Scope::kTenant, on_files(responses, &KeptResponses::remove)},
      {"POST", "/v1/conversations", Scope::kTenant, on_files_counted(conversations, &Conversations::create), may_ask()},
      {"GET", "/v1/conversations/{id}", Scope::kTenant, on_files_counted(conversations, &Conversations::show),
       may_ask()},
      {"POST", "/v1/conversations/{id}", Scope::kTenant, on_files_counted(conversations, &Conversations::update),
       may_ask()},
      {"DELETE", "/v1/conversations/{id}", Scope::kTenant, on_files(conversations, &Conversations::remove)},
      {"POST", "/v1/conversations/{id}/items", Scope::kTenant,
       on_files_counted(conversations, &Conversations::add_items), may_ask()},
      {"GET", "/v1/conversations/{id}/items", Scope::kTenant,
       on_files_counted(conversations, &Conversations::list_items), may_ask()},
      {"GET", "/v1/conversations/{id}/items/{item_id}", Scope::kTenant,
       on_files_counted(conversations, &Conversations::show_item), may_ask()},
      {"DELETE", "/v1/conversations/{id}/items/{item_id}", Scope::kTenant,
       on_files_counted(conversations, &Conversations::remove_item), may_ask()},
      {"POST", "/v1/files", Scope::kTenant, on_files_counted(files, &Files::create), may_ask()},
      {"GET", "/v1/files", Scope::kTenant, on_files_counted(files, &Files::list), may_ask()},
      {"GET", "/v1/files/{id}", Scope::kTenant, on_files_counted(files, &Files::show), may_ask()},
      {"GET", "/v1/files/{id}/content", Scope::kTenant, on_files_counted(files, &Files::content), may_ask()},
      {"DELETE", "/v1/files/{id}", Scope::kTenant, on_files(files, &Files::remove)},
      {"POST", "/v1/batches", Scope::kTenant, on_files_counted(batches, &Batches::create), may_submit()},
      {"GET", "/v1/batches", Scope::kTenant, on_files_counted(batches, &Batches::list), may_ask()},
      {"GET", "/v1/batches/{id}", Scope::kTenant, on_files_counted(batches, &Batches::show), may_ask()},
      {"POST", "/v1/batches/{id}/cancel", Scope::kTenant, on_files_counted(batches, &Batches::cancel), may_ask()},
  };
}

void Api::resume() {
  catalog_models_.resume();
  preloads_.begin();
  if (context_.blobs == nullptr) return;
  context_.files->post([this] {
    kept_results_.resume();
    openai_.responses().resume();
    openai_.batches().remove_orphans();
    anthropic_.batches().remove_orphans();
    batch_runner_.resume();
    expire_kept();
  });
}

void Api::expire_kept() {
  context_.files->post_after(kExpireMs, [this] { expire_kept(); });
  context_.blobs->expire([this](const store::blobs::Blob& blob) {
    return openai_.conversations().in_use(blob) || batch_runner_.reads(blob.id);
  });
}

std::vector<Api::Gateway> Api::gateways(const config::GatewaysConfig& enabled) {
  std::vector<Gateway> out;
  out.push_back(router_v1());
  if (enabled.console || enabled.ollama) out.push_back(root(enabled));
  if (enabled.anthropic) out.push_back(anthropic());
  if (enabled.console) out.push_back(console());
  if (enabled.llamacpp) out.push_back(llamacpp());
  if (enabled.ollama) out.push_back(ollama());
  if (enabled.openai || enabled.anthropic) out.push_back(models(enabled));
  if (enabled.openai) out.push_back(openai());
  return out;
}

}  // namespace llorch::orchestratord::http
