// llorch doctor: is this machine, its configuration and the stack in order, and what to do if not.
#include <fmt/core.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/descriptor.h"
#include "base/error_detail.h"
#include "base/file.h"
#include "base/process.h"
#include "base/shared_library.h"
#include "base/state_directory.h"
#include "cli/commands.h"
#include "cli/stack/daemon_commands.h"
#include "cli/terminal_text.h"
#include "engine/compute/cpu/backend.h"
#include "net/http/url.h"
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
  std::string next{};       // what to do; of one that is ok a hint, if anything
  ExitCode code = kFailed;  // of `doctor`, unless the check is ok
};

// What to do where orchestratord does not answer.
std::string silence_advice() {
  return fmt::format("start it with: {}; why it went: {}", stack::start_command(), stack::logs_command(""));
}

Check check_driver(bool cpu_will_do) {
  if (base::SharedLibrary("libnvidia-ml.so.1").is_open()) return {"nvidia driver", true, "installed"};
  if (cpu_will_do) return {"nvidia driver", true, "not installed; the CPU reference device is offered"};
  return {"nvidia driver", false, "libnvidia-ml.so.1 is not installed",
          "install the NVIDIA driver, or use the CPU reference device: llorch up --cpu, or devices.allow_cpu: true"};
}

Check check_processor() {
  const auto isa = engine::compute::cpu::processor_isa();
  if (isa) return {"cpu", true, std::string(*isa)};
  return {"cpu", false, isa.error().message, "use another machine: kernels are built for AVX2 and above"};
}

Check check_state(const std::filesystem::path& state_dir) {
  constexpr std::int64_t kFreeBytesMin = 64 << 20;
  if (auto made = base::ensure_state_directory(state_dir); !made) {
    return {"state", false, made.error().message, "choose another directory with --state-dir or LLORCH_STATE_DIR"};
  }
  if (::access(state_dir.c_str(), R_OK | W_OK | X_OK) != 0) {  // root's, for instance
    return {"state", false, base::io_error("cannot use", state_dir, errno).message,
            "choose another directory with --state-dir or LLORCH_STATE_DIR"};
  }
  struct statvfs fs {};
  if (::statvfs(state_dir.c_str(), &fs) != 0) {
    return {"state", false, state_dir.string() + " cannot be examined",
            "choose another directory with --state-dir or LLORCH_STATE_DIR"};
  }
  const auto free_bytes = static_cast<std::int64_t>(fs.f_bavail) * static_cast<std::int64_t>(fs.f_frsize);
  return {"state", free_bytes > kFreeBytesMin, fmt::format("{}, {} free", state_dir.string(), human_bytes(free_bytes)),
          free_bytes > kFreeBytesMin ? "" : "free some disk space: without it no job can be accepted"};
}

Check check_configuration(const GlobalOptions& global) {
  const auto config = load_config(global);
  // The other secrets may be for the daemons' user alone.
  const auto token = config ? config::load_api_token(*config, [](const char* name) { return std::getenv(name); })
                            : base::Result<std::string>(base::fail(config.error()));
  if (token) return {"configuration", true, "valid"};
  return {"configuration", false, token.error().message, "correct it; llorch config validate checks it again"};
}

Check check_programs() {
  const std::string directory = base::executable_directory();
  std::string missing;
  for (const char* name : {"orchestratord", "pool-managerd", "worker-orcd"}) {
    if (::access((directory + "/" + name).c_str(), X_OK) != 0)
      missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (missing.empty()) return {"programs", true, "in " + directory};
  return {"programs", false, fmt::format("{} cannot be run from {}", missing, directory),
          "install the package again, or build all of it"};
}

// Whether somebody else listens there, so that a daemon cannot. False for port 0 and what is no address.
bool is_taken(const std::string& bind) {
  const auto url = net::http::parse_url("http://" + bind);
  if (!url) return false;
  const std::string host = url->host == "localhost" ? "127.0.0.1" : url->host;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* address = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(url->port).c_str(), &hints, &address) != 0) return false;
  const base::Descriptor fd(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool out = ::bind(fd.get(), address->ai_addr, address->ai_addrlen) != 0 && errno == EADDRINUSE;
  ::freeaddrinfo(address);
  return out;
}

std::optional<Check> check_ports(const config::Config& config) {
  for (const auto& [key, bind] : {std::pair{"orchestratord.bind", config.orchestratord.bind},
                                  std::pair{"pool-managerd.bind", config.pool_managerd.bind}}) {
    if (!is_taken(bind)) continue;
    return Check{"ports", false, fmt::format("another program listens at {} ({})", bind, key),
                 fmt::format("end it, or choose another: {}: {}:PORT", key, bind.substr(0, bind.rfind(':')))};
  }
  return std::nullopt;
}

Check check_stack(Api& api) {
  const auto health = api.call("GET", "/v2/health");
  if (!health) {
    if (base::has_detail(health.error(), "reason", kOtherProgram)) {
      return {"stack", false, health.error().message,
              "say where orchestratord answers with --url, or end the other program", kUnreachable};
    }
    const bool is_silent = health.error().code == base::ErrorCode::kUnreachable;
    return {"stack", false,
            is_silent ? fmt::format("orchestratord does not answer at {}", api.url()) : health.error().message,
            is_silent ? silence_advice() : "see " + stack::logs_command("orchestratord"),
            is_silent ? kUnreachable : kFailed};
  }
  const auto reply = wire::decode<wire::HealthReply>(*health);
  if (!reply) return {"stack", false, reply.error().message, "use the llorch of the same build as the daemons"};
  std::string wrong;
  for (const wire::HealthReason& reason : reply->reasons) wrong += (wrong.empty() ? "" : " ") + reason.human;
  if (wrong.empty()) return {"stack", true, "orchestratord answers at " + api.url()};
  return {"stack", false, wrong, stack::logs_command("") + " shows what the daemons say"};
}

