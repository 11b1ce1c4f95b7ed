// Two real GPUs that share a model, connected by NCCL: against the float64 references and bit by bit against themselves. With
// fewer than two every test says so and is skipped; LLORCH_REQUIRE_GPU=2 makes that a failure.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "cuda_support.h"
#include "engine/compute/cuda/backend.h"

namespace llorch::cuda_test {
namespace {

using engine::inference::Engine;
using engine::inference::parallel::Devices;
using golden::same_bits;

constexpr std::uint64_t kRankBudgetBytes = 4ULL << 30;

class GpuPair : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto made =
        engine::compute::cuda::make_cuda_group({.gpus = {{.device = 0, .memory_budget_bytes = kRankBudgetBytes},
                                                         {.device = 1, .memory_budget_bytes = kRankBudgetBytes}}});
    if (made) {
      group_ = *std::move(made);
      return;
    }
    ASSERT_EQ(made.error().code, base::ErrorCode::kGpuUnavailable) << made.error().message;
    const char* const required = std::getenv("LLORCH_REQUIRE_GPU");
    ASSERT_NE(std::string_view(required == nullptr ? "" : required), "2") << made.error().message;
    GTEST_SKIP() << made.error().message;
  }
  Devices devices() const {
    return {.backends = {group_.backends[0].get(), group_.backends[1].get()}, .collective = group_.collective.get()};
  }
  std::vector<float> score(const RunOptions& options) const {
    const auto engine = load(model_, options, devices());
    std::vector<float> logits;
    const auto done = engine->score(0, model_.reference.tokens, [&](std::size_t, std::span<const float> row) {
      logits.insert(logits.end(), row.begin(), row.end());
    });
    EXPECT_TRUE(done) << done.error().message;
    return logits;
  }

  Model model_ = read_model(GetParam());
  engine::compute::cuda::CudaGroup group_;
};

// SYS-6.3.3: the tolerance is that of one GPU. What was taken of each is what was predicted, and is given back.
TEST_P(GpuPair, AgreesWithTheReferenceAndItself) {
  const std::vector<float> logits = score({});
  EXPECT_LE(golden::relative_error(logits, model_.reference.logits), 2e-3);
  for (const std::uint32_t chunk : {1U, 7U, 64U}) EXPECT_TRUE(same_bits(score({.chunk = chunk}), logits)) << chunk;
  EXPECT_TRUE(same_bits(score({.chunk = 7, .slots = 2}), logits)) << "beside an empty slot";
  {
    const auto engine = load(model_, {}, devices());
    EXPECT_EQ(engine->facts().numerics, "cuda-4/tp2");
    EXPECT_TRUE(engine->check_residency());
    for (const std::uint32_t rank : {0U, 1U})
      EXPECT_EQ(engine->memory_plan(rank).total_bytes(), group_.backends[rank]->memory_used_bytes());
  }
  for (const auto& backend : group_.backends) {
    EXPECT_EQ(backend->memory_used_bytes(), 0U);
    EXPECT_TRUE(backend->synchronize());
  }
}

// SYS-3.3.1: a GPU without room for its part refuses for both, and the next load finds everything as it was.
TEST_P(GpuPair, IsTakenAsAWholeOrNotAtAll) {
  const engine::inference::EngineOptions options{.context_tokens = 64};
  const auto plans = Engine::predict(model_.path, options, devices()).value();
  const auto taken =
      group_.backends[1]->allocate(kRankBudgetBytes - plans[1].total_bytes() + 64, engine::plan::MemoryPurpose::kState);
  ASSERT_TRUE(taken) << taken.error().message;
  const auto refused = Engine::load(model_.path, options, devices());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kOutOfDeviceMemory);
  EXPECT_TRUE(refused.error().message.starts_with("device 1 of 2: ")) << refused.error().message;
  EXPECT_EQ(group_.backends[0]->memory_used_bytes(), 0U);
  group_.backends[1]->release(*taken);
  EXPECT_TRUE(Engine::load(model_.path, options, devices()));
}

INSTANTIATE_TEST_SUITE_P(Cuda, GpuPair,
                         testing::Values("llama3_gguf", "qwen2_gguf", "qwen3_moe_sparse_gguf", "gpt_oss_hf",
                                         "deepseek_v3_hf", "qwen3_vl_hf"),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace llorch::cuda_test
