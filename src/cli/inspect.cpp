// ls, doctor, version: what is there.
#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/statvfs.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <map>

#include "base/build_id.h"
#include "base/file.h"
#include "cli/commands.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;

std::string text_of(const bj::object& object, std::string_view key) {
  const auto* value = object.if_contains(bj::string_view(key.data(), key.size()));
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

base::Result<bj::value> fetch(Api& api, const std::string& path) {
  const std::string body = TRY(api.call("GET", path));
  bj::error_code ec;
  bj::value value = bj::parse(body, ec);
  if (ec)
    return base::fail(base::ErrorCode::kInternal, fmt::format("{} answered with something that is not JSON", path));
  return value;
}

struct Check {
  std::string name;
  bool ok = false;
  std::string finding;
  std::string next;  // what to do when it is not ok
};

Check check_driver() {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) {
    return {"nvidia driver", false, "libnvidia-ml.so.1 is not installed",
            "install the NVIDIA driver, or use the CPU reference device: llorch up --cpu"};
  }
  dlclose(nvml);
  return {"nvidia driver", true, "installed", ""};
}

Check check_cpu() {
  const bool ok = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  return {"cpu", ok, ok ? (wide ? "AVX-512" : "AVX2") : "no AVX2, FMA and F16C",
          "the CPU reference device needs a processor with AVX2"};
}

Check check_state(const std::filesystem::path& state_dir) {
  if (auto made = base::ensure_private_directory(state_dir); !made) {
    return {"state folder", false, made.error().message, "choose another folder with --state-dir or LLORCH_STATE_DIR"};
  }
  struct statvfs fs {};
  if (::statvfs(state_dir.c_str(), &fs) != 0) return {"state folder", false, "cannot be examined", ""};
  const auto free_bytes = static_cast<std::int64_t>(fs.f_bavail) * static_cast<std::int64_t>(fs.f_frsize);
  return {"state folder", free_bytes > (64 << 20),
          fmt::format("{}, {} free", state_dir.string(), human_bytes(free_bytes)),
          "free some disk space: without it no job can be accepted"};
}

Check check_stack(const GlobalOptions& global) {
  auto api = Api::connect(global);
  if (!api) return {"stack", false, api.error().message, ""};
  const auto health = (*api)->call("GET", "/v2/health");
  if (!health) return {"stack", false, health.error().message, ""};
  return {"stack", true, "orchestratord answers at " + (*api)->url(), ""};
}

}  // namespace

int ls(const GlobalOptions& global) {
  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto models = fetch(**api, "/v2/catalog/models");
  if (!models) return report(models.error(), global.json);
  if (global.json) return fmt::print("{}\n", bj::serialize(*models)), kOk;
  const auto pools = fetch(**api, "/v2/pools");
  if (!pools) return report(pools.error(), global.json);

  std::map<std::string, std::string> workers;  // model_ref -> "2 ready"
  std::map<std::string, std::map<std::string, int>> counts;
  for (const bj::value& pool : pools->at("pools").get_array()) {
    for (const bj::value& worker : pool.at("workers").get_array()) {
      ++counts[text_of(worker.get_object(), "model_ref")][text_of(worker.get_object(), "status")];
    }
  }
  for (const auto& [model_ref, by_status] : counts) {
    std::string& out = workers[model_ref];
    for (const auto& [status, count] : by_status) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, status);
  }
  std::vector<std::vector<std::string>> rows;
  for (const bj::value& model : models->at("models").get_array()) {
    const bj::object& o = model.get_object();
    const std::string ref = text_of(o, "model_ref");
    rows.push_back({text_of(o, "model_id"), ref, workers.contains(ref) ? workers[ref] : "no worker"});
  }
  print_table({"MODEL", "REFERENCE", "WORKERS"}, rows);
  return kOk;
}

int doctor(const GlobalOptions& global) {
  const Check checks[] = {check_cpu(), check_driver(), check_state(state_directory(global)), check_stack(global)};
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
  // The CPU and a writable state folder are what nothing works without.
  return checks[0].ok && checks[2].ok ? kOk : kFailed;
}

int version(const GlobalOptions& global) {
  if (global.json) {
    fmt::print("{{\"version\":\"{}\"}}\n", base::build_id());
  } else {
    fmt::print("llorch {}\n", base::build_id());
  }
  return kOk;
}

}  // namespace llorch::cli
