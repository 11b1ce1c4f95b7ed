#pragma once
// What a model file says about itself and what one worker of it needs. Values; no thread rule.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/model_digest.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::model_catalog {

// The shape of a worker: what multiplies the memory beyond the weights.
struct WorkerShape {
  std::int64_t context_tokens = 0;  // per slot, at most; 0, or more than the model was made for: its own context
  std::int64_t slots = 1;
  std::int64_t kv_tokens = 0;  // of the cache of all slots; 0 = slots x context
  std::string kv_dtype = "f16";
  std::int64_t image_tokens_max = 0;  // of one request; 0 = takes no images
  std::int64_t devices = 1;           // that share the model
  bool operator==(const WorkerShape&) const = default;
};

// What a worker computes on: the same model takes different memory there.
enum class DeviceKind : std::uint8_t { kCpu, kCuda };

// What a worker takes of one device.
struct MemoryNeed {
  std::int64_t weights_bytes = 0;
  std::int64_t kv_bytes = 0;
  std::int64_t working_bytes = 0;  // activations, workspace, tables, sums
  // Memory beside the weights while they are loaded, before the rest is taken: the least a load can do with, and what
  // it takes where there is room.
  std::int64_t staging_bytes = 0;
  std::int64_t staging_wanted_bytes = 0;
  std::int64_t widened_bytes = 0;  // of the weights: FP8 in the file, BF16 there
  // Without these there is no worker.
  std::int64_t bytes() const { return std::max(loaded_bytes(), weights_bytes + staging_bytes); }
  // The most it ever has where there is room.
  std::int64_t wanted_bytes() const { return std::max(bytes(), weights_bytes + staging_wanted_bytes); }
  std::int64_t loaded_bytes() const { return weights_bytes + kv_bytes + working_bytes; }
};

struct ModelPlan {
  std::string path;  // absolute, symlinks resolved
  std::string architecture;
  std::string quant_kind;  // that most weights have on the device
  std::int64_t size_bytes = 0;
  std::int64_t vocab_size = 0;
  std::optional<std::int64_t> hidden_size;  // absent: not known
  std::int64_t model_context = 0;
  WorkerShape shape;  // resolved: context_tokens > 0
  std::optional<wire::ModelImages> images;
  std::optional<std::int64_t> embedding_dimensions;  // absent: makes no vectors
  bool reranks = false;
  bool predicts = false;  // its own layer for further tokens is counted; the worker is started with it
  std::optional<engine::io::StampedDigest> digest;  // where it is known without reading the file
  std::int64_t prefill_chunk = 64;  // most rows of one step, as predicted; the worker is started with it
  std::vector<MemoryNeed> memory;   // by rank; one for every device of the shape
  // The need on the device that gives most.
  std::int64_t required_bytes() const {
    std::int64_t most = 0;
    for (const MemoryNeed& need : memory) most = std::max(most, need.bytes());
    return most;
  }
};

}  // namespace llorch::pool_managerd::model_catalog
