#include "engine/compute/cpu/sampler/cpu_sampler.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

#include "base/assert.h"
#include "engine/plan/draw_math.h"

namespace llorch::engine::compute::cpu::sampler {

using plan::DrawFault;
using plan::RowDraw;
using plan::RowDrawn;

namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr std::size_t kLaneBytes = 2 * sizeof(std::uint64_t) + 2 * sizeof(float);  // of scratch, per element of a row
// From here on, counting digits beats comparing keys.
constexpr std::size_t kRadixKeysMin = 2048;
constexpr std::size_t kWeightsAtOnce = 1024;

// Candidates are few where a model is sure and most of the vocabulary where it is not. Keys come in ascending order of the
// index, so sorting stably by the upper half, 31 bits, orders them.
void radix_sort(std::uint64_t*& keys, std::uint64_t*& other, std::size_t count) {
  constexpr std::size_t kDigits = 3, kDigitBits = 11, kValues = 1u << kDigitBits;
  const auto digit = [](std::uint64_t key, std::size_t d) {
    return static_cast<std::size_t>(key >> (32 + d * kDigitBits)) % kValues;
  };
  std::array<std::array<std::uint32_t, kValues>, kDigits> places{};
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t d = 0; d < kDigits; ++d) ++places[d][digit(keys[i], d)];
  for (std::size_t d = 0; d < kDigits; ++d) {
    std::uint32_t before = 0;
    for (std::uint32_t& place : places[d]) before += std::exchange(place, before);
    for (std::size_t i = 0; i < count; ++i) other[places[d][digit(keys[i], d)]++] = keys[i];
    std::swap(keys, other);
  }
}

// The first `wanted` of all, in order; the rest in any.
void sort_first(std::uint64_t*& keys, std::uint64_t*& other, std::size_t count, std::size_t wanted) {
  if (wanted >= kRadixKeysMin) return radix_sort(keys, other, count);
  if (wanted < count) std::nth_element(keys, keys + wanted, keys + count);
  std::sort(keys, keys + wanted);
}

void edit(float* row, std::span<const plan::RowEdit> edits) {
  for (const plan::RowEdit& one : edits) row[one.index] = plan::edited(row[one.index], one);
}

void mask(float* row, std::size_t width, std::span<const std::uint32_t> allowed) {
  for (std::size_t word = 0; word < allowed.size(); ++word) {
    if (allowed[word] == ~std::uint32_t{0}) continue;
    const std::size_t begin = word * 32, end = std::min(begin + 32, width);
    for (std::size_t i = begin; i < end; ++i)
      if ((allowed[word] >> (i - begin) & 1u) == 0) row[i] = kMasked;
  }
}

}  // namespace

// The sorted candidates of a row, a prefix of which is left, and the running sums of their weights: each one f32 addition, up to a
// weight that leaves the sum as it is, as all later ones would.
class CpuSampler::Walk {
 public:
  Walk(const Kernels& kernels, const Scratch& scratch, std::size_t count)
      : kernels_(kernels), scratch_(scratch), count_(count) {}

  std::size_t count() const { return count_; }
  std::uint32_t index(std::size_t i) const { return plan::candidate_index(scratch_.keys[i]); }
  void keep(std::size_t n, std::size_t at_least) {
    count_ = std::min(count_, std::max({n, at_least, std::size_t{1}}));
    walked_ = std::min(walked_, count_);
  }
  float weight(std::size_t i) {
    while (i >= weighed_) {
      const std::size_t more = std::min(kWeightsAtOnce, count_ - weighed_);
      kernels_.candidate_weights(scratch_.keys + weighed_, more, scratch_.weights + weighed_);
      weighed_ += more;
    }
    return scratch_.weights[i];
  }
  float total() {
    float sum = walked_ > 0 ? scratch_.sums[walked_ - 1] : 0.0f;
    while (walked_ < count_ && !settled_) {
      const float next = sum + weight(walked_);
      if (next == sum && walked_ > 0) {
        settled_ = true;
      } else {
        scratch_.sums[walked_++] = sum = next;
      }
    }
    return sum;
  }
  // REQUIRES: enough <= total().
  std::size_t prefix_reaching(float enough) const {
    return static_cast<std::size_t>(std::lower_bound(scratch_.sums, scratch_.sums + walked_, enough) - scratch_.sums) +
           1;
  }
  // REQUIRES: target < total().
  std::size_t first_exceeding(float target) const {
    return static_cast<std::size_t>(std::upper_bound(scratch_.sums, scratch_.sums + walked_, target) - scratch_.sums);
  }

