#include "worker/loading/announcement.h"

#include <numeric>

#include "base/build_id.h"
#include "engine/sampling/params.h"

namespace llorch::worker::loading {
namespace {

std::vector<std::string> capabilities_of(const engine::inference::EngineFacts& facts) {
  if (facts.image_rows_max == 0) return {"text-gen"};
  return {"text-gen", "multimodal"};
}

std::vector<std::int64_t> bytes_by_device(const Announcement& a) {
  return {a.memory_bytes.begin(), a.memory_bytes.end()};
}

std::int64_t bytes_of_all(const Announcement& a) {
  const std::vector<std::int64_t> bytes = bytes_by_device(a);
  return std::reduce(bytes.begin(), bytes.end());
}

}  // namespace

wire::WorkerHealth health_of(const Announcement& a) {
  return {.status = "healthy",
          .worker_id = a.worker_id,
          .model = a.model_ref,
          .model_digest = a.model_digest,
          .resident = true,
          .quant_kind = a.facts.weight_type,
          .vram_bytes_used = bytes_of_all(a),
          .tokenizer_kind = a.tokenizer_kind,
          .vocab_size = a.facts.vocab,
          .context_length = a.facts.context_tokens,
          .image_tokens_max = a.facts.image_rows_max,
          .engine_build = base::build_id(),
          .numerics = a.facts.numerics,
          .device_class = a.facts.device_class,
          .sampler = std::string(engine::sampling::kSamplerVersion),
          .kv_dtype = a.facts.kv_dtype,
          .capabilities = capabilities_of(a.facts),
          .memory_architecture = a.memory_architecture};
}

wire::ReadyCallback ready_call_of(const Announcement& a) {
  const std::int64_t bytes = bytes_of_all(a);
  return {.worker_id = a.worker_id,
          .spawn_token = {},
          .model_ref = a.model_ref,
          .model_digest = a.model_digest,
          .model_stamp = a.model_stamp,
          .uri = {},
          .vram_bytes = bytes,
          .memory_bytes = bytes,
          .vram_bytes_by_device = a.memory_bytes.size() > 1 ? bytes_by_device(a) : std::vector<std::int64_t>{},
          .memory_architecture = a.memory_architecture,
          .worker_type = "bespoke-cuda",
          .capabilities = capabilities_of(a.facts),
          .slots_total = a.facts.slots,
          .context_length = a.facts.context_tokens,
          .image_tokens_max = a.facts.image_rows_max,
          .engine_build = base::build_id(),
          .numerics = a.facts.numerics,
          .device_class = a.facts.device_class,
          .sampler = std::string(engine::sampling::kSamplerVersion),
          .kv_dtype = a.facts.kv_dtype};
}

}  // namespace llorch::worker::loading
