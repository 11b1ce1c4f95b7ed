#pragma once
// Time as a parameter. Cores never read a clock; shells read this one and pass `now`.
#include <cstdint>
#include <string>

namespace llorch::base {

struct Time {
  std::int64_t mono_ms = 0;  // monotonic; for every wait, timeout and order
  std::int64_t unix_ms = 0;  // wall clock; for records and people only
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
};

class SystemClock final : public Clock {
 public:
  Time now() const override;
};

class ManualClock final : public Clock {
 public:
  Time now() const override { return time_; }
  void advance_ms(std::int64_t ms) {
    time_.mono_ms += ms;
    time_.unix_ms += ms;
  }
  void set(Time t) { time_ = t; }

 private:
  Time time_{0, 1'700'000'000'000};
};

// RFC 3339 with milliseconds, UTC: 2026-01-02T03:04:05.678Z
std::string rfc3339(std::int64_t unix_ms);

}  // namespace llorch::base
