// What is said of a model without loading it is what a load then says and takes.
#include <gtest/gtest.h>

#include <array>

#include "engine/compute/cpu/backend.h"
#include "engine/compute/cuda/backend.h"
#include "engine/compute/cuda/collective/collective.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/inference/testing/tiny_engine.h"
#include "pool_managerd/model_catalog/model_inspector.h"

namespace llorch::cuda_test {
namespace {

namespace cpu = engine::compute::cpu;
namespace cuda = engine::compute::cuda;
using base::ErrorCode;
using engine::inference::Engine;
using engine::inference::testing::ModelFile;
using engine::models::testing::TinyLlama;
using engine::plan::Backend;
using engine::plan::DType;
using pool_managerd::model_catalog::DeviceKind;
using pool_managerd::model_catalog::make_engine_inspector;

// A block type has less than a byte per element, which nothing that walks a vector may divide by.
TEST(Prediction, RefusesAVectorOfBlocksAsALoadDoes) {
  for (const DType type : {DType::kQ4_0, DType::kMXFP4, DType::kQ8_0}) {
    const ModelFile file(TinyLlama{.types = {{"blk.0.attn_norm.weight", type}}});
    const auto planner = cuda::make_cuda_planner();
    const auto gpu = cuda::emulation::make_backend({.memory_bytes = 1u << 24});
    const auto host = cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1u << 24, .isa = ""}).value();
    const auto loaded = Engine::load(file.path(), {}, *gpu);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, ErrorCode::kWeightDTypeUnsupported) << loaded.error().message;
    EXPECT_TRUE(loaded.error().message.starts_with("tensor blk.0.attn_norm.weight: the CUDA device"))
        << loaded.error().message;
    for (Backend* backend : {planner.get(), static_cast<Backend*>(gpu.get())}) {
      const auto predicted = Engine::predict(file.path(), {}, *backend);
      ASSERT_FALSE(predicted);
      EXPECT_EQ(predicted.error().code, loaded.error().code);
      EXPECT_EQ(predicted.error().message, loaded.error().message);
    }
    EXPECT_EQ(Engine::predict(file.path(), {}, *host).error().code, ErrorCode::kWeightDTypeUnsupported);
  }
}

// Who uploads without a prediction hears the same words.
TEST(Prediction, SaysOfATensorWhatAnUploadSays) {
  const std::vector<std::byte> bytes(36);
  const engine::plan::StoredTensor norm{.dtype = DType::kQ4_0,
                                        .rank = 1,
                                        .shape = {64},
                                        .bytes = bytes,
                                        .uses = static_cast<std::uint8_t>(engine::plan::WeightUse::kVector),
                                        .name = "norm"};
  const auto gpu = cuda::emulation::make_backend({.memory_bytes = 1u << 24});
  const auto host = cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1u << 24, .isa = ""}).value();
  for (Backend* backend : {static_cast<Backend*>(gpu.get()), host.get()}) {
    const auto checked = backend->check_weight(norm);
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, ErrorCode::kWeightDTypeUnsupported);
    EXPECT_EQ(checked.error().message, backend->upload_weight(norm).error().message);
  }
}

// SYS-6.3.3: with the room where GPUs gather what they add up.
TEST(EngineInspector, PredictsWhatEachOfTwoGpusGives) {
  const ModelFile file(TinyLlama{.tied = false});
  const auto plan =
      make_engine_inspector({.threads_count = 1})->inspect(file.path(), {.slots = 2, .devices = 2}, DeviceKind::kCuda);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->memory.size(), 2U);

  constexpr std::uint64_t kGpuBytes = 1u << 24;
  const std::array gpus{cuda::emulation::make_backend({.memory_bytes = kGpuBytes}),
                        cuda::emulation::make_backend({.memory_bytes = kGpuBytes})};
  auto nccl = cuda::Nccl::open(LLORCH_FAKE_NCCL, {0, 1});
  ASSERT_TRUE(nccl) << nccl.error().message;
  cuda::CudaCollective collective({{.backend = gpus[0].get()}, {.backend = gpus[1].get()}}, *std::move(nccl));
  const auto engine = Engine::load(file.path(),
                                   {.slots = 2,
                                    .prefill_chunk = static_cast<std::uint32_t>(plan->prefill_chunk),
                                    .output_rows_max = engine::inference::output_rows_of(2, 0),
                                    .draws = true},
                                   {.backends = {gpus[0].get(), gpus[1].get()}, .collective = &collective});
  ASSERT_TRUE(engine) << engine.error().message;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const auto& taken = (*engine)->memory_plan(rank);
    EXPECT_GT(taken.sums_bytes, 0U);
    EXPECT_EQ(taken.total_bytes(), gpus[rank]->memory_used_bytes());
    EXPECT_EQ(taken.peak_bytes(), taken.total_bytes());  // what a load takes beside hides nothing
    EXPECT_EQ(plan->memory[rank].bytes(), static_cast<std::int64_t>(taken.required_bytes()));
    EXPECT_EQ(plan->memory[rank].wanted_bytes(), static_cast<std::int64_t>(taken.peak_bytes()));
    EXPECT_EQ(plan->memory[rank].weights_bytes, static_cast<std::int64_t>(taken.weights_bytes));
    EXPECT_EQ(plan->memory[rank].kv_bytes, static_cast<std::int64_t>(taken.state_bytes));
  }
}

// A pool refuses for its staging no model that a load takes: with what it asks for at least the model is loaded, and with a byte
// less it is refused before any of it is read.
TEST(Prediction, StagingIsAskedForAsMuchAsALoadNeeds) {
  const ModelFile file(TinyLlama{.layers = 4, .width = 512, .ffn = 2048});
  const engine::inference::EngineOptions options{.context_tokens = 16, .prefill_chunk = 16};
  const auto plan = Engine::predict(file.path(), options, *cuda::make_cuda_planner()).value();
  EXPECT_GT(plan.peak_bytes(), plan.total_bytes());  // what staging would like is more than what stays
  EXPECT_EQ(plan.required_bytes(), plan.total_bytes());
  for (const std::uint64_t missing : {0U, 1U}) {
    const auto gpu = cuda::emulation::make_backend({.memory_bytes = plan.required_bytes() - missing});
    const auto engine = Engine::load(file.path(), options, *gpu);
    ASSERT_EQ(engine.has_value(), missing == 0);
    if (engine) {
      EXPECT_EQ(gpu->memory_used_bytes(), plan.total_bytes());
    } else {
      EXPECT_NE(engine.error().message.find("staging"), std::string::npos) << engine.error().message;
    }
  }
}

}  // namespace
}  // namespace llorch::cuda_test
