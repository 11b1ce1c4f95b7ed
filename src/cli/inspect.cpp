// ls, cache clear, doctor, version: what is there.
#include <fmt/core.h>
#include <sys/statvfs.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/build_id.h"
#include "base/file.h"
#include "base/shared_library.h"
#include "cli/commands.h"
#include "cli/models/commands.h"
#include "engine/compute/cpu/backend.h"
#include "wire/catalog.h"
#include "wire/json.h"
#include "wire/meta.h"
#include "wire/pool.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;

struct Check {
  std::string name;
  bool ok = false;
  std::string finding;
  std::string next;  // what to do when it is not ok
};

Check check_driver() {
  if (!base::SharedLibrary("libnvidia-ml.so.1").is_open()) {
    return {"nvidia driver", false, "libnvidia-ml.so.1 is not installed",
            "install the NVIDIA driver, or use the CPU reference device: llorch up --cpu"};
  }
  return {"nvidia driver", true, "installed", ""};
}

Check check_cpu() {
  const auto isa = engine::compute::cpu::processor_isa();
  if (!isa) return {"cpu", false, isa.error().message, ""};
  return {"cpu", true, std::string(*isa), ""};
}

Check check_state(const std::filesystem::path& state_dir) {
  if (auto made = base::ensure_private_directory(state_dir); !made) {
    return {"state directory", false, made.error().message,
            "choose another directory with --state-dir or LLORCH_STATE_DIR"};
  }
  struct statvfs fs {};
  if (::statvfs(state_dir.c_str(), &fs) != 0) return {"state directory", false, "cannot be examined", ""};
  const auto free_bytes = static_cast<std::int64_t>(fs.f_bavail) * static_cast<std::int64_t>(fs.f_frsize);
  return {"state directory", free_bytes > (64 << 20),
          fmt::format("{}, {} free", state_dir.string(), human_bytes(free_bytes)),
          "free some disk space: without it no job can be accepted"};
}

Check check_stack(const GlobalOptions& global) {
  auto api = Api::connect(global);
  if (!api) return {"stack", false, api.error().message, ""};
  const auto health = (*api)->call("GET", "/v2/health");
  if (!health) return {"stack", false, health.error().message, ""};
  const auto reply = wire::decode<wire::HealthReply>(*health);
  if (!reply) return {"stack", false, reply.error().message, ""};
  std::string wrong;
  for (const wire::HealthReason& reason : reply->reasons) wrong += (wrong.empty() ? "" : " ") + reason.human;
  if (!wrong.empty()) return {"stack", false, wrong, ""};
  return {"stack", true, "orchestratord answers at " + (*api)->url(), ""};
}

// Nothing to say where no stack answers or no pool has a device.
std::optional<Check> check_devices(const GlobalOptions& global) {
  auto api = Api::connect(global);
  if (!api) return std::nullopt;
  const auto body = (*api)->call("GET", "/v2/pools");
  if (!body) return std::nullopt;
  const auto pools = wire::decode<wire::PoolList>(*body);
  if (!pools) return Check{"devices", false, pools.error().message, ""};
  std::string listed, faults;
  for (const wire::PoolInfo& pool : pools->pools) {
    for (const wire::GpuInfo& gpu : pool.gpus) {
      listed += fmt::format("{}{} of {}", listed.empty() ? "" : ", ", gpu.gpu_id, pool.pool_id);
      if (gpu.healthy) continue;
      faults += fmt::format("{}{} of {}: {}", faults.empty() ? "" : "; ", gpu.gpu_id, pool.pool_id,
                            gpu.fault.value_or("no reason was told"));
    }
  }
  if (listed.empty()) return std::nullopt;
  if (faults.empty()) return Check{"devices", true, listed, ""};
  return Check{"devices", false, faults,
               "no worker runs there until the pool sees it healthy; nvidia-smi may say more"};
}

// Of a model that no worker has.
std::string state_word(const wire::CatalogModel& model) {
  if (model.pull && model.pull->state == wire::PullState::kFailed) return "pull failed";
  if (model.pull && model.pull->bytes_total > 0) {
    return fmt::format("pulling, {} %", model.pull->bytes_done * 100 / model.pull->bytes_total);
  }
  if (model.model_ref.empty()) return "pulling";
  return model.lifecycle_state == wire::ModelLifecycle::kRetired ? "retired" : "no worker";
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
    fmt::print("{} worker(s) forget their prefix cache\n", reply->cleared.size());
    for (const std::string& id : reply->failed)
      fmt::print(stderr, "llorch: {} did not answer; its cache ends with it, or ask again\n", id);
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
  if (!pools_body) return report(pools_body.error(), global.json);
  const auto pools = wire::decode<wire::PoolList>(*pools_body);
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
                    workers.empty() ? state_word(model) : workers, model.model_ref});
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

int doctor(const GlobalOptions& global) {
  std::vector<Check> checks{check_cpu(), check_driver(), check_state(state_directory(global)), check_stack(global)};
  if (auto devices = check_devices(global)) checks.push_back(std::move(*devices));
  if (global.json) {
    bj::array out;
    for (const Check& c : checks) {
      out.push_back(bj::object{{"check", c.name}, {"ok", c.ok}, {"finding", c.finding}, {"next", c.next}});
    }
    fmt::print("{}\n", bj::serialize(bj::object{{"checks", std::move(out)}}));
  } else {
    for (const Check& c : checks) {
      fmt::print("{:<4} {:<14} {}\n", c.ok ? "ok" : "no", c.name, c.finding);
      if (!c.ok && !c.next.empty()) fmt::print("     {:<14} -> {}\n", "", c.next);
    }
  }
  // The CPU and a writable state directory are what nothing works without.
  return checks[0].ok && checks[2].ok ? kOk : kFailed;
}

int version(const GlobalOptions& global) {
  if (global.json) {
    bj::object out{{"version", base::build_id()}};
    if (const std::string release = base::release_id(); !release.empty()) out["release"] = release;
    fmt::print("{}\n", bj::serialize(out));
  } else {
    fmt::print("llorch {}\n", base::version_text());
  }
  return kOk;
}

}  // namespace llorch::cli
