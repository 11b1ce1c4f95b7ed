// llorch pool: what an operator does with one pool.
#include <fmt/core.h>

#include <boost/json.hpp>
#include <chrono>
#include <optional>
#include <thread>

#include "base/id.h"
#include "cli/commands.h"
#include "cli/stop_signals.h"
#include "cli/terminal_text.h"
#include "config/pool_credential.h"
#include "wire/json.h"
#include "wire/pool.h"
#include "wire/pool_control.h"

namespace llorch::cli {
namespace {

constexpr std::chrono::milliseconds kPollEvery{250};
// How long orchestratord may be away meanwhile: drains and reloads go on over its restart.
constexpr std::chrono::milliseconds kAwayMax{60'000};

// A call to /v2/pools/{id}/<what>.
base::Result<std::string> ask(const GlobalOptions& global, const PoolOptions& options, const std::string& method,
                              const std::string& what, const std::string& body) {
  if (!base::is_valid_identifier(options.pool)) {
    return base::fail(base::ErrorCode::kInvalidParams, "a pool id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
  }
  const auto api = TRY(Api::connect(global));
  return api->call(method, "/v2/pools/" + options.pool + "/" + what, body);
}

// Its answer in words or as it came. `more_follows`: it is not the command's answer, which alone is printed as JSON.
int control(const GlobalOptions& global, const PoolOptions& options, const std::string& method, const std::string& what,
            const std::string& body, bool more_follows = false) {
  const auto answer = ask(global, options, method, what, body);
  if (!answer) return report(answer.error(), global.json);
  if (global.json && more_follows) return kOk;
  if (global.json) return fmt::print("{}\n", *answer), kOk;
  const auto reply = wire::decode<wire::PoolControlReply>(*answer);
  if (!reply) return report(reply.error(), global.json);
  print_text("{}: {}\n", reply->pool_id, reply->status);
  const std::string_view when = options.force ? "now, and its jobs go back to the queue" : "when it is idle";
  for (const std::string& worker : reply->workers) print_text("  {} is stopped {}\n", worker, when);
  return kOk;
}

void print_operation(const wire::PoolOperation& operation) {
  print_text("{:10} {}", wire::enum_name(operation.kind), wire::enum_name(operation.state));
  if (!operation.model_ref.empty()) print_text(" of {}", operation.model_ref);
  if (!operation.step.empty()) print_text(": {}", without_controls(operation.step));
  if (operation.deadline_ms) print_text("; {} ms left", *operation.deadline_ms);
  print_text("\n");
}

bool has_ended(const std::optional<wire::PoolOperation>& operation) {
  return operation && operation->state != wire::PoolOperationState::kRunning;
}

// Until the drain or reload that was begun has ended; says on standard error what it waits for, each time that changes. Its end is the
// answer. Errors: CANCELLED at Ctrl-C, and the operation goes on; those of the calls once no other answer came for kAwayMax.
base::Result<wire::PoolHealthReport> wait_for_end(Api& api, const PoolOptions& options, bool json) {
  using Clock = std::chrono::steady_clock;
  const StopSignals signals(StopSignals::Second::kEndsAtOnce);
  auto answered_at = Clock::now();
  for (std::string shown;;) {
    if (StopSignals::requested()) {
      return base::fail(base::ErrorCode::kCancelled,
                        "left; it goes on: llorch pool health " + options.pool + " says how far it is");
    }
    const auto answer = api.call("GET", "/v2/pools/" + options.pool + "/health");
    if (answer) {
      answered_at = Clock::now();
      auto health = TRY(wire::decode<wire::PoolHealthReport>(*answer));
      if (!health.operation || has_ended(health.operation)) return health;
      const std::string& step = health.operation->step;
      if (!json && !step.empty() && step != shown) print_text(stderr, "{}: {}\n", options.pool, without_controls(step));
      shown = step;
    } else if (Clock::now() - answered_at >= kAwayMax) {
      return base::fail(answer.error());
    }
    std::this_thread::sleep_for(kPollEvery);
  }
}

// Begins a drain or a reload and, if it is told to, waits for its end.
int operate(const GlobalOptions& global, const PoolOptions& options, const std::string& what, const std::string& body) {
  const int begun = control(global, options, "POST", what, body, options.wait);
  if (begun != kOk || !options.wait) return begun;
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto health = wait_for_end(**api, options, global.json);
  if (!health) return report(health.error(), global.json);
  if (global.json) {
    fmt::print("{}\n", wire::encode(*health));
  } else if (health->operation) {
    print_operation(*health->operation);
    if (health->last_error) print_text("last error {}\n", without_controls(*health->last_error));
  } else {
    print_text("{}: it was taken back, or the pool has left\n", options.pool);
  }
  return health->operation && health->operation->state == wire::PoolOperationState::kDone ? kOk : kFailed;
}

void print_loads(const wire::PoolInfo& pool) {
  for (const wire::WorkerInfo& worker : pool.workers) {
    if (!worker.load_percent) continue;
    print_text("loading    {} on {}: {} %\n", worker.model_ref, worker.gpu_id, *worker.load_percent);
  }
}

void print_gpus(const wire::PoolList& pools, const std::string& pool_id) {
  for (const wire::PoolInfo& pool : pools.pools) {
    if (pool.pool_id != pool_id) continue;
    for (const wire::GpuInfo& gpu : pool.gpus) {
      print_text("gpu {:6} {}, ", gpu.gpu_id, without_controls(gpu.model));
      if (gpu.healthy) {
        print_text("{} free of {}\n", human_bytes(gpu.vram_available_bytes), human_bytes(gpu.vram_total_bytes));
      } else {
        print_text("takes no worker: {}\n", without_controls(gpu.fault.value_or("no reason was told")));
      }
    }
    print_loads(pool);
  }
}

}  // namespace

int pair_pool(const GlobalOptions& global, const PoolOptions& options) {
  // A new credential ends the old one, so that whether it can be kept is known before it is asked for.
  if (!options.credential_file.empty()) {
    if (const auto possible = config::check_pool_credential_file(options.credential_file); !possible) {
      return report(possible.error(), global.json);
    }
  }
  const auto answer = ask(global, options, "POST", "credential", "");
  if (!answer) return report(answer.error(), global.json);
  const auto reply = wire::decode<wire::PoolCredentialReply>(*answer);
  if (!reply) return report(reply.error(), global.json);
  if (options.credential_file.empty()) {
    if (global.json) return fmt::print("{}\n", *answer), kOk;
    print_text("{}\n", reply->credential);
    print_text(stderr,
               "this line is a secret: write it into pool-managerd.credential_file of {} (mode 0600), with {} as its "
               "pool-managerd.pool_id, and start pool-managerd\n",
               reply->pool_id, reply->pool_id);
    return kOk;
  }
  const auto credential = config::PoolCredential::parse(reply->credential);
  if (!credential) return report(credential.error(), global.json);
  const auto written = config::store_pool_credential(options.credential_file, *credential);
  if (!written) {
    // The old one has ended: what cannot be kept is shown, or it is lost.
    if (global.json) {
      fmt::print("{}\n", *answer);
    } else {
      print_text("{}\n", reply->credential);
    }
    return report(written.error(), global.json);
  }
  if (global.json) {
    fmt::print("{}\n", boost::json::serialize(
                           boost::json::object{{"pool_id", reply->pool_id}, {"file", options.credential_file}}));
  } else {
    print_text("wrote the credential of {} to {}\n", reply->pool_id, options.credential_file);
  }
  return kOk;
}

int unpair_pool(const GlobalOptions& global, const PoolOptions& options) {
  const auto answer = ask(global, options, "DELETE", "credential", "");
  if (!answer) return report(answer.error(), global.json);
  if (global.json) {
    fmt::print("{}\n", boost::json::serialize(boost::json::object{{"pool_id", options.pool}, {"status", "unpaired"}}));
  } else {
    print_text("{}: unpaired; it is refused from now on\n", options.pool);
  }
  return kOk;
}

int drain_pool(const GlobalOptions& global, const PoolOptions& options) {
  return operate(global, options, "drain", wire::encode(wire::DrainRequest{options.deadline_ms}));
}

int undrain_pool(const GlobalOptions& global, const PoolOptions& options) {
  return control(global, options, "DELETE", "drain", "");
}

int reload_pool(const GlobalOptions& global, const PoolOptions& options) {
  return operate(global, options, "reload", wire::encode(wire::ReloadRequest{options.model, options.deadline_ms}));
}

int purge_pool(const GlobalOptions& global, const PoolOptions& options) {
  return control(global, options, "POST", "purge",
                 wire::encode(wire::PurgeRequest{
                     .purge_models = options.models, .drain_first = !options.idle_only, .force = options.force}));
}

int stop_model(const GlobalOptions& global, const std::string& model) {
  if (model.empty()) {
    return report({base::ErrorCode::kInvalidParams, "the model has no name; llorch ls lists those here", {}},
                  global.json);
  }
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto body = (*api)->call("GET", "/v2/pools");
  if (!body) return report(body.error(), global.json);
  const auto pools = wire::decode<wire::PoolList>(*body);
  if (!pools) return report(pools.error(), global.json);
  boost::json::array stopped;
  for (const wire::PoolInfo& pool : pools->pools) {
    const auto answer = (*api)->call("POST", "/v2/pools/" + pool.pool_id + "/purge",
                                     wire::encode(wire::PurgeRequest{.purge_models = {model}}));
    if (!answer) return report(answer.error(), global.json);
    const auto reply = wire::decode<wire::PoolControlReply>(*answer);
    if (!reply) return report(reply.error(), global.json);
    for (const std::string& worker : reply->workers) {
      stopped.push_back(boost::json::object{{"pool_id", pool.pool_id}, {"worker_id", worker}});
      if (!global.json) print_text("{} of {} is stopped when it is idle\n", worker, pool.pool_id);
    }
  }
  if (global.json) {
    fmt::print("{}\n", boost::json::serialize(boost::json::object{{"model", model}, {"workers", std::move(stopped)}}));
  } else if (stopped.empty()) {
    print_text("no worker has {} in memory\n", model);
  }
  return kOk;
}

int pool_health(const GlobalOptions& global, const PoolOptions& options) {
  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto answer = (*api)->call("GET", "/v2/pools/" + options.pool + "/health");
  if (!answer) return report(answer.error(), global.json);
  if (global.json) return fmt::print("{}\n", *answer), kOk;
  const auto health = wire::decode<wire::PoolHealthReport>(*answer);
  if (!health) return report(health.error(), global.json);
  const auto& m = health->metrics;
  print_text("pool       {}\nlive       {}\nready      {}\ndraining   {}\n", health->pool_id, health->live,
             health->ready, health->draining);
  print_text("workers    {} ({} ready, {} starting, {} failures)\n", m.workers_total, m.workers_ready,
             m.workers_starting, m.worker_failures);
  print_text("jobs       {} running, {} of {} slots free\n", m.active_leases, m.slots_free, m.slots_total);
  print_text("memory     {} free of {}\n", human_bytes(m.vram_available_bytes), human_bytes(m.vram_total_bytes));
  const auto pools = (*api)->call("GET", "/v2/pools");
  if (!pools) return report(pools.error(), global.json);
  const auto listed = wire::decode<wire::PoolList>(*pools);
  if (!listed) return report(listed.error(), global.json);
  print_gpus(*listed, health->pool_id);
  if (health->operation) print_operation(*health->operation);
  if (health->last_error) print_text("last error {}\n", without_controls(*health->last_error));
  return kOk;
}

}  // namespace llorch::cli
