#include "engine/inference/trace/recorder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/sha256.h"

namespace llorch::engine::inference::trace {

using plan::ExecutionContext;
using plan::PreparedInsn;
using plan::Status;

RowRecord make_record(RowKey key, plan::Opcode opcode, std::span<const float> row) {
  RowRecord record{.key = key, .opcode = opcode, .width = static_cast<std::uint32_t>(row.size())};
  record.min = std::numeric_limits<float>::infinity(), record.max = -record.min;
  double sum = 0, squares = 0;
  for (float value : row) {
    if (!std::isfinite(value)) {
      ++record.nonfinite;
      continue;
    }
    record.min = std::min(record.min, value), record.max = std::max(record.max, value);
    sum += value, squares += double{value} * value;
  }
  if (const std::size_t finite = row.size() - record.nonfinite; finite != 0) {
    record.mean = sum / static_cast<double>(finite), record.rms = std::sqrt(squares / static_cast<double>(finite));
  } else {
    record.min = record.max = 0;
  }
  const base::Sha256Digest digest = base::sha256({reinterpret_cast<const char*>(row.data()), row.size_bytes()});
  std::copy_n(digest.begin(), record.bits_hash.size(), record.bits_hash.begin());
  return record;
}

Status Recorder::after(const ExecutionContext& ctx, std::size_t instruction, const PreparedInsn& prepared) noexcept {
  const plan::TensorViewDesc& view = prepared.views[prepared.insn->inputs.size()];
  const std::size_t width = view.shape[1];
  const plan::Opcode opcode = prepared.insn->opcode;
  // Rows are those whose outputs are wanted.
  const bool outputs =
      opcode == plan::Opcode::kLmHead || opcode == plan::Opcode::kPool || opcode == plan::Opcode::kDense;
  const std::size_t rows = outputs ? ctx.output_rows.size() : ctx.total_rows;
  values_.resize(rows * width);
  backend_.copy_to_host(std::as_writable_bytes(std::span(values_)), prepared.output<std::byte>(0));
  if (const auto done = backend_.synchronize(); !done) return Status::failed(done.error().code);
  std::size_t active = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::uint32_t row = outputs ? ctx.output_rows[i] : static_cast<std::uint32_t>(i);
    while (row >= ctx.row_offsets[active + 1]) ++active;
    const std::uint32_t position = ctx.sequence_lengths[active] - (ctx.row_offsets[active + 1] - row);
    const std::span<const float> values = std::span(values_).subspan(i * width, width);
    const RowKey key{ctx.active_slots[active], position, static_cast<std::uint32_t>(instruction)};
    if (!sink_(make_record(key, prepared.insn->opcode, values), values))
      return Status::failed(base::ErrorCode::kCancelled);
  }
  return Status::ok();
}

Comparison::Comparison(std::vector<RowRecord> recorded, double tolerance)
    : recorded_(std::move(recorded)), tolerance_(tolerance) {
  std::ranges::sort(recorded_, {}, &RowRecord::key);
}

const RowRecord* Comparison::recorded(const RowKey& key) const {
  const auto it = std::ranges::lower_bound(recorded_, key, {}, &RowRecord::key);
  return it != recorded_.end() && it->key == key ? &*it : nullptr;
}

Comparison::Verdict Comparison::check(const RowRecord& record) {
  const RowRecord* before = recorded(record.key);
  if (before == nullptr) return Verdict::kNotRecorded;
  ++seen_count_;
  if (before->opcode != record.opcode || before->width != record.width) return Verdict::kDifferent;
  if (before->bits_hash == record.bits_hash) return Verdict::kEqual;
  const double allowed = tolerance_ * std::max(before->rms, record.rms);
  const auto near = [allowed](double a, double b) { return std::abs(a - b) <= allowed; };
  const bool equal = allowed > 0 && before->nonfinite == record.nonfinite && near(before->min, record.min) &&
                     near(before->max, record.max) && near(before->mean, record.mean) && near(before->rms, record.rms);
  return equal ? Verdict::kEqual : Verdict::kDifferent;
}

}  // namespace llorch::engine::inference::trace
