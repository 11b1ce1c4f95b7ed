// ls, cache clear, version: what is there.
#include <fmt/core.h>

#include <boost/json.hpp>
#include <map>

#include "base/build_id.h"
#include "cli/commands.h"
#include "cli/models/commands.h"
#include "cli/terminal_text.h"
#include "engine/compute/cuda/backend.h"
#include "wire/catalog.h"
#include "wire/json.h"
#include "wire/pool.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;

// Of a model that no worker has.
std::string state_word(const wire::CatalogModel& model, bool sees_workers) {
  if (model.pull && model.pull->state == wire::PullState::kFailed) return "pull failed";
  if (model.pull && model.pull->bytes_total > 0) {
    return fmt::format("pulling, {} %", model.pull->bytes_done * 100 / model.pull->bytes_total);
  }
  if (model.model_ref.empty()) return "pulling";
  return model.lifecycle_state == wire::ModelLifecycle::kRetired ? "retired" : sees_workers ? "no worker" : "-";
}

}  // namespace

int clear_cache(const GlobalOptions& global) {
  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto body = (*api)->call("POST", "/v2/cache/clear");
  if (!body) return report(body.error(), global.json);
  const auto reply = wire::decode<wire::CacheCleared>(*body);
  if (!reply) return report(reply.error(), global.json);
  if (global.json) {
    fmt::print("{}\n", *body);
  } else {
    print_text("{} worker(s) forget their prefix cache\n", reply->cleared.size());
    for (const std::string& id : reply->failed)
      print_text(stderr, "llorch: {} did not answer; its cache ends with it, or ask again\n", id);
  }
  return reply->failed.empty() ? kOk : kFailed;
}

int ls(const GlobalOptions& global) {
  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto body = (*api)->call("GET", "/v2/catalog/models");
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto models = wire::decode<wire::CatalogModelList>(*body);
  if (!models) return report(models.error(), global.json);
  const auto pools_body = (*api)->call("GET", "/v2/pools");
  // Workers are the operator's affair: a tenant sees its models without them.
  const bool sees_workers = pools_body || pools_body.error().code != base::ErrorCode::kForbidden;
  if (!pools_body && sees_workers) return report(pools_body.error(), global.json);
  const auto pools = pools_body ? wire::decode<wire::PoolList>(*pools_body) : wire::PoolList{};
  if (!pools) return report(pools.error(), global.json);

  std::map<std::string, std::map<std::string, int>> counts;  // model_ref -> status -> workers
  for (const wire::PoolInfo& pool : pools->pools) {
    for (const wire::WorkerInfo& worker : pool.workers) {
      ++counts[worker.model_ref][std::string(wire::enum_name(worker.status))];
    }
  }
  std::vector<std::vector<std::string>> rows;
  for (const wire::CatalogModel& model : models->models) {
    std::string workers;
    for (const auto& [status, count] : counts[model.model_ref]) {
      workers += fmt::format("{}{} {}", workers.empty() ? "" : ", ", count, status);
    }
    rows.push_back({model.model_id, model.size_bytes ? human_bytes(*model.size_bytes) : "-",
                    workers.empty() ? state_word(model, sees_workers) : workers, model.model_ref});
  }
  print_table({"MODEL", "SIZE", "STATE", "REFERENCE"}, rows);
  return kOk;
}

int show(const GlobalOptions& global, const std::string& name) {
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto shown = models::show_model(**api, name, global.json);
  if (!shown) return report(shown.error(), global.json);
  return *shown ? kOk : show_job(global, name);
}

int version(const GlobalOptions& global) {
  const std::string_view kernels = engine::compute::cuda::built_architectures();
  if (global.json) {
    bj::object out{{"version", base::build_id()}};
    if (const std::string release = base::release_id(); !release.empty()) out["release"] = release;
    out["cuda_kernels"] = kernels;
    fmt::print("{}\n", bj::serialize(out));
  } else {
    print_text("llorch {}\nCUDA kernels: {}\n", base::version_text(),
               kernels.empty() ? "none; models run on the CPU device alone" : kernels);
  }
  return kOk;
}

}  // namespace llorch::cli
