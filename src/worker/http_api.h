#pragma once
// worker-orcd's HTTP surface: /execute (SSE), /cancel, /health, /metrics, /cache/clear, /shutdown.
#include <functional>
#include <memory>

#include "base/entropy.h"
#include "net/server.h"
#include "wire/worker.h"
#include "worker/engine_loop.h"

namespace llorch::worker {

struct HttpApiContext {
  EngineLoop& loop;
  const text::Tokenizer& tokenizer;
  const base::Clock& clock;
  base::Entropy& entropy;           // seeds of requests that name none
  net::IoRuntime& request_runtime;  // its thread reads and tokenises jobs, so that no socket waits for a long one
  wire::WorkerHealth health;        // the constant part
  const engine::models::VisionConfig& vision;
  std::int64_t context_tokens = 0;
  std::int64_t dimensions = 0;  // of the rows of a model of embeddings or scores; 0: it writes text
  bool scores = false;          // with dimensions: the rows are scores
  std::uint32_t token_types = 0;
  std::int64_t timeout_ms_max = 0;
  std::int64_t ready_mono_ms = 0;
  std::function<void()> on_shutdown;  // called once, on the io thread
};

// Adds the routes. Call before server.start(); the context's references outlive the server.
void add_routes(net::Server& server, HttpApiContext context);

}  // namespace llorch::worker
