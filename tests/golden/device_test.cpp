// The engine on the real CPU device: memory to the byte, and a step that allocates nothing.
#include <gtest/gtest.h>

#include "base/testing/allocation_counter.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

using base::TokenId;
using engine::inference::Engine;
using engine::inference::EngineOptions;

std::unique_ptr<engine::plan::Backend> device(std::uint64_t budget_bytes) {
  return engine::compute::cpu::make_cpu_backend({.threads_count = 2, .memory_budget_bytes = budget_bytes}).value();
}

TEST(CpuDevice, MemoryIsPredictedToTheByte) {
  for (const char* type : {"f16", "q8_0", "q4_0"}) {
    for (const EngineOptions& options : {EngineOptions{}, EngineOptions{.context_tokens = 100, .slots = 4}}) {
      const auto backend = device(1ULL << 30);
      const auto predicted = Engine::predict(demo_model(type), options, *backend).value();
      const auto engine = Engine::load(demo_model(type), options, *backend).value();
      EXPECT_EQ(predicted.total_bytes(), backend->memory_used_bytes()) << type;
    }
  }
}

TEST(CpuDevice, OneByteTooLittleIsRefusedWithTheNumbers) {
  const auto probe = device(1ULL << 30);
  const std::uint64_t needed = Engine::predict(demo_model("q8_0"), {}, *probe).value().total_bytes();
  const auto exact = device(needed);
  EXPECT_TRUE(Engine::load(demo_model("q8_0"), {}, *exact));
  const auto small = device(needed - 1);
  const auto refused = Engine::load(demo_model("q8_0"), {}, *small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kOutOfDeviceMemory);
  EXPECT_NE(refused.error().message.find(std::to_string(needed)), std::string::npos) << refused.error().message;
  EXPECT_EQ(small->memory_used_bytes(), 0U);
}

TEST(CpuDevice, AStepAllocatesNothing) {
  const auto tokens = read_golden(repository() / "tests/golden/demo/tale-q8_0.bin").tokens;
  Device loaded(demo_model("q8_0"), {.chunk = 16, .threads = 2});
  Engine& engine = loaded.engine();
  ASSERT_TRUE(engine.prefill(0, tokens));
  ASSERT_TRUE(engine.reset(0));
  const auto before = base::testing::allocations_count();
  const bool fine = engine.prefill(0, tokens).has_value() && engine.decode(0, TokenId{1}).has_value();
  EXPECT_EQ(base::testing::allocations_count(), before);
  EXPECT_TRUE(fine);
}

}  // namespace
}  // namespace llorch::golden
