#pragma once
// How many rows a step may have to end within a time, by what the steps before took. Pure.
#include <algorithm>
#include <cstdint>

namespace llorch::engine::inference::scheduling {

class Pace {
 public:
  // Fewer rows share a pass over the weights badly.
  static constexpr std::uint32_t kRowsMin = 16;
  static constexpr std::uint32_t kRowsFirst = 64;  // before anything was measured

  // REQUIRES: seconds_max > 0, rows_max > 0.
  Pace(double seconds_max, std::uint32_t rows_max)
      : seconds_max_(seconds_max), rows_max_(rows_max), rows_(std::min(kRowsFirst, rows_max)) {}

  std::uint32_t rows() const { return rows_; }
  // Doubles or halves at most: a step that was held up, by a program that came in, says little of the next one.
  void ran(std::uint32_t rows, double seconds) {
    const bool was_long = seconds > seconds_max_;
    if (rows == 0 || seconds <= 0 || (!was_long && 2 * rows < rows_))
      return;  // a short step says nothing of a long one
    const double fit = rows * (seconds_max_ / seconds);
    const double next = std::clamp(fit, 0.5 * rows_, 2.0 * rows_);
    rows_ =
        std::clamp(static_cast<std::uint32_t>(next) / kRowsMin * kRowsMin, std::min(kRowsMin, rows_max_), rows_max_);
  }

 private:
  double seconds_max_;
  std::uint32_t rows_max_;
  std::uint32_t rows_;
};

}  // namespace llorch::engine::inference::scheduling
