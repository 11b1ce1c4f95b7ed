#pragma once
// What a worker says of itself when its model is loaded. Pure.
#include <cstdint>
#include <string>
#include <vector>

#include "contract/pool.h"
#include "contract/worker.h"
#include "engine/inference/engine.h"

namespace llorch::worker::loading {

struct Announcement {
  const engine::inference::EngineFacts& facts;
  std::string worker_id;
  std::string model_ref;
  std::string model_digest, model_stamp;
  std::string tokenizer_kind;
  std::string memory_architecture;
  // Of each device, read at one moment: what is said of all is their sum.
  std::vector<std::uint64_t> memory_bytes;
};

// The constant part of GET /health.
contract::WorkerHealth health_of(const Announcement& a);
// Without the address and the token.
contract::ReadyCallback ready_call_of(const Announcement& a);

}  // namespace llorch::worker::loading
