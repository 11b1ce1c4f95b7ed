#pragma once
// The limits that micro benches hold kernels against. A limit is probed between iterations, because other programs slow both,
// by different amounts within a second: a mean against the best of several probes says how loud the machine was.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "cli/bench/probes.h"
#include "engine/compute/cpu/kernels.h"
#include "median.h"

namespace llorch::bench {

// Seconds of work between two probes, about what a probe takes: of products, of reads.
inline constexpr double kProductSlice = 0.01, kReadSlice = 0.1;

// Multiply-adds per second of one thread from registers, now.
inline double peak_rate(engine::compute::cpu::host::Isa isa, bool quantized) {
  const auto product = quantized ? cli::bench::Product::kInteger : cli::bench::Product::kFloat;
  return cli::bench::multiply_adds_per_s(engine::compute::cpu::host::isa_name(isa), product, 1);
}

// The share of a limit that work has: the median over slices of time, each against a probe right after it. `alone`: of the slices
// before and after which nobody else took instruction slots of the core.
class ShareOfLimit {
 public:
  explicit ShareOfLimit(double slice_seconds) : slice_seconds_(slice_seconds) {}
  // Runs `work`, which gets `amount` done; after every slice `probe()` says what the limit is, per second.
  template <class Work, class Probe>
  void run(benchmark::State& state, double amount, const Work& work, const Probe& probe) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    done_ += amount;
    if (seconds_ < slice_seconds_) return;
    state.PauseTiming();
    const double core_share = cli::bench::core_share();
    shares_.push_back(done_ / seconds_ / probe());
    if (std::min(core_share, core_share_) >= cli::bench::kAloneShare) alone_.push_back(shares_.back());
    core_share_ = cli::bench::core_share();
    seconds_ = done_ = 0;
    state.ResumeTiming();
  }
  // of_limit, of the slices that were whole, and alone_of_limit; 0: there was none. alone: the share of slices that were.
  void set_counters(benchmark::State& state) {
    state.counters["of_limit"] = median_or_zero(shares_);
    state.counters["alone_of_limit"] = median_or_zero(alone_);
    state.counters["alone"] =
        shares_.empty() ? 0 : static_cast<double>(alone_.size()) / static_cast<double>(shares_.size());
  }

 private:
  static double median_or_zero(const std::vector<double>& values) { return values.empty() ? 0 : median(values); }

  double slice_seconds_, seconds_ = 0, done_ = 0, core_share_ = 0;
  std::vector<double> shares_, alone_;
};

}  // namespace llorch::bench