void check_pools(const wire::PoolList& pools, std::vector<Check>& out) {
  std::string listed, faults;
  for (const wire::PoolInfo& pool : pools.pools) {
    if (pool.status == wire::PoolStatus::kUnhealthy || pool.status == wire::PoolStatus::kOffline) {
      out.push_back({"pool", false, fmt::format("{} is {}", pool.pool_id, wire::enum_name(pool.status)),
                     fmt::format("llorch pool health {}; on its machine: {}", pool.pool_id,
                                 stack::logs_command("pool-managerd"))});
    }
    for (const wire::GpuInfo& gpu : pool.gpus) {
      listed += fmt::format("{}{} of {}", listed.empty() ? "" : ", ", gpu.gpu_id, pool.pool_id);
      if (gpu.healthy) continue;
      faults += fmt::format("{}{} of {}: {}", faults.empty() ? "" : "; ", gpu.gpu_id, pool.pool_id,
                            gpu.fault.value_or("no reason was told"));
    }
  }
  if (!faults.empty()) {
    out.push_back(
        {"devices", false, faults, "no worker runs there until the pool sees it healthy; nvidia-smi may say more"});
  } else if (!listed.empty()) {
    out.push_back({"devices", true, listed});
  }
}

void check_models(const wire::CatalogModelList& models, std::vector<Check>& out) {
  std::int64_t here = 0;
  for (const wire::CatalogModel& model : models.models) {
    here += model.model_ref.empty() ? 0 : 1;
    if (model.pull && model.pull->state == wire::PullState::kFailed) {
      out.push_back(
          {"models", false,
           fmt::format("{} was not fetched: {}", model.model_id, model.pull->error_message.value_or("")),
           fmt::format("llorch pull {} goes on with it, llorch rm {} forgets it", model.model_id, model.model_id)});
    }
  }
  out.push_back({"models", true, fmt::format("{} by name", here),
                 here > 0 ? "" : "llorch search lists some; llorch pull fetches one"});
}

// What can be seen of a stack that answers.
bool check_inside(Api& api, std::vector<Check>& out) {
  bool has_device = false;
  if (const auto body = api.call("GET", "/v2/pools")) {
    if (const auto pools = wire::decode<wire::PoolList>(*body)) {
      check_pools(*pools, out);
      has_device = std::ranges::any_of(pools->pools, [](const wire::PoolInfo& pool) { return !pool.gpus.empty(); });
    }
  }
  if (const auto body = api.call("GET", "/v2/catalog/models")) {
    if (const auto models = wire::decode<wire::CatalogModelList>(*body)) check_models(*models, out);
  }
  return has_device;
}

std::vector<Check> all_checks(const GlobalOptions& global) {
  std::vector<Check> out{check_processor(), check_programs(), check_state(state_directory(global)),
                         check_configuration(global)};
  const auto config = load_config(global);
  bool cpu_will_do = config && config->devices.allow_cpu;
  if (auto api = Api::connect(global)) {
    out.push_back(check_stack(**api));
    const bool answers = out.back().ok || out.back().code != kUnreachable;
    if (answers) {
      cpu_will_do = check_inside(**api, out) || cpu_will_do;
    } else if (config) {
      if (auto ports = check_ports(*config)) out.push_back(*std::move(ports));
    }
  } else if (config) {
    const bool is_usage = api.error().code == base::ErrorCode::kInvalidParams;
    out.push_back({"stack", false, api.error().message,
                   is_usage ? "say where orchestratord answers with --url" : silence_advice(),
                   is_usage ? kUsage : kUnreachable});
    if (auto ports = is_usage ? std::nullopt : check_ports(*config)) out.push_back(*std::move(ports));
  }
  out.push_back(check_driver(cpu_will_do));
  return out;
}

std::string checks_json(const std::vector<Check>& checks) {
  bj::array listed;
  for (const Check& c : checks) {
    listed.push_back(bj::object{{"check", c.name}, {"ok", c.ok}, {"finding", c.finding}, {"next", c.next}});
  }
  return bj::serialize(bj::object{{"checks", std::move(listed)}});
}

}  // namespace

std::string doctor_json(const GlobalOptions& global) { return checks_json(all_checks(global)); }

int doctor(const GlobalOptions& global) {
  const std::vector<Check> checks = all_checks(global);
  ExitCode code = kOk;
  for (const Check& c : checks) {
    if (!c.ok && (code == kOk || code == kUnreachable)) code = c.code;
    if (global.json) continue;
    print_text("{:<4} {:<14} {}\n", c.ok ? "ok" : "no", c.name, without_controls(c.finding));
    if (!c.next.empty()) print_text("     {:<14} -> {}\n", "", without_controls(c.next));
  }
  if (global.json) fmt::print("{}\n", checks_json(checks));
  return code;
}

}  // namespace llorch::cli
