#pragma once
// Makes the worker's reports on itself once its model is loaded: GET /health and the ready callback. Pure.
#include <cstdint>
#include <string>
#include <vector>

#include "engine/inference/engine.h"
#include "wire/pool.h"
#include "wire/worker.h"

namespace llorch::worker::loading {

struct ReadyReport {
  const engine::inference::EngineFacts& facts;
  std::string worker_id;
  std::string model_ref;
  std::string model_digest, model_stamp;
  std::string tokenizer_kind;
  std::string memory_architecture;
  // In use on each device, read at one moment; the figure for all devices is their sum.
  std::vector<std::uint64_t> memory_bytes;
  // What it is for on each device; empty: not told.
  std::vector<wire::DeviceMemory> memory_by_device{};
};

// The constant part of GET /health.
wire::WorkerHealth health_of(const ReadyReport& report);
// The ready callback without the worker's address and the callback token.
wire::ReadyCallback ready_call_of(const ReadyReport& report);

}  // namespace llorch::worker::loading
