#include "cli/bench/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "engine/compute/cpu/backend.h"

namespace llorch::cli::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kDemoFile = LLORCH_SOURCE_DIR "/models/demo/fairytale-5m-q8_0.gguf";

TEST(BenchShapes, AreSortedAndFit) {
  std::vector<std::uint32_t> left_out;
  const CommandOptions options{
      .prompt_tokens = 100, .generate_tokens = 20, .batches = {4, 1, 4}, .contexts = {4096, 0}};
  const auto shape = shape_of(options, 4196, left_out);
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_THAT(shape->batches, ElementsAre(1, 4));
  EXPECT_THAT(shape->contexts, ElementsAre(0, 4096));
  EXPECT_EQ(shape->batch_max(), 4U);
  EXPECT_EQ(shape->positions_max(), 4196U);
  EXPECT_TRUE(left_out.empty());
}

TEST(BenchShapes, LeaveOutOnlyWhatNobodyAskedFor) {
  CommandOptions options{.prompt_tokens = 100, .contexts = {0, 4096}};
  std::vector<std::uint32_t> left_out;
  const auto shape = shape_of(options, 4195, left_out);
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_THAT(shape->contexts, ElementsAre(0));
  EXPECT_THAT(left_out, ElementsAre(4096));
  options.contexts_given = true;
  const auto asked = shape_of(options, 4195, left_out);
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_THAT(asked.error().message, HasSubstr("at most 4095"));
  const auto long_prompt = shape_of(options, 99, left_out);
  ASSERT_FALSE(long_prompt);
  EXPECT_THAT(long_prompt.error().message, HasSubstr("--prompt"));
}

class MeasureDemo : public testing::Test {
 protected:
  Report measure_until(std::size_t parts_max) {
    const auto backend =
        engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = std::uint64_t{1} << 30})
            .value();
    const auto engine = engine::inference::Engine::load(
        kDemoFile, {.context_tokens = static_cast<std::uint32_t>(shape_.positions_max()), .slots = shape_.batch_max()},
        *backend);
    EXPECT_TRUE(engine);
    const auto files = engine::io::ModelFiles::open(kDemoFile).value();
    const auto compiled = engine::models::compile_model(files, engine::plan::DType::kF16).value();
    Report report;
    report.machine.implementation = (*engine)->facts().implementation;
    std::size_t parts = 0;
    const auto measured = measure(**engine, traffic_of(compiled), shape_,
                                  {.should_stop = [&] { return parts >= parts_max; },
                                   .progress =
                                       [&](std::size_t done, std::size_t total, const std::string&) {
                                         EXPECT_LT(done, total);
                                         parts = done;
                                       }},
                                  report);
    EXPECT_TRUE(measured) << measured.error().message;
    return report;
  }

  const Shape shape_{
      .prompt_tokens = 70, .generate_tokens = 3, .batches = {1, 3}, .contexts = {0, 130}, .threads = 1, .runs = 2};
};

TEST_F(MeasureDemo, GivesEveryFigure) {
  const Report report = measure_until(1000);
  EXPECT_FALSE(report.interrupted);
  ASSERT_EQ(report.figures.size(), 6U);
  for (const Figure& figure : report.figures) {
    ASSERT_EQ(figure.samples.size(), 2U);
    for (const Sample& sample : figure.samples) {
      EXPECT_GT(sample.tokens_per_s, 0);
      EXPECT_GT(sample.share_of_limit, 0);
    }
  }
  EXPECT_EQ(report.figures[5].context, 130U);
  EXPECT_EQ(report.figures[5].batch, 3U);
  EXPECT_GT(report.figures[5].step_bytes, report.figures[2].step_bytes);
}

TEST_F(MeasureDemo, KeepsWhatIsThereWhenItIsStopped) {
  // Three fillings, a whole run of three figures, and one of the next.
  const Report report = measure_until(7);
  EXPECT_TRUE(report.interrupted);
  ASSERT_EQ(report.figures.size(), 3U);
  EXPECT_EQ(report.figures[0].samples.size(), 2U);
  EXPECT_EQ(report.figures[1].samples.size(), 1U);
  EXPECT_TRUE(measure_until(0).figures.empty());
}

}  // namespace
}  // namespace llorch::cli::bench
