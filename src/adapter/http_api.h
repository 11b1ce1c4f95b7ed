#pragma once
// The worker contract's HTTP surface: /execute (SSE), /cancel, /health, /metrics, /shutdown.
#include <functional>

#include "adapter/jobs/service.h"
#include "net/server.h"
#include "wire/worker.h"

namespace llorch::adapter {

struct HttpApiContext {
  jobs::Service& service;
  wire::WorkerHealth health;  // the constant part
  std::int64_t ready_mono_ms = 0;
  std::function<void()> on_shutdown;  // called once, on the io thread
};

// Adds the routes. Call before server.start(); the context's references outlive the server.
void add_routes(net::Server& server, HttpApiContext context);

// The worker_* series in Prometheus text format 0.0.4.
std::string metrics_text(jobs::Service& service, std::int64_t uptime_seconds);

}  // namespace llorch::adapter
