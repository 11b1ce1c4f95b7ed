#pragma once
// A Driver with an operator's levers on its pool.
#include <string>
#include <utility>
#include <vector>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {

inline const base::PoolId kPool("pool-1");

struct Operated : Driver {
  using Driver::Driver;
  const std::vector<Command>& drain(std::int64_t deadline_ms, const base::PoolId& pool = kPool) {
    return send(DrainPool{{++requests}, pool, deadline_ms});
  }
  const std::vector<Command>& undrain() { return send(UndrainPool{{++requests}, kPool}); }
  const std::vector<Command>& reload(const std::string& model, std::int64_t bytes = 6 * kGb) {
    return send(ReloadPool{{++requests}, kPool, spec("x", {.model = model, .memory_bytes = bytes}).model, 30'000});
  }
  wire::PoolHealthReport health() {
    send(QueryPoolHealth{{++requests}, kPool});
    return only<AnswerPoolHealth>().health.value_or(wire::PoolHealthReport{});
  }
  base::ErrorCode refused() const {
    const auto answer = only<AnswerPoolControl>();
    EXPECT_FALSE(answer.result) << "accepted";
    return answer.result ? base::ErrorCode::kInternal : answer.result.error().code;
  }
  // What the next process finds.
  Restored restored() const {
    return {.jobs = {}, .pool_endpoints = {"http://pool-1"}, .desired_states = desired_states_on_disk};
  }
  const std::vector<Command>& purge(bool force = false) {
    return send(PurgePool{{++requests}, kPool, {}, true, force});
  }
  void gone(const std::string& worker) {
    send(WorkerFailed{{.worker_id = worker, .pool_id = "pool-1", .category = wire::FailureCategory::kExplicitStop}});
    see(pool_state());
  }
};

}  // namespace llorch::orchestratord::core
