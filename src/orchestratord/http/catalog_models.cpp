#include "orchestratord/http/catalog_models.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/sha256.h"
#include "orchestratord/http/tasks/prompt.h"
#include "orchestratord/models/collect.h"
#include "wire/json.h"
#include "wire/model_name.h"
#include "wire/told_facts.h"

namespace llorch::orchestratord::http {
namespace {

using base::Error;
using base::ErrorCode;
using wire::NamedModel;

constexpr std::int64_t kDescribeWaitMs = 10'000;  // a pool hashes a new file before it can say what it is
// Pools answer at once for files that they have hashed; who lists models does not wait for the others.
constexpr std::int64_t kFactsWaitMs = 2000;
constexpr std::int64_t kVerifyMs = 6LL * 3600 * 1000;  // a terabyte at 50 MB/s
constexpr std::string_view kFile = "file:";

// A client that has this very body is told so in a line.
void respond_tagged(const net::Request& request, std::string body, const net::ExchangePtr& exchange) {
  const std::string tag = '"' + base::to_hex(base::sha256(body)).substr(0, 32) + '"';
  const bool is_known = request.headers.get("If-None-Match") == tag;
  net::Response response = is_known ? net::Response{304, {}, {}} : net::http::json_response(200, std::move(body));
  response.headers.set("ETag", tag);
  exchange->respond(std::move(response));
}

// Pools that have its file or a worker of it, and the slots of those workers.
boost::json::object where(const wire::CatalogModel& model, const std::vector<core::PoolView>& pools) {
  boost::json::array nodes;
  std::int64_t slots = 0;
  for (const core::PoolView& pool : pools) {
    if (pool.status != wire::PoolStatus::kHealthy || model.model_ref.empty()) continue;
    bool is_here = model.pool_id == pool.pool_id.value;
    for (const wire::WorkerInfo& worker : pool.workers) {
      if (!serves(worker) || worker.model_ref != model.model_ref) continue;
      is_here = true;
      slots += worker.slots_total;
    }
    if (is_here) nodes.emplace_back(pool.pool_id.value);
  }
  const std::size_t nodes_count = nodes.size();
  return {{"model_id", model.model_id},
          {"nodes", std::move(nodes)},
          {"total_nodes", nodes_count},
          {"total_capacity", slots}};
}

void tell(wire::CatalogModel& model, base::Result<models::KnownModel> known) {
  if (!known) {
    model.reason = {{std::string(known.error().name()), known.error().message}};
    return;
  }
  if (known->format != nullptr) {  // of a model that takes text its engine knows
    model.chat_format = models::chat_format_facts(*known->format_with_tools, *known->format);
  }
  model.facts = std::move(known->facts);
}

// Answers a list of models once the catalog has told of each.
class ModelListing {
 public:
  ModelListing(wire::CatalogModelList list, std::size_t missing_count, net::ExchangePtr exchange)
      : list_(std::move(list)), exchange_(std::move(exchange)), missing_count_(missing_count) {}

  void told(std::size_t index, base::Result<models::KnownModel> known) {
    const std::lock_guard lock(mutex_);
    tell(list_.models[index], std::move(known));
    if (--missing_count_ == 0) exchange_->respond(net::http::json_response(200, wire::encode(list_)));
  }

