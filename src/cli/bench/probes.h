#pragma once
// What this machine can do at most, and what else it does: measured, never looked up.
// Thread rule: one at a time; a probe runs threads of its own and ends them.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace llorch::cli::bench {

// Reads a buffer larger than the caches again and again.
class ReadProbe {
 public:
  // REQUIRES: bytes >= 1 MiB.
  explicit ReadProbe(std::uint64_t bytes);
  // Bytes per second that so many threads read together, each its part of the buffer, once.
  double bytes_per_s(std::uint32_t threads) const;
  std::uint64_t bytes() const { return words_.size() * sizeof(std::uint64_t); }

 private:
  std::vector<std::uint64_t> words_;
};
// Of this machine: several times its last cache, less where memory is short.
std::uint64_t read_probe_bytes();
// What the system can give without swapping. 0: it does not say.
std::uint64_t memory_available_bytes();

enum class Product : std::uint8_t { kFloat, kInteger };
// Multiplications with their additions per second, from registers, on so many threads: float32 by FMA, or bytes as `isa` has
// them (amx: tdpbusd; avx512, avxvnni: vpdpbusd; avx2: vpmaddubsw and an addition). REQUIRES: the processor has `isa`, "avx2",
// "avxvnni", "avx512" or "amx", which the process may use.
double multiply_adds_per_s(std::string_view isa, Product product, std::uint32_t threads);

// What the calling thread gets of its core's instruction slots: 1 where nobody else takes any, 0.6 to 0.75 where another hardware
// thread of the core is busy, be it with a neighbour's program that the system of a virtual machine does not see. Measured on a
// processor that begins six instructions a cycle; one of eight may show less of a neighbour, one of four less than 1 without any.
double core_share();
// A share from which on nobody else took instruction slots.
inline constexpr double kAloneShare = 0.95;
// The mean of up to sixteen processors that the process may use, each looked at while it rests on the others. Absent: the system
// does not say which they are.
std::optional<double> mean_core_share();

// Processor time since boot that was not idle, in ticks of the clock, by the first line of /proc/stat; absent for another text.
std::optional<std::uint64_t> busy_ticks(std::string_view proc_stat);

// Processors that other programs kept busy on average between start() and now.
class OthersMeter {
 public:
  OthersMeter();
  // Absent: the system does not say.
  std::optional<double> processors_busy() const;

 private:
  struct Look {
    double wall_s = 0, own_s = 0;
    std::optional<double> busy_s;
  };
  static Look look();
  Look start_;
};

}  // namespace llorch::cli::bench
