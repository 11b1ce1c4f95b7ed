#pragma once
// Sums over host memory: for devices without a link of their own, which are those of tests.
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "engine/plan/backend.h"
#include "engine/plan/collective.h"

namespace llorch::engine::inference::parallel {

// Every rank brings its values to the host, adds up its stretch of everybody's in rank order, and takes the whole back.
class HostCollective final : public plan::Collective {
 public:
  // The backends, in rank order, outlive this.
  explicit HostCollective(std::span<plan::Backend* const> backends);

  std::uint32_t ranks() const override { return static_cast<std::uint32_t>(backends_.size()); }
  base::Result<> reserve(std::uint64_t values_max) override;
  void release() noexcept override;
  base::Result<> begin() override;
  plan::Status sum(std::uint32_t rank, float* values, std::uint64_t count) noexcept override;
  plan::Status join(std::uint32_t rank, const plan::RowParts& rows) noexcept override;
  void abort() noexcept override;

 private:
  // Waits for all ranks; false once the step was aborted.
  bool barrier() noexcept;

  std::vector<plan::Backend*> backends_;
  std::vector<std::vector<float>> brought_;  // [ranks][values_max]
  std::vector<float> sums_;                  // [values_max]

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t arrived_ = 0;          // guarded by mutex_
  std::uint64_t barriers_passed_ = 0;  // guarded by mutex_
  bool aborted_ = false;               // guarded by mutex_
};

}  // namespace llorch::engine::inference::parallel
