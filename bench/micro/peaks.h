#pragma once
// The limits that micro benches hold kernels against. A limit is probed between iterations, because other programs slow both,
// by different amounts within a second: a mean against the best of several probes says how loud the machine was.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "cli/bench/probes.h"
#include "engine/compute/cpu/kernels.h"

namespace llorch::bench {

// Seconds of work between two probes, about what a probe takes: of products, of reads.
inline constexpr double kProductSlice = 0.01, kReadSlice = 0.1;

// Multiply-adds per second of one thread from registers, now.
inline double peak_rate(engine::compute::cpu::host::Isa isa, bool quantized) {
  const auto product = quantized ? cli::bench::Product::kInteger : cli::bench::Product::kFloat;
  return cli::bench::multiply_adds_per_s(engine::compute::cpu::host::isa_name(isa), product, 1);
}

// The share of a limit that work has: the median over slices of time, each against a probe right after it.
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
    shares_.push_back(done_ / seconds_ / probe());
    seconds_ = done_ = 0;
    state.ResumeTiming();
  }
  // Of the slices that were whole; 0: none was.
  double median() {
    if (shares_.empty()) return 0;
    std::ranges::sort(shares_);
    return shares_[shares_.size() / 2];
  }

 private:
  double slice_seconds_, seconds_ = 0, done_ = 0;
  std::vector<double> shares_;
};

}  // namespace llorch::bench
