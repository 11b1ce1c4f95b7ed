#include "engine/inference/parallel/host_collective.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::engine::inference::parallel {

using plan::Status;

HostCollective::HostCollective(std::span<plan::Backend* const> backends)
    : backends_(backends.begin(), backends.end()), brought_(backends.size()) {}

base::Result<> HostCollective::reserve(std::uint64_t values_max) {
  for (std::vector<float>& values : brought_) values.resize(values_max);
  sums_.resize(values_max);
  return {};
}

void HostCollective::release() noexcept {
  for (std::vector<float>& values : brought_) values = {};
  sums_ = {};
}

base::Result<> HostCollective::begin() {
  const std::lock_guard lock(mutex_);
  arrived_ = 0;
  aborted_ = false;
  return {};
}

Status HostCollective::sum(std::uint32_t rank, float* values, std::uint64_t count) noexcept {
  ASSERT(count <= sums_.size(), "a sum of {} values, {} were reserved", count, sums_.size());
  plan::Backend& backend = *backends_[rank];
  backend.copy_to_host(std::as_writable_bytes(std::span(brought_[rank]).first(count)),
                       reinterpret_cast<const std::byte*>(values));
  if (!barrier()) return Status::failed(base::ErrorCode::kCancelled);
  for (std::uint64_t i = count * rank / ranks(), end = count * (rank + std::uint64_t{1}) / ranks(); i < end; ++i) {
    float sum = brought_[0][i];
    for (std::uint32_t r = 1; r < ranks(); ++r) sum += brought_[r][i];
    sums_[i] = sum;
  }
  // Nobody writes what another still reads: the next addends are brought behind this barrier, the next sums made after the
  // next one, to which everybody comes with this sum taken.
  if (!barrier()) return Status::failed(base::ErrorCode::kCancelled);
  backend.copy_to_device(reinterpret_cast<std::byte*>(values), std::as_bytes(std::span(sums_).first(count)));
  return Status::ok();
}

// As many values at a time as there is room for.
Status HostCollective::join(std::uint32_t rank, const plan::RowParts& rows) noexcept {
  plan::Backend& backend = *backends_[rank];
  const std::uint64_t count = rows.rows * rows.width, at_once = brought_[rank].size();
  ASSERT(at_once != 0, "no room was reserved for {} values", count);
  for (std::uint64_t begin = 0; begin < count; begin += at_once) {
    const std::uint64_t end = std::min(count, begin + at_once);
    backend.copy_to_host(std::as_writable_bytes(std::span(brought_[rank]).first(end - begin)),
                         reinterpret_cast<const std::byte*>(rows.part + begin));
    if (!barrier()) return Status::failed(base::ErrorCode::kCancelled);
    for (std::uint64_t i = begin, stretch = 0; i < end; i += stretch) {
      const std::uint64_t row = i / rows.width, column = i % rows.width;
      stretch = std::min(end - i, rows.width - column);
      for (std::uint32_t r = 0; r < ranks(); ++r) {
        float* const to = rows.whole + (row * ranks() + r) * rows.width + column;
        backend.copy_to_device(reinterpret_cast<std::byte*>(to),
                               std::as_bytes(std::span(brought_[r]).subspan(i - begin, stretch)));
      }
    }
    if (!barrier()) return Status::failed(base::ErrorCode::kCancelled);  // everybody has taken what is overwritten next
  }
  return Status::ok();
}

bool HostCollective::barrier() noexcept {
  std::unique_lock lock(mutex_);
  if (aborted_) return false;
  const std::uint64_t passed = barriers_passed_;
  if (++arrived_ == ranks()) {
    arrived_ = 0;
    ++barriers_passed_;
    changed_.notify_all();
    return true;
  }
  changed_.wait(lock, [&] { return aborted_ || barriers_passed_ != passed; });
  return barriers_passed_ != passed;
}

void HostCollective::abort() noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

}  // namespace llorch::engine::inference::parallel
