// The recorder on real models: equal runs stay equal however they are cut, different ones part at the right instruction.
#include "engine/inference/trace/recorder.h"

#include <gtest/gtest.h>

#include <optional>

#include "golden_support.h"

namespace llorch::golden {
namespace {

using engine::inference::trace::Comparison;
using engine::inference::trace::Recorder;
using engine::inference::trace::RowRecord;
using engine::plan::DType;
using engine::plan::Opcode;
using Verdict = Comparison::Verdict;

const std::vector<base::TokenId>& tokens() {
  static const std::vector<base::TokenId> all = read_golden(repository() / "tests/golden/demo/tale-f16.bin").tokens;
  return all;
}

std::vector<RowRecord> record(const RunOptions& options) {
  Device device(demo_model("f16"), options);
  std::vector<RowRecord> records;
  Recorder recorder(device.backend(), [&](const RowRecord& row, std::span<const float> values) {
    EXPECT_EQ(row.width, values.size());
    records.push_back(row);
    return true;
  });
  device.engine().observe(&recorder);
  EXPECT_TRUE(device.engine().score(0, tokens(), [](std::size_t, std::span<const float>) {}));
  return records;
}

// The first record of a run that differs from `comparison`; the run stops there.
std::optional<RowRecord> first_difference(const RunOptions& options, Comparison& comparison) {
  Device device(demo_model("f16"), options);
  std::optional<RowRecord> different;
  Recorder recorder(device.backend(), [&](const RowRecord& row, std::span<const float>) {
    if (comparison.check(row) == Verdict::kDifferent) different = row;
    return !different;
  });
  device.engine().observe(&recorder);
  const auto scored = device.engine().score(0, tokens(), [](std::size_t, std::span<const float>) {});
  EXPECT_EQ(scored.has_value(), !different);
  if (!scored) {
    EXPECT_EQ(scored.error().code, base::ErrorCode::kCancelled);
  }
  return different;
}

TEST(Trace, EqualRunsAreEqualHoweverTheyAreCut) {
  const std::vector<RowRecord> whole = record({});
  EXPECT_EQ(whole.size() % tokens().size(), 0U);
  for (const RunOptions& options : {RunOptions{.chunk = 7}, RunOptions{.chunk = 1, .threads = 2}}) {
    Comparison comparison(whole, 0);
    EXPECT_FALSE(first_difference(options, comparison));
    EXPECT_EQ(comparison.unseen_count(), 0U);
  }
}

TEST(Trace, ADifferenceIsFoundWhereItBegins) {
  Comparison comparison(record({}), 0);
  const auto different = first_difference({.kv_dtype = DType::kF16}, comparison);
  ASSERT_TRUE(different);
  EXPECT_EQ(different->opcode, Opcode::kMultiheadAttention) << "only the cache differs";
  EXPECT_EQ(different->key.instruction, 2U);
  const RowRecord* before = comparison.recorded(different->key);
  ASSERT_NE(before, nullptr);
  EXPECT_NEAR(before->rms, different->rms, 1e-2 * before->rms);

  Comparison tolerant(record({}), 2e-2);
  EXPECT_FALSE(first_difference({.kv_dtype = DType::kF16}, tolerant)) << "within what an f16 cache costs";
}

}  // namespace
}  // namespace llorch::golden
