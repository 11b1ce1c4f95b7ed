#include "cli/bench/traffic.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/io/model_files.h"

namespace llorch::cli::bench {
namespace {

const std::filesystem::path kDemo = std::filesystem::path(LLORCH_SOURCE_DIR) / "models/demo";

Traffic traffic_of_file(const std::filesystem::path& path) {
  const auto files = engine::io::ModelFiles::open(path).value();
  return traffic_of(engine::models::compile_model(files, engine::plan::DType::kF16).value());
}

TEST(BenchTraffic, IsThatOfTheDemo) {
  const auto files = engine::io::ModelFiles::open(kDemo / "fairytale-5m-q8_0.gguf").value();
  std::uint64_t all = 0, matrices = 0, head = 0;
  for (const auto& tensor : files.tensors()) {
    all += tensor.data.size();
    const bool is_table = tensor.name == "token_embd.weight" || tensor.name == "output.weight";
    if (is_table) head = tensor.data.size();
    if (!is_table && tensor.elements_count() > 256) matrices += tensor.elements_count();
  }
  const Traffic traffic = traffic_of_file(kDemo / "fairytale-5m-q8_0.gguf");
  EXPECT_EQ(traffic.row_multiply_adds, matrices) << "without the head";
  EXPECT_LE(traffic.weights_bytes, all);
  EXPECT_GE(traffic.weights_bytes, all - head) << "of two tables only the head is read whole";
  EXPECT_TRUE(traffic.multiplies_integers);
  EXPECT_TRUE(traffic.experts.empty());
  EXPECT_GT(traffic.embedding_row_bytes, 0U);
  ASSERT_EQ(traffic.caches.size(), 1U);
  EXPECT_EQ(traffic.caches[0].window_tokens, 0U);
  EXPECT_FALSE(traffic_of_file(kDemo / "fairytale-5m-f16.gguf").multiplies_integers);
}

TEST(BenchTraffic, GrowsWithBatchAndContext) {
  const Traffic traffic{
      .weights_bytes = 1000, .caches = {{.bytes_per_token = 10}}, .embedding_row_bytes = 4, .state_bytes = 6};
  EXPECT_DOUBLE_EQ(decode_step_bytes(traffic, 1, 0), 1010);
  EXPECT_DOUBLE_EQ(decode_step_bytes(traffic, 1, 100), 2010);
  EXPECT_DOUBLE_EQ(decode_step_bytes(traffic, 8, 100), 1000 + 8 * 1010);
}

TEST(BenchTraffic, StopsGrowingAtAWindow) {
  const Traffic traffic{.caches = {{.bytes_per_token = 10, .window_tokens = 64}, {.bytes_per_token = 1}}};
  EXPECT_DOUBLE_EQ(decode_step_bytes(traffic, 1, 63), 693);
  EXPECT_DOUBLE_EQ(decode_step_bytes(traffic, 1, 1000), 640 + 1000);
}

TEST(BenchTraffic, CountsExpertsThatRowsTouch) {
  const Traffic traffic{.experts = {{.bytes = 800, .experts = 8, .experts_used = 2}}};
  EXPECT_DOUBLE_EQ(decode_step_bytes(traffic, 1, 0), 200);
  EXPECT_DOUBLE_EQ(decode_step_bytes(traffic, 2, 0), 800 * (1 - 0.75 * 0.75)) << "two rows may choose alike";
  EXPECT_NEAR(decode_step_bytes(traffic, 200, 0), 800, 1e-6);
}

}  // namespace
}  // namespace llorch::cli::bench
