#include "worker/loading/ready_report.h"

#include <gtest/gtest.h>

namespace llorch::worker::loading {
namespace {

// SYS-3.3.1: what a worker holds of its devices adds up to what it holds.
TEST(ReadyReport, TheDevicesAddUp) {
  const engine::inference::EngineFacts facts{.vocab = 40, .context_tokens = 64, .slots = 3, .weight_type = "F8_E4M3"};
  ReadyReport report{.facts = facts, .worker_id = "w", .model_digest = "sha256:ab", .memory_bytes = {300, 200, 7}};
  const wire::ReadyCallback several = ready_call_of(report);
  EXPECT_EQ(several.vram_bytes, 507);
  EXPECT_EQ(several.memory_bytes, 507);
  EXPECT_EQ(several.vram_bytes_by_device, (std::vector<std::int64_t>{300, 200, 7}));
  EXPECT_EQ(health_of(report).vram_bytes_used, 507);
  report.memory_bytes = {300};
  EXPECT_EQ(ready_call_of(report).vram_bytes, 300);
  EXPECT_TRUE(ready_call_of(report).vram_bytes_by_device.empty()) << "of one device there is nothing to add up";
  report.memory_by_device = {{.weights_bytes = 200, .cache_bytes = 60, .workspace_bytes = 40}};
  EXPECT_EQ(ready_call_of(report).memory_by_device.at(0).cache_bytes, 60) << "what it is for is told of one as well";
}

// What both say is the same.
TEST(ReadyReport, SaysWhatWasLoaded) {
  const engine::inference::EngineFacts facts{.vocab = 40,
                                             .context_tokens = 64,
                                             .slots = 3,
                                             .image_rows_max = 5,
                                             .weight_type = "F8_E4M3",
                                             .kv_dtype = "f16",
                                             .device_class = "A + B",
                                             .numerics = "cuda-3/tp2"};
  const ReadyReport report{.facts = facts,
                           .worker_id = "w",
                           .model_ref = "file:/m.gguf",
                           .model_digest = "sha256:ab",
                           .model_stamp = "cd",
                           .tokenizer_kind = "bpe",
                           .memory_architecture = "vram-only",
                           .memory_bytes = {1, 2}};
  const wire::WorkerHealth health = health_of(report);
  const wire::ReadyCallback call = ready_call_of(report);
  EXPECT_EQ(health.quant_kind, "F8_E4M3");
  EXPECT_EQ(health.model, "file:/m.gguf");
  EXPECT_EQ(call.model_ref, health.model);
  EXPECT_EQ(call.model_stamp, "cd");
  EXPECT_EQ(call.slots_total, 3);
  EXPECT_EQ(call.context_length, health.context_length);
  EXPECT_EQ(call.numerics, health.numerics);
  EXPECT_EQ(call.device_class, "A + B");
  EXPECT_EQ(call.memory_architecture, "vram-only");
  EXPECT_EQ(call.capabilities, (std::vector<std::string>{"text-gen", "multimodal"}));
}

}  // namespace
}  // namespace llorch::worker::loading
