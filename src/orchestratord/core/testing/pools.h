#pragma once
// What tests of pools and their workers have in common.
#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {

inline CoreConfig no_jitter() {
  CoreConfig c;
  c.retry.jitter = false;
  return c;
}

inline wire::WorkerInfo started(const StartWorker& start) {
  auto info = Driver::worker(start.request.worker_id, start.request.model_ref.substr(6, 1), start.request.gpu_id);
  return info;
}

inline PoolView pool_of(Driver& d) {
  d.send(QueryPools{{1}});
  return d.only<AnswerQueryPools>().pools.front();
}

}  // namespace llorch::orchestratord::core
