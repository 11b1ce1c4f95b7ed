#pragma once
// Times in nanoseconds, kept one by one: percentiles are exact.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/core.h>

namespace llorch::bench {

class Samples {
 public:
  void add(std::int64_t ns) { ns_.push_back(ns); }
  void clear() { ns_.clear(); }
  std::size_t count() const { return ns_.size(); }

  // {"count":..,"p50_us":..,"p90_us":..,"p99_us":..,"p999_us":..,"max_us":..}
  std::string json() {
    std::ranges::sort(ns_);
    const auto at = [&](double share) {
      if (ns_.empty()) return 0.0;
      const auto index = static_cast<std::size_t>(share * static_cast<double>(ns_.size()));
      return static_cast<double>(ns_[std::min(index, ns_.size() - 1)]) / 1000;
    };
    return fmt::format(
        R"({{"count":{},"p50_us":{:.1f},"p90_us":{:.1f},"p99_us":{:.1f},"p999_us":{:.1f},"max_us":{:.1f}}})",
        ns_.size(), at(0.5), at(0.9), at(0.99), at(0.999), at(1));
  }

 private:
  std::vector<std::int64_t> ns_;
};

}  // namespace llorch::bench
