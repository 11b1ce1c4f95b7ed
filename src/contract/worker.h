#pragma once
// Wire types of worker-orcd (control-plane §8.4, §8.5). Field tables: worker.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/sampling.h"

namespace llorch::contract {

// POST /execute. Exactly one of `prompt` (a worker used alone) and `prompt_tokens` (sent by orchestratord, which has
// tokenised once).
struct ExecuteRequest {
  std::string job_id;
  std::optional<std::string> prompt;
  std::optional<std::vector<std::int32_t>> prompt_tokens;
  std::optional<std::string> prompt_sha256;  // of the text; with prompt_tokens, for the receipt
  std::int64_t max_tokens = 2048;
  double temperature = 1.0;
  SamplingRequest sampling;
  std::vector<std::string> stop;
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> timeout_ms;
};

// POST /cancel
struct WorkerCancelRequest {
  std::string job_id;
};
struct WorkerCancelReply {
  std::string job_id;
  std::string status;  // "cancelling" | "unknown"
};

// GET /health
struct WorkerHealth {
  std::string status;  // "healthy" | "unhealthy"
  std::string worker_id;
  std::string model;
  std::string model_digest;
  bool resident = false;
  std::string quant_kind;
  std::int64_t vram_bytes_used = 0;
  std::string tokenizer_kind;
  std::int64_t vocab_size = 0;
  std::optional<std::int64_t> context_length;
  std::int64_t slots_total = 1;
  std::int64_t slots_free = 1;
  std::string engine_build;
  std::string numerics;
  std::string device_class;
  std::string sampler;
  std::string kv_dtype;
  std::vector<std::string> capabilities;
  std::string protocol = "sse";
  std::string memory_architecture;  // "vram-only" | "host"
  std::int64_t uptime_seconds = 0;
};

}  // namespace llorch::contract
