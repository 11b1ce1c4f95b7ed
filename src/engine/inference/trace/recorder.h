#pragma once
// What every instruction wrote, row by row: for finding the instruction, and so the layer, where two runs part ways.
#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/inference/executor.h"
#include "engine/plan/backend.h"

namespace llorch::engine::inference::trace {

// A row of a sequence, whatever step computed it: the same in a whole run, in chunks and token by token.
struct RowKey {
  std::uint32_t slot = 0;
  std::uint32_t position = 0;
  std::uint32_t instruction = 0;
  auto operator<=>(const RowKey&) const = default;
};

struct RowRecord {
  RowKey key;
  plan::Opcode opcode{};
  std::uint32_t width = 0;
  float min = 0;
  float max = 0;
  double mean = 0;
  double rms = 0;
  std::uint32_t nonfinite = 0;               // left out of the four above
  std::array<std::uint8_t, 16> bits_hash{};  // SHA-256 of the row's bytes, first half
};

RowRecord make_record(RowKey key, plan::Opcode opcode, std::span<const float> row);

// Gets each row once, in the order of execution; false stops the step, which then fails with CANCELLED.
using RowSink = std::function<bool(const RowRecord& record, std::span<const float> row)>;

// Reads back what the instructions of a step write. Slow by design: it waits for the device after every instruction.
// Instructions whose rows are no rows of a sequence (those of the vision stage) are not recorded.
class Recorder : public InstructionObserver {
 public:
  Recorder(plan::Backend& backend, RowSink sink) : backend_(backend), sink_(std::move(sink)) {}
  plan::Status after(const plan::ExecutionContext& ctx, std::size_t instruction,
                     const plan::PreparedInsn& prepared) noexcept override;

 private:
  plan::Backend& backend_;
  RowSink sink_;
  std::vector<float> values_;
};

// Compares a run with a recorded one. A row counts as equal when its bits are, or, with a tolerance, when min, max, mean
// and rms each differ by at most `tolerance` times the larger rms.
class Comparison {
 public:
  // `recorded` in any order, keys unique.
  Comparison(std::vector<RowRecord> recorded, double tolerance);

  enum class Verdict : std::uint8_t { kEqual, kDifferent, kNotRecorded };
  Verdict check(const RowRecord& record);
  const RowRecord* recorded(const RowKey& key) const;  // null when there is none
  std::size_t unseen_count() const { return recorded_.size() - seen_count_; }

 private:
  std::vector<RowRecord> recorded_;  // by key
  double tolerance_;
  std::size_t seen_count_ = 0;
};

}  // namespace llorch::engine::inference::trace
