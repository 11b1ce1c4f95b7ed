#pragma once
// Every random choice of a run, drawn from one seed. Streams of one seed are independent, so that more draws for one
// purpose do not shift the others.
#include <cstdint>

#include "base/philox.h"

namespace llorch::sim {

enum class DiceStream : std::uint32_t {
  kOptions,
  kNetwork,
  kFaults,
  kWorkload,
  kProcesses,
  kStore,
  kOperations,
  kPlacement,
  kSessions,
  kRetention,
  kDeregistrations,
  kBytes,
  kSharing,
  kBuilds,
  kOneWay
};

class Dice {
 public:
  Dice(std::uint64_t seed, DiceStream stream) : seed_(seed), stream_(static_cast<std::uint32_t>(stream)) {}

  // [0, n). REQUIRES 0 < n < 2^32.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>((std::uint64_t{next()} * static_cast<std::uint64_t>(n)) >> 32);
  }
  // [low, high]
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool chance(int permille) { return below(1000) < permille; }

 private:
  std::uint32_t next() {
    if (used_ == 4) {
      block_ = base::philox4x32_10({counter_++, stream_, 0, 0x53494D},
                                   {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
      used_ = 0;
    }
    return block_[used_++];
  }

  std::uint64_t seed_;
  std::uint32_t stream_;
  std::uint32_t counter_ = 0;
  std::size_t used_ = 4;
  base::PhiloxBlock block_{};
};

}  // namespace llorch::sim
