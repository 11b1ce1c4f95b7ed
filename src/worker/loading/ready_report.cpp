#include "worker/loading/ready_report.h"

#include <numeric>

#include "base/build_id.h"
#include "engine/sampling/params.h"

namespace llorch::worker::loading {
namespace {

std::vector<std::string> capabilities_of(const engine::inference::EngineFacts& facts) {
  if (facts.scores) return {"rerank"};
  if (facts.pooling != engine::plan::Pooling::kNone) return {"embedding"};
  if (facts.image_rows_max == 0) return {"text-gen"};
  return {"text-gen", "multimodal"};
}

std::vector<std::int64_t> bytes_by_device(const ReadyReport& report) {
  return {report.memory_bytes.begin(), report.memory_bytes.end()};
}

std::int64_t bytes_of_all(const ReadyReport& report) {
  const std::vector<std::int64_t> bytes = bytes_by_device(report);
  return std::reduce(bytes.begin(), bytes.end());
}

}  // namespace

wire::WorkerHealth health_of(const ReadyReport& report) {
  return {.status = "healthy",
          .worker_id = report.worker_id,
          .model = report.model_ref,
          .model_digest = report.model_digest,
          .resident = true,
          .quant_kind = report.facts.weight_type,
          .vram_bytes_used = bytes_of_all(report),
          .tokenizer_kind = report.tokenizer_kind,
          .vocab_size = report.facts.vocab,
          .context_length = report.facts.context_tokens,
          .image_tokens_max = report.facts.image_rows_max,
          .engine_build = base::build_id(),
          .numerics = report.facts.numerics,
          .device_class = report.facts.device_class,
          .sampler = std::string(engine::sampling::kSamplerVersion),
          .kv_dtype = report.facts.kv_dtype,
          .capabilities = capabilities_of(report.facts),
          .memory_architecture = report.memory_architecture};
}

wire::ReadyCallback ready_call_of(const ReadyReport& report) {
  const std::int64_t bytes = bytes_of_all(report);
  return {
      .worker_id = report.worker_id,
      .spawn_token = {},
      .model_ref = report.model_ref,
      .model_digest = report.model_digest,
      .model_stamp = report.model_stamp,
      .uri = {},
      .vram_bytes = bytes,
      .memory_bytes = bytes,
      .vram_bytes_by_device = report.memory_bytes.size() > 1 ? bytes_by_device(report) : std::vector<std::int64_t>{},
      .memory_by_device = report.memory_by_device,
      .memory_architecture = report.memory_architecture,
      .worker_type = "bespoke-cuda",
      .capabilities = capabilities_of(report.facts),
      .slots_total = report.facts.slots,
      .context_length = report.facts.context_tokens,
      .image_tokens_max = report.facts.image_rows_max,
      .engine_build = base::build_id(),
      .numerics = report.facts.numerics,
      .device_class = report.facts.device_class,
      .sampler = std::string(engine::sampling::kSamplerVersion),
      .kv_dtype = report.facts.kv_dtype};
}

}  // namespace llorch::worker::loading
