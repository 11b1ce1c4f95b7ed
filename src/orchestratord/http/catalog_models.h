#pragma once
// /v2/catalog: models by name. They are given, fetched, retired, pinned and removed while the service runs.
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "orchestratord/http/context.h"
#include "orchestratord/http/pulls.h"

namespace llorch::orchestratord::http {

// Thread-safe. REQUIRES: `context` outlives it.
class CatalogModels {
 public:
  explicit CatalogModels(const Context& context) : context_(context), pulls_(context) {}

  // Whether it wants to be told what pools say of the models, who are asked for it.
  static bool asks_for_facts(const net::Request& request) { return request.query_param("facts") == "true"; }
  void list(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void known(const net::Request& request, const net::ExchangePtr& exchange);
  // Where each model is, and how many jobs of it can run at once there now.
  void availability(const net::Request& request, const net::ExchangePtr& exchange);
  // 200: it is here; 202: it comes. On the request executor's thread, as all that follow.
  void create(const net::Request& request, const net::ExchangePtr& exchange);
  void set_state(const net::Request& request, const net::ExchangePtr& exchange);
  // Begins to read the whole model where it lies; show() says how that ended.
  void verify(const net::Request& request, const net::ExchangePtr& exchange);
  void remove(const net::Request& request, const net::ExchangePtr& exchange);
  void collect(const net::Request& request, const net::ExchangePtr& exchange);

  // As create() and remove(), whatever API the wish came by. `done` is called once, on any thread. REQUIRES: on the request
  // executor's thread.
  struct Created {
    std::string model_id;
    int http_status = 202;  // 201: a file has its name now; 202: it comes, or is here
  };
  using CreatedDone = std::function<void(base::Result<Created>)>;
  void create(wire::CreateCatalogModelRequest request, const base::CorrelationId& correlation_id, CreatedDone done);
  // Gives a file its name, or looks at it again; `source` and the model's id and pool are set.
  void add_file(wire::NamedModel model, const base::CorrelationId& correlation_id, CreatedDone done);
  // One more name for a model that has `source`; a file's bytes go with the last of its names. Errors: MODEL_NOT_FOUND, those of
  // ModelNames::resolve(); INVALID_PARAMS: no name, or a model of another system's engine; CONFLICT: another model has the name.
  void copy(const std::string& source, const std::string& model_id, const base::CorrelationId& correlation_id,
            CreatedDone done);
  using Removed = std::function<void(base::Result<wire::CatalogRemoved>)>;
  void remove(const std::string& model_id, Removed done);
  // Workers that have read these bytes, under whatever name, finish what they have and free their memory.
  void stop_workers(const std::string& digest);
  // A model that was given at run time, as show() has it: here if it has a model_ref, else with its pull.
  // Errors: MODEL_NOT_FOUND.
  base::Result<wire::CatalogModel> find(const std::string& model_id) const;

  // Goes on with what an earlier process has begun.
  void resume() { pulls_.resume(); }

 private:
  struct Collection;

  base::Result<wire::NamedModel> wanted_model(wire::CreateCatalogModelRequest request) const;
  void add_pulled(wire::NamedModel model, const CreatedDone& done);
  void add_found_file(wire::NamedModel model, const base::CorrelationId& correlation_id, CreatedDone done);
  void copy_resolved(const std::string& source, const models::ModelNames::Resolved& resolved,
                     const std::string& model_id, const base::CorrelationId& correlation_id, const CreatedDone& done);
  void show_with_facts(wire::CatalogModel model, const net::Request& request, const net::ExchangePtr& exchange);
  void respond(int http_status, const std::string& model_id, const net::ExchangePtr& exchange);
  wire::CatalogModel view(const wire::NamedModel& model) const;
  void add_what_runs(wire::CatalogModel& model) const;
  base::Result<> check_unused(const wire::NamedModel& model) const;
  void unload(const wire::NamedModel& model);
  // `pool_ids`: those still to be asked, the first one next.
  void verify_on(const wire::NamedModel& model, std::vector<std::string> pool_ids, base::Error why_not);
  void keep_verification(const std::string& model_id, wire::ModelVerification verification);
  // `request_query`: of the request to the pool that has the file.
  void remove_model(const wire::NamedModel& model, std::string_view request_query, Removed done);
  void collect_next(const std::shared_ptr<Collection>& collection);

  const Context& context_;
  Pulls pulls_;
  mutable std::mutex mutex_;
  std::map<std::string, wire::ModelVerification> verifying_;  // those that run, by the model's name
};

}  // namespace llorch::orchestratord::http
