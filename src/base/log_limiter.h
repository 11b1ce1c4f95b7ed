#pragma once
// How often one kind of line is logged when others decide how often it happens. Pure; not thread-safe.
#include <cstdint>
#include <optional>

namespace llorch::base {

class LogLimiter {
 public:
  // At most `lines_max` lines in each period.
  LogLimiter(std::int64_t lines_max, std::int64_t period_ms) : lines_max_(lines_max), period_ms_(period_ms) {}

  // Nothing: leave this line out. Otherwise log it, and say that so many were left out since the last one.
  std::optional<std::int64_t> admit(std::int64_t mono_ms) {
    if (!begun_ms_ || mono_ms - *begun_ms_ >= period_ms_) {
      begun_ms_ = mono_ms;
      lines_ = 0;
    }
    if (lines_ >= lines_max_) {
      ++left_out_;
      return std::nullopt;
    }
    ++lines_;
    const std::int64_t left_out = left_out_;
    left_out_ = 0;
    return left_out;
  }

 private:
  std::int64_t lines_max_;
  std::int64_t period_ms_;
  std::optional<std::int64_t> begun_ms_;
  std::int64_t lines_ = 0;     // of this period
  std::int64_t left_out_ = 0;  // since the last line
};

}  // namespace llorch::base