 private:
  std::mutex mutex_;
  wire::CatalogModelList list_;
  const net::ExchangePtr exchange_;
  std::size_t missing_count_;
};

models::Catalog::Wanted wanted_facts(const wire::CatalogModel& model, const net::Request& request) {
  return {.model_ref = model.model_ref,
          .wait_ms = kFactsWaitMs,
          .correlation_id = request.correlation_id,
          .checksum = model.checksum.value_or("")};
}

Error no_such_model() {
  return {ErrorCode::kModelNotFound,
          "no model was given this name at run time; `llorch ls` and GET /v2/catalog/models list them",
          {}};
}

// `next`: what to do instead.
Error configured_name(std::string_view next) {
  return {ErrorCode::kConflict, fmt::format("this name is in models.aliases of the configuration: {}", next), {}};
}
constexpr std::string_view kTakeAnotherName = "choose another one, or take it out there and start orchestratord again";
constexpr std::string_view kTakeItOut = "take it out there and start orchestratord again";
constexpr std::string_view kNoState =
    "only a model that was pulled or named at run time is pinned or retired; to refuse its jobs, take it out there and "
    "start orchestratord again";
constexpr std::string_view kNoChecksum =
    "no checksum is kept for it; name its file at run time, which keeps one, and verify that name: llorch pull "
    "file:/PATH --name NAME";

base::Result<> check_name(std::string_view name, std::string_view field) {
  if (wire::is_model_name(name)) return {};
  return base::fail(Error{
      ErrorCode::kInvalidParams,
      "the name of a model is 1 to 128 of A-Z, a-z, 0-9, dot, underscore, dash and colon, and begins "
      "with neither a dot nor the scheme of a reference",
      {}}.with("field", std::string(field)));
}

bool contains(std::string_view text, std::string_view part) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

// What the weights of a model of this size leave room for: cache and working memory take about a fifth.
bool fits(std::int64_t size_bytes, std::int64_t device_bytes) { return size_bytes + size_bytes / 5 <= device_bytes; }

}  // namespace

// ---- what there is ----

wire::CatalogModel CatalogModels::view(const NamedModel& model) const {
  wire::CatalogModel out = models::catalog_model(model);
  add_what_runs(out);
  return out;
}

void CatalogModels::add_what_runs(wire::CatalogModel& model) const {
  model.pull = pulls_.status(model.model_id);
  const std::lock_guard lock(mutex_);
  if (const auto it = verifying_.find(model.model_id); it != verifying_.end()) model.verification = it->second;
}

void CatalogModels::list(const net::Request& request, const net::ExchangePtr& exchange) {
  wire::CatalogModelList out{.models = context_.names->list()};
  for (wire::CatalogModel& model : out.models) {
    if (!context_.names->is_configured(model.model_id)) add_what_runs(model);
  }
  std::map<std::size_t, models::Catalog::Wanted> here;
  for (std::size_t i = 0; i < out.models.size(); ++i) {
    if (!out.models[i].model_ref.empty()) here.emplace(i, wanted_facts(out.models[i], request));
  }
  if (!asks_for_facts(request) || here.empty()) {
    return respond_tagged(request, wire::encode(out), exchange);
  }
  const auto listing = std::make_shared<ModelListing>(std::move(out), here.size(), exchange);
  for (const auto& [index, wanted] : here) {
    context_.catalog->find(
        wanted, [listing, i = index](base::Result<models::KnownModel> known) { listing->told(i, std::move(known)); });
  }
}

void CatalogModels::show_with_facts(wire::CatalogModel model, const net::Request& request,
                                    const net::ExchangePtr& exchange) {
  const models::Catalog::Wanted wanted = wanted_facts(model, request);
  context_.catalog->find(wanted, [exchange, model = std::move(model)](base::Result<models::KnownModel> known) mutable {
    tell(model, std::move(known));
    exchange->respond(net::http::json_response(200, wire::encode(model)));
  });
}

void CatalogModels::respond(int http_status, const std::string& model_id, const net::ExchangePtr& exchange) {
  const auto model = find(model_id);
  if (!model) return refuse(context_, exchange, model.error());
  exchange->respond(net::http::json_response(http_status, wire::encode(*model)));
}

base::Result<wire::CatalogModel> CatalogModels::find(const std::string& model_id) const {
  if (const auto model = context_.names->find(model_id)) return view(*model);
  // Why there is no such model.
  if (auto failed = pulls_.status(model_id)) return wire::CatalogModel{.model_id = model_id, .pull = std::move(failed)};
  return base::fail(no_such_model());
}

void CatalogModels::show(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::string& model_id = request.path_param("id");
  const auto all = context_.names->list();
  const auto configured = std::ranges::find(all, model_id, &wire::CatalogModel::model_id);
  auto model = context_.names->is_configured(model_id) && configured != all.end()
                   ? base::Result<wire::CatalogModel>(*configured)
                   : find(model_id);
  if (!model) return refuse(context_, exchange, model.error());
  if (asks_for_facts(request) && !model->model_ref.empty()) {
    return show_with_facts(*std::move(model), request, exchange);
  }
  exchange->respond(net::http::json_response(200, wire::encode(*model)));
}

void CatalogModels::availability(const net::Request& request, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryPools>(
      core::QueryPools{}, [this, request, exchange](core::AnswerQueryPools answer) {
        context_.request_executor->post([this, request, exchange, pools = std::move(answer.pools)] {
          boost::json::array list;
          for (const wire::CatalogModel& model : context_.names->list()) list.push_back(where(model, pools));
          respond_tagged(request, boost::json::serialize(boost::json::object{{"models", std::move(list)}}), exchange);
        });
      });
}

void CatalogModels::known(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::string wanted(request.query_param("q").value_or(""));
  context_.core->ask<core::AnswerQueryPools>(
      core::QueryPools{}, [this, exchange, wanted](const core::AnswerQueryPools& answer) {
        std::optional<std::int64_t> largest;
        for (const core::PoolView& pool : answer.pools) {
          for (const wire::GpuInfo& gpu : pool.gpus) largest = std::max(largest.value_or(0), gpu.vram_total_bytes);
        }
        wire::KnownModelList out;
        for (wire::KnownModel model : *context_.known_models) {
          if (!contains(model.model_id, wanted) && !contains(model.about, wanted) && !contains(model.source, wanted))
            continue;
          if (largest) model.fits = fits(model.size_bytes, *largest);
          out.models.push_back(std::move(model));
        }
        exchange->respond(net::http::json_response(200, wire::encode(out)));
      });
}

// ---- more ----

base::Result<NamedModel> CatalogModels::wanted_model(wire::CreateCatalogModelRequest request) const {
  NamedModel out{.source = request.model_ref, .wanted_checksum = request.checksum.value_or("")};
  std::string name = models::name_from_source(request.model_ref);
  if (wire::is_model_name(request.model_ref)) {
    const auto known = std::find_if(context_.known_models->begin(), context_.known_models->end(),
                                    [&](const wire::KnownModel& model) { return model.model_id == request.model_ref; });
    if (known == context_.known_models->end()) {
      return base::fail(Error{
          ErrorCode::kModelNotFound,
          "no model is known by this name; `llorch search` and GET /v2/catalog/known list those that "
          "are, and a reference says where others come from: hf:ORG/REPO, https://..., pypi:..., oci:NAME:TAG for "
          "Ollama's",
          {}}.with("field", std::string("model_ref")));
    }
    out.source = known->source;
    if (out.wanted_checksum.empty()) out.wanted_checksum = known->checksum;
    name = known->model_id;
  }
  out.model_id = request.model_id.value_or(name);
  TRY(check_name(out.model_id, "model_id"));
  out.pool_id = request.pool_id.value_or("");
  out.created_unix_ms = context_.clock->now().unix_ms;
  return out;
}

void CatalogModels::create(const net::Request& request, const net::ExchangePtr& exchange) {
  auto decoded = wire::decode<wire::CreateCatalogModelRequest>(request.body, wire::UnknownKeys::kRefuse);
  if (!decoded) return refuse(context_, exchange, std::move(decoded).error());
  create(*std::move(decoded), request.correlation_id, [this, exchange](base::Result<Created> created) {
    if (!created) return refuse(context_, exchange, std::move(created).error());
    respond(created->http_status, created->model_id, exchange);
  });
}

void CatalogModels::create(wire::CreateCatalogModelRequest request, const base::CorrelationId& correlation_id,
                           CreatedDone done) {
  auto model = wanted_model(std::move(request));
  if (!model) return done(base::fail(std::move(model).error()));
  if (context_.names->is_configured(model->model_id)) return done(base::fail(configured_name(kTakeAnotherName)));
  if (const auto there = context_.names->find(model->model_id)) {
    const bool is_same = there->source == model->source && there->wanted_checksum == model->wanted_checksum;
    if (!is_same) {
      return done(base::fail(ErrorCode::kConflict,
                             "another model has this name: remove it first, or give this one another name (model_id)"));
    }
    if (!model->pool_id.empty() && model->pool_id != there->pool_id) {
      return done(base::fail(Error{
          ErrorCode::kConflict,
          "this name is of the model on another pool: give it another name here (model_id, `llorch pull --name`)",
          {}}.with("pool_id", there->pool_id)));
    }
    if (!model->source.starts_with(kFile)) pulls_.begin(model->model_id);
    return done(Created{.model_id = model->model_id});
  }
  if (model->source.starts_with(kFile)) return add_file(*std::move(model), correlation_id, std::move(done));
  if (!model->pool_id.empty()) return add_pulled(*std::move(model), done);
  context_.core->ask<core::AnswerQueryPools>(
      core::QueryPools{},
      [this, done = std::move(done), model = *std::move(model)](const core::AnswerQueryPools& answer) mutable {
        const auto pool = std::find_if(answer.pools.begin(), answer.pools.end(), [](const core::PoolView& view) {
          return view.status == wire::PoolStatus::kHealthy;
        });
        if (pool == answer.pools.end()) {
          return done(base::fail(ErrorCode::kPoolUnready,
                                 "no pool is healthy, so nobody can fetch a model; start pool-managerd"));
        }
        model.pool_id = pool->pool_id.value;
        context_.request_executor->post(
            [this, done = std::move(done), model = std::move(model)] { add_pulled(model, done); });
      });
}

void CatalogModels::copy(const std::string& source, const std::string& model_id,
                         const base::CorrelationId& correlation_id, CreatedDone done) {
  if (auto named = check_name(model_id, "destination"); !named) return done(base::fail(std::move(named).error()));
  if (context_.names->is_configured(model_id)) return done(base::fail(configured_name(kTakeAnotherName)));
  if (!context_.names->has(source)) {
    return done(base::fail(ErrorCode::kModelNotFound, "no model has this name; `llorch ls` lists those that are here"));
  }
  tasks::resolve(context_, source, tasks::Naming::kLook,
                 [this, source, model_id, correlation_id,
                  done = std::move(done)](base::Result<models::ModelNames::Resolved> resolved) {
                   if (!resolved) return done(base::fail(std::move(resolved).error()));
                   copy_resolved(source, *resolved, model_id, correlation_id, done);
                 });
}

void CatalogModels::copy_resolved(const std::string& source, const models::ModelNames::Resolved& resolved,
                                  const std::string& model_id, const base::CorrelationId& correlation_id,
                                  const CreatedDone& done) {
  if (const auto there = context_.names->find(model_id)) {
    if (there->model_ref == resolved.model_ref) return done(Created{.model_id = model_id});
    return done(base::fail(ErrorCode::kConflict, "another model has this name: remove it first"));
  }
  const std::int64_t now_ms = context_.clock->now().unix_ms;
  if (auto model = context_.names->find(source)) {
    model->model_id = model_id;
    model->pinned = model->watched = false;
    model->created_unix_ms = now_ms;
    model->used_unix_ms = 0;
    if (auto kept = context_.names->put(*std::move(model)); !kept) return done(base::fail(std::move(kept).error()));
    return done(Created{.model_id = model_id, .http_status = 201});
  }
  if (!resolved.model_ref.starts_with(kFile)) {
    return done(base::fail(Error{
        ErrorCode::kInvalidParams,
        "a model of another system's engine gets its names in models.aliases",
        {}}.with("field", std::string("source"))));
  }
  add_file({.model_id = model_id, .source = resolved.model_ref, .created_unix_ms = now_ms}, correlation_id, done);
}

void CatalogModels::add_pulled(NamedModel model, const CreatedDone& done) {
  if (!context_.pools->is_paired(base::PoolId(model.pool_id))) {
    return done(base::fail(ErrorCode::kPoolNotFound, "no pool has this id; GET /v2/pools lists them"));
  }
  const std::string model_id = model.model_id;
  // Two requests for one new name: the second finds the first one's.
  const auto there = context_.names->find(model_id);
  if (!there || there->source != model.source || there->wanted_checksum != model.wanted_checksum) {
    if (auto kept = context_.names->put(std::move(model)); !kept) return done(base::fail(std::move(kept).error()));
  }
  pulls_.begin(model_id);
  done(Created{.model_id = model_id});
}

void CatalogModels::add_file(NamedModel model, const base::CorrelationId& correlation_id, CreatedDone done) {
  const std::string source = model.source;
  context_.names->resolve_path(
      source, context_.name_reads,
      [this, model = std::move(model), correlation_id, done = std::move(done)](base::Result<std::string> ref) mutable {
        if (ref) {
          model.model_ref = *std::move(ref);
          return add_found_file(std::move(model), correlation_id, std::move(done));
        }
        context_.request_executor->post([done, error = std::move(ref).error()] { done(base::fail(error)); });
      });
}

void CatalogModels::add_found_file(NamedModel model, const base::CorrelationId& correlation_id, CreatedDone done) {
  const models::Catalog::Wanted wanted{.model_ref = model.model_ref,
                                       .wait_ms = kDescribeWaitMs,
                                       .correlation_id = correlation_id,
                                       .anew = true,
                                       .checksum = model.wanted_checksum};
  context_.catalog->find(
      wanted, [this, done = std::move(done), model = std::move(model)](base::Result<models::KnownModel> found) mutable {
        if (!found && models::is_other_file(found.error())) {
          context_.metrics->verification("checksum");
          found.error().message = "the file has another checksum than was asked for";
        }
        if (!found) return done(base::fail(std::move(found).error()));
        context_.metrics->verification("");
        model.checksum = found->facts.digest;
        model.size_bytes = found->facts.size_bytes;
        context_.request_executor->post([this, done = std::move(done), model = std::move(model)] {
          if (auto kept = context_.names->put(model); !kept) return done(base::fail(std::move(kept).error()));
          done(Created{.model_id = model.model_id, .http_status = 201});
        });
      });
}

void CatalogModels::set_state(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::string model_id = request.path_param("id");
  const auto wanted = wire::decode<wire::CatalogStateRequest>(request.body, wire::UnknownKeys::kRefuse);
  if (!wanted) return refuse(context_, exchange, wanted.error());
  if (context_.names->is_configured(model_id)) return refuse(context_, exchange, configured_name(kNoState));
  if (!context_.names->find(model_id)) return refuse(context_, exchange, no_such_model());
  auto changed = context_.names->change(model_id, [&](NamedModel& model) {
    model.lifecycle_state = wanted->lifecycle_state.value_or(model.lifecycle_state);
    model.pinned = wanted->pinned.value_or(model.pinned);
  });
  if (!changed) return refuse(context_, exchange, std::move(changed).error());
  if (wanted->lifecycle_state == wire::ModelLifecycle::kRetired) {
    if (const auto model = context_.names->find(model_id)) unload(*model);
  }
  respond(200, model_id, exchange);
}

// The workers of a model that nobody may name any more finish what they have and leave.
void CatalogModels::unload(const NamedModel& model) {
  for (const wire::CatalogModel& other : context_.names->list()) {
    const bool is_same = other.model_ref == model.model_ref || other.checksum == model.checksum;
    if (is_same && other.lifecycle_state == wire::ModelLifecycle::kActive) return;
  }
  stop_workers(model.checksum);
}

void CatalogModels::stop_workers(const std::string& digest) {
  context_.core->ask<core::AnswerQueryPools>(core::QueryPools{}, [this, digest](const core::AnswerQueryPools& answer) {
    for (const core::PoolView& pool : answer.pools) {
      const auto is_it = [&](const wire::WorkerInfo& worker) { return worker.model_digest == digest; };
      if (std::ranges::none_of(pool.workers, is_it)) continue;
      context_.core->ask<core::AnswerPoolControl>(
          core::PurgePool{
              .request = {}, .pool_id = pool.pool_id, .models = {digest}, .drain_first = true, .force = false},
          [](const core::AnswerPoolControl&) {});
    }
  });
}

// ---- whether it is still what it was ----

void CatalogModels::verify(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::string& model_id = request.path_param("id");
  if (context_.names->is_configured(model_id)) return refuse(context_, exchange, configured_name(kNoChecksum));
  const auto model = context_.names->find(model_id);
  if (!model) return refuse(context_, exchange, no_such_model());
  if (model->model_ref.empty()) return refuse(context_, exchange, context_.names->resolve(model_id).error());
  bool begins = false;
  {
    const std::lock_guard lock(mutex_);
    begins = verifying_.try_emplace(model_id, wire::ModelVerification{.unix_ms = context_.clock->now().unix_ms}).second;
  }
  if (begins && !model->pool_id.empty()) {
    verify_on(*model, {model->pool_id}, {});
  } else if (begins) {  // a file that was given its name: any pool may have it
    context_.core->ask<core::AnswerQueryPools>(
        core::QueryPools{}, [this, model = *model](const core::AnswerQueryPools& answer) {
          std::vector<std::string> pool_ids;
          for (const core::PoolView& pool : answer.pools) pool_ids.push_back(pool.pool_id.value);
          context_.request_executor->post(
              [this, model, pool_ids = std::move(pool_ids)] { verify_on(model, pool_ids, {}); });
        });
  }
  exchange->respond(net::http::json_response(202, wire::encode(wire::VerifyReply{.model_id = model_id})));
}

// On the request executor's thread: what ends it waits for the disk.
void CatalogModels::verify_on(const NamedModel& model, std::vector<std::string> pool_ids, Error why_not) {
  using wire::VerifyOutcome;
  std::optional<net::ClientRequest> request;
  while (!pool_ids.empty() && !request) {
    request = request_to_pool(context_, pool_ids.front(),
                              "/v2/models/describe?reread=true&ref=" + net::http::percent_encode(model.model_ref));
    pool_ids.erase(pool_ids.begin());
  }
  if (!request) {
    if (why_not.message.empty()) why_not.message = "no pool that may have the files answers now";
    return keep_verification(model.model_id, {.outcome = VerifyOutcome::kNone, .message = std::move(why_not.message)});
  }
  request->timeout_ms = kVerifyMs;
  context_.client->request(std::move(*request), [this, model, pool_ids](base::Result<net::Response> response) {
    context_.request_executor->post([this, model, pool_ids, response = std::move(response)] {
      if (!response) return verify_on(model, pool_ids, response.error());
      if (response->status >= 400) return verify_on(model, pool_ids, net::http::error_of(*response));
      const auto facts = wire::decode_told_facts(response->body);
      if (!facts) return verify_on(model, pool_ids, facts.error());
      const bool is_same = facts->digest == model.checksum;
      keep_verification(model.model_id, {.outcome = is_same ? VerifyOutcome::kPass : VerifyOutcome::kFail,
                                         .found = facts->digest,
                                         .message = is_same ? "" : "the files have another checksum"});
    });
  });
}

void CatalogModels::keep_verification(const std::string& model_id, wire::ModelVerification verification) {
  verification.unix_ms = context_.clock->now().unix_ms;
  if (verification.outcome != wire::VerifyOutcome::kNone) {
    context_.metrics->verification(verification.outcome == wire::VerifyOutcome::kPass ? "" : "checksum");
  }
  const bool is_well = verification.outcome == wire::VerifyOutcome::kPass;
  base::log_event(is_well ? base::LogLevel::kInfo : base::LogLevel::kError, "catalog.model_verified", {},
                  is_well ? "A model's files have the checksum that they had." : verification.message,
                  {{"model", model_id}, {"found", verification.found}});
  const auto kept = context_.names->change(model_id, [&](NamedModel& model) { model.verification = verification; });
  const std::lock_guard lock(mutex_);
  verifying_.erase(model_id);
  if (kept) return;
  base::log_event(base::LogLevel::kError, "catalog.verification_not_kept", {}, kept.error().message,
                  {{"model", model_id}});
}

// ---- less ----

base::Result<> CatalogModels::check_unused(const NamedModel& model) const {
  if (model.model_ref.empty() || !context_.jobs->any_of_model(model.model_ref)) return {};
  return base::fail(ErrorCode::kConflict,
                    "jobs of this model wait or run; cancel them, or try again when they have ended");
}

// On the request executor's thread; so is `done`.
void CatalogModels::remove_model(const NamedModel& model, std::string_view request_query, Removed done) {
  const auto erase = [this, model_id = model.model_id](std::int64_t bytes_freed) -> base::Result<wire::CatalogRemoved> {
    TRY(context_.names->erase(model_id));
    base::log_event(base::LogLevel::kInfo, "catalog.model_removed", {}, "A model was removed.",
                    {{"model", model_id}, {"bytes_freed", bytes_freed}});
    return wire::CatalogRemoved{.removed = {model_id}, .bytes_freed = bytes_freed};
  };
  pulls_.cancel(model.model_id);
  const auto all = context_.names->named();
  const bool is_shared = std::any_of(all.begin(), all.end(), [&](const NamedModel& other) {
    return other.model_id != model.model_id && other.model_ref == model.model_ref && other.pool_id == model.pool_id;
  });
  // A file that was here before its name is not ours to delete.
  if (model.model_ref.empty() || model.source.starts_with(kFile) || is_shared) return done(erase(0));
  auto request =
      request_to_pool(context_, model.pool_id, fmt::format("/v2/models/{}{}", model.checksum, request_query));
  if (!request) {
    return done(base::fail(ErrorCode::kPoolUnready,
                           fmt::format("{}, which has the file, does not answer now; try again", model.pool_id)));
  }
  request->method = "DELETE";
  context_.client->request(std::move(*request), [this, erase, done](base::Result<net::Response> response) {
    context_.request_executor->post([erase, done, response = std::move(response)] {
      if (!response) return done(base::fail(response.error()));
      std::int64_t bytes_freed = 0;
      if (response->status >= 400) {
        Error error = net::http::error_of(*response);
        if (error.code != ErrorCode::kModelNotFound) return done(base::fail(std::move(error)));
      } else if (const auto removed = wire::decode<wire::CatalogRemoved>(response->body)) {
        bytes_freed = removed->bytes_freed;
      }
      done(erase(bytes_freed));
    });
  });
}

void CatalogModels::remove(const net::Request& request, const net::ExchangePtr& exchange) {
  remove(request.path_param("id"), [this, exchange](base::Result<wire::CatalogRemoved> removed) {
    if (!removed) return refuse(context_, exchange, std::move(removed).error());
    exchange->respond(net::http::json_response(200, wire::encode(*removed)));
  });
}

void CatalogModels::remove(const std::string& model_id, Removed done) {
  if (context_.names->is_configured(model_id)) return done(base::fail(configured_name(kTakeItOut)));
  const auto model = context_.names->find(model_id);
  if (!model) return done(base::fail(no_such_model()));
  if (auto unused = check_unused(*model); !unused) return done(base::fail(std::move(unused).error()));
  remove_model(*model, "", std::move(done));
}

struct CatalogModels::Collection {
  std::deque<NamedModel> to_remove;
  wire::CatalogRemoved removed;
  net::ExchangePtr exchange;
};

void CatalogModels::collect(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto wanted = wire::decode<wire::CatalogGcRequest>(request.body, wire::UnknownKeys::kRefuse);
  if (!wanted) return refuse(context_, exchange, wanted.error());
  const auto collection = std::make_shared<Collection>();
  collection->exchange = exchange;
  auto all = context_.names->named();
  std::erase_if(all,
                [&](const NamedModel& model) { return model.model_ref.empty() || model.source.starts_with(kFile); });
  for (NamedModel& model :
       models::to_collect(std::move(all), *wanted, context_.clock->now().unix_ms,
                          [&](const NamedModel& m) { return !m.pinned && check_unused(m).has_value(); })) {
    collection->to_remove.push_back(std::move(model));
  }
  collect_next(collection);
}

// Only the pool knows what its workers have: it refuses to remove that, and the rest goes on.
void CatalogModels::collect_next(const std::shared_ptr<Collection>& collection) {
  if (collection->to_remove.empty()) {
    return void(collection->exchange->respond(net::http::json_response(200, wire::encode(collection->removed))));
  }
  const NamedModel model = std::move(collection->to_remove.front());
  collection->to_remove.pop_front();
  remove_model(model, "?unless_loaded=true", [this, collection](base::Result<wire::CatalogRemoved> removed) {
    if (removed) {
      collection->removed.removed.push_back(removed->removed.front());
      collection->removed.bytes_freed += removed->bytes_freed;
    } else if (removed.error().code != ErrorCode::kConflict) {
      return refuse(context_, collection->exchange, std::move(removed).error());
    }
    collect_next(collection);
  });
}

}  // namespace llorch::orchestratord::http