 private:
  const Kernels& kernels_;
  const Scratch& scratch_;
  std::size_t count_;
  std::size_t weighed_ = 0, walked_ = 0;
  bool settled_ = false;
};

std::uint64_t CpuSampler::bytes(const plan::DrawLimits& limits, std::size_t threads_count) {
  return std::min<std::uint64_t>(threads_count, limits.rows_max) * limits.width * kLaneBytes;
}

base::Result<std::unique_ptr<CpuSampler>> CpuSampler::make(plan::Backend& backend, const CpuStream& stream,
                                                           const plan::DrawLimits& limits) {
  std::unique_ptr<CpuSampler> sampler(new CpuSampler(stream, limits));
  const std::size_t threads = stream.pool.threads_count();
  sampler->lanes_ = std::min<std::size_t>(threads, limits.rows_max);
  sampler->memory_ = TRY(plan::DeviceBuffer::allocate(backend, bytes(limits, threads), plan::MemoryPurpose::kTables));
  sampler->drawn_.reserve(limits.rows_max);
  return sampler;
}

CpuSampler::Scratch CpuSampler::scratch_of(std::size_t lane) const {
  std::byte* const at = memory_.data() + lane * limits_.width * kLaneBytes;
  auto* const keys = reinterpret_cast<std::uint64_t*>(at);
  auto* const weights = reinterpret_cast<float*>(keys + 2 * std::size_t{limits_.width});
  return {.keys = keys, .other = keys + limits_.width, .weights = weights, .sums = weights + limits_.width};
}

void CpuSampler::draw(float* rows, std::span<const RowDraw> draws) noexcept {
  ASSERT(draws.size() <= limits_.rows_max, "{} draws of {}", draws.size(), limits_.rows_max);
  drawn_.resize(draws.size());
  std::atomic<std::size_t> next = 0;
  stream_.pool.run(std::min(lanes_, draws.size()), 1, [&](Range lanes, std::size_t) {
    const Scratch scratch = scratch_of(lanes.begin);
    for (std::size_t i = next.fetch_add(1); i < draws.size(); i = next.fetch_add(1))
      drawn_[i] = draw_row(rows + std::size_t{draws[i].row} * limits_.width, draws[i], scratch);
  });
}

RowDrawn CpuSampler::draw_row(float* row, const RowDraw& draw, const Scratch& scratch) const {
  const std::size_t width = limits_.width;
  RowScan scan = stream_.kernels.scan_row(row, width);
  if (!scan.finite) return {.fault = DrawFault::kNotFinite};
  edit(row, draw.edits);
  mask(row, width, draw.allowed);
  if (!draw.edits.empty() || !draw.allowed.empty()) scan = stream_.kernels.scan_row(row, width);
  if (scan.largest == kMasked) return {.fault = DrawFault::kNothingAllowed};
  if (draw.temperature == 0.0f)
    return {.index = static_cast<std::uint32_t>(std::find(row, row + width, scan.largest) - row)};
  Scratch own = scratch;
  const std::size_t count = stream_.kernels.collect_candidates({.row = row,
                                                                .width = width,
                                                                .largest = scan.largest,
                                                                .divisor = draw.temperature,
                                                                .x_min = plan::kDrawTailX,
                                                                .keys = own.keys});
  const std::size_t wanted = draw.top_k > 0 ? std::min<std::size_t>(draw.top_k, count) : count;
  sort_first(own.keys, own.other, count, wanted);
  Walk walk(stream_.kernels, own, wanted);
  if (draw.top_p < 1.0f) {
    const float enough = draw.top_p * walk.total();
    walk.keep(walk.prefix_reaching(enough), draw.min_keep);
  }
  if (draw.min_p > 0.0f) {
    const float least = draw.min_p * walk.weight(0);
    std::size_t n = 1;
    while (n < walk.count() && walk.weight(n) >= least) ++n;
    walk.keep(n, draw.min_keep);
  }
  // u <= 1 - 2^-24, so the rounded product stays below the total.
  const float target = draw.uniform * walk.total();
  return {.index = walk.index(walk.first_exceeding(target))};
}

}  // namespace llorch::engine::compute::cpu::sampler
