#include "cli/bench/probes.h"

#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/assert.h"
#include "base/file.h"
#include "engine/compute/cpu/backend.h"

namespace llorch::cli::bench {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::size_t kProcFileBytesMax = 4 << 20;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds until all threads are done; the caller is one of them.
template <class Work>
double seconds_of_threads(std::uint32_t threads, const Work& work) {
  const double begin = wall_seconds();
  std::vector<std::thread> others;
  for (std::uint32_t t = 1; t < threads; ++t) others.emplace_back([&work, t] { work(t); });
  work(0);
  for (std::thread& thread : others) thread.join();
  return wall_seconds() - begin;
}

// End to end: every line is asked for in time, into the second-level cache and then into the first-level one, as kernels read
// weights. Where a loop without asks had 1, one that asks 16 KiB ahead had 1.39, one that asks 16 and 4 KiB ahead 1.46, 8 and 4 KiB 1.51.
// Four sums, so that no addition waits for the one before.
__attribute__((target("avx2"))) void read_words(const std::uint64_t* words, std::size_t count) {
  constexpr std::size_t kVector = 4, kSums = 4, kLineWords = 8;
  constexpr std::size_t kMemoryAheadWords = (8 << 10) / sizeof(std::uint64_t);
  constexpr std::size_t kCacheAheadWords = (4 << 10) / sizeof(std::uint64_t);
  __m256i sums[kSums] = {};
  for (std::size_t i = 0; i + kSums * kVector <= count; i += kSums * kVector) {
    for (std::size_t line = 0; line < kSums * kVector; line += kLineWords) {
      __builtin_prefetch(words + i + kMemoryAheadWords + line, 0, 2);
      __builtin_prefetch(words + i + kCacheAheadWords + line, 0, 3);
    }
#pragma GCC unroll 4
    for (std::size_t s = 0; s < kSums; ++s)
      sums[s] =
          _mm256_add_epi64(sums[s], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i + s * kVector)));
  }
#pragma GCC unroll 4
  for (__m256i& sum : sums) asm volatile("" : : "x"(sum));  // somebody wants them
}

// Independent sums. A latency of five times two pipes wants ten at least, and ten left AVX-512 a sixth short: an instruction that
// comes late to its pipe delays its own chain. More than sixteen give no more; sixteen registers hold twelve and their operands.
constexpr std::uint64_t kWideChains = 16, kNarrowChains = 12;
constexpr std::uint64_t kRounds = 4'000'000;

// Each body adds `rounds` times to every one of its sums; the compiler knows neither operands nor sums, or it makes one sum for all.
// Returns products of a round.
__attribute__((target("avx512f,avx512vnni"))) std::uint64_t integers_avx512(std::uint64_t rounds) {
  __m512i a = _mm512_set1_epi8(1), b = a, sums[kWideChains] = {};
  asm volatile("" : "+x"(a), "+x"(b));
  for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512i& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, a, b);
      asm volatile("" : "+v"(sum));
    }
  }
#pragma GCC unroll 16
  for (__m512i& sum : sums) asm volatile("" : : "x"(sum));
  return 64 * kWideChains;
}

__attribute__((target("avx2"))) std::uint64_t integers_avx2(std::uint64_t rounds) {
  __m256i a = _mm256_set1_epi8(1), b = a, sums[kNarrowChains] = {};
  for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      asm volatile("" : "+x"(a));  // else one product would do for all
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
    }
  }
#pragma GCC unroll 12
  for (__m256i& sum : sums) asm volatile("" : : "x"(sum));
  return 32 * kNarrowChains;
}

__attribute__((target("avx2,avxvnni"))) std::uint64_t integers_avxvnni(std::uint64_t rounds) {
  __m256i a = _mm256_set1_epi8(1), b = a, sums[kNarrowChains] = {};
  for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      asm volatile("" : "+x"(a));  // else one product would do for all
      sum = _mm256_dpbusd_avx_epi32(sum, a, b);
    }
  }
#pragma GCC unroll 12
  for (__m256i& sum : sums) asm volatile("" : : "x"(sum));
  return 32 * kNarrowChains;
}

// Tiles of 16 x 64 bytes; the assembler knows the instructions by name.
std::uint64_t integers_amx(std::uint64_t rounds) {
  constexpr std::size_t kTiles = 8, kSums = 6, kTileRows = 16, kTileRowBytes = 64;
  struct alignas(64) {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  } shapes;
  std::fill_n(shapes.row_bytes, kTiles, std::uint16_t{kTileRowBytes});
  std::fill_n(shapes.rows, kTiles, std::uint8_t{kTileRows});
  std::uint8_t operand[kTileRows * kTileRowBytes];
  for (std::size_t i = 0; i < sizeof operand; ++i) operand[i] = static_cast<std::uint8_t>(i * 37);
  asm volatile("ldtilecfg %0" : : "m"(shapes));
  asm volatile("tileloadd (%0,%1,1), %%tmm6\n\ttileloadd (%0,%1,1), %%tmm7"
               :
               : "r"(operand), "r"(kTileRowBytes)
               : "memory");
  for (std::uint64_t i = 0; i < rounds / kSums; ++i) {  // each takes as long as sixteen of the others
    asm volatile(
        "tdpbusd %tmm7, %tmm6, %tmm0\n\ttdpbusd %tmm7, %tmm6, %tmm1\n\ttdpbusd %tmm7, %tmm6, %tmm2\n\t"
        "tdpbusd %tmm7, %tmm6, %tmm3\n\ttdpbusd %tmm7, %tmm6, %tmm4\n\ttdpbusd %tmm7, %tmm6, %tmm5");
  }
  asm volatile("tilerelease");
  return kTileRows * kTileRows * kTileRowBytes;
}

__attribute__((target("avx512f"))) std::uint64_t floats_avx512(std::uint64_t rounds) {
  __m512 a = _mm512_set1_ps(0.5F), b = a, sums[kWideChains] = {};
  asm volatile("" : "+x"(a), "+x"(b));
  for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(sum, a, b);
      asm volatile("" : "+v"(sum));
    }
  }
#pragma GCC unroll 16
  for (__m512& sum : sums) asm volatile("" : : "x"(sum));
  return 16 * kWideChains;
}

__attribute__((target("avx2,fma"))) std::uint64_t floats_avx2(std::uint64_t rounds) {
  __m256 a = _mm256_set1_ps(0.5F), b = a, sums[kNarrowChains] = {};
  asm volatile("" : "+x"(a), "+x"(b));
  for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(sum, a, b);
      asm volatile("" : "+x"(sum));
    }
  }
#pragma GCC unroll 12
  for (__m256& sum : sums) asm volatile("" : : "x"(sum));
  return 8 * kNarrowChains;
}

// Seconds that a chain takes whose every step waits for the one before. `kFilled`: with three instructions beside each step that nobody
// waits for, long ones, which take little room in a cache of decoded instructions. A core that begins more than four a cycle needs
// as long for both, unless its cycles are shared.
template <bool kFilled>
double chain_seconds() {
  const double begin = wall_seconds();
  std::uint64_t step = 0, other = 1;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    if constexpr (kFilled) {
      asm volatile(".rept 64\n\txor %1, %0\n\tnopl 512(%%rax)\n\tnopl 512(%%rax)\n\tnopl 512(%%rax)\n\t.endr"
                   : "+r"(step)
                   : "r"(other)
                   : "cc");
    } else {
      asm volatile(".rept 64\n\txor %1, %0\n\t.endr" : "+r"(step) : "r"(other) : "cc");
    }
  }
  return wall_seconds() - begin;
}

}  // namespace

double core_share() {
  std::array<double, 9> shares{};
  for (double& share : shares) share = chain_seconds<false>() / chain_seconds<true>();
  std::ranges::nth_element(shares, shares.begin() + shares.size() / 2);  // an interrupt falls into one
  return std::min(1.0, shares[shares.size() / 2]);
}

std::optional<double> mean_core_share() {
  constexpr int kProcessorsMost = 16;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return std::nullopt;
  const int count = CPU_COUNT(&allowed), step = (count + kProcessorsMost - 1) / kProcessorsMost;
  double sum = 0;
  int looked_at = 0;
  // A thread of its own: that one is moved about.
  std::thread([&] {
    for (int processor = 0, number = 0; processor < CPU_SETSIZE; ++processor) {
      if (!CPU_ISSET(processor, &allowed) || number++ % step != 0) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(processor, &one);
      if (::sched_setaffinity(0, sizeof one, &one) != 0) continue;
      sum += core_share();
      ++looked_at;
    }
  }).join();
  if (looked_at == 0) return std::nullopt;
  return sum / looked_at;
}

ReadProbe::ReadProbe(std::uint64_t bytes) {
  ASSERT(bytes >= kMiB, "a buffer of {} bytes", bytes);
  words_.reserve(bytes / sizeof(std::uint64_t));
  // Large pages on all nodes, as the weights have; before the first touch, and advice only.
  constexpr std::uintptr_t kPage = 4096;
  auto* const begin =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(words_.data()) + kPage - 1) / kPage * kPage);
  const std::uint64_t whole = (bytes - kPage) / kPage * kPage;
  engine::compute::cpu::interleave(begin, whole);
  ::madvise(begin, whole, MADV_HUGEPAGE);
  words_.resize(words_.capacity(), 1);
}

double ReadProbe::bytes_per_s(std::uint32_t threads) const {
  const std::size_t part = words_.size() / threads;
  const double seconds =
      seconds_of_threads(threads, [&](std::uint32_t t) { read_words(words_.data() + t * part, part); });
  return static_cast<double>(part * threads * sizeof(std::uint64_t)) / seconds;
}

std::uint64_t memory_available_bytes() {
  const auto text = base::read_file("/proc/meminfo", kProcFileBytesMax);
  if (!text) return 0;
  constexpr std::string_view kKey = "MemAvailable:";
  std::size_t at = text->find(kKey);
  if (at == std::string::npos) return 0;
  at = text->find_first_not_of(' ', at + kKey.size());
  std::uint64_t kib = 0;
  if (at != std::string::npos) std::from_chars(text->data() + at, text->data() + text->size(), kib);
  return kib * 1024;
}

std::uint64_t read_probe_bytes() {
  const long last_cache = std::max({0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE), ::sysconf(_SC_LEVEL2_CACHE_SIZE)});
  const std::uint64_t wanted =
      std::clamp<std::uint64_t>(8 * static_cast<std::uint64_t>(last_cache), 256 * kMiB, 1024 * kMiB);
  const std::uint64_t available = memory_available_bytes();
  return available == 0 ? wanted : std::clamp<std::uint64_t>(available / 8, 16 * kMiB, wanted);
}

double multiply_adds_per_s(std::string_view isa, Product product, std::uint32_t threads) {
  const bool wide = isa == "avx512" || isa == "amx";
  const auto integers = isa == "amx"       ? integers_amx
                        : isa == "avx512"  ? integers_avx512
                        : isa == "avxvnni" ? integers_avxvnni
                                           : integers_avx2;
  const auto body = product == Product::kInteger ? integers : wide ? floats_avx512 : floats_avx2;
  const double seconds = seconds_of_threads(threads, [&](std::uint32_t) { body(kRounds); });
  return static_cast<double>(body(0) * kRounds * threads) / seconds;
}

std::optional<std::uint64_t> busy_ticks(std::string_view proc_stat) {
  constexpr std::string_view kTotal = "cpu ";
  // user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first two already.
  constexpr std::size_t kFields = 8, kIdle = 3, kWait = 4;
  if (!proc_stat.starts_with(kTotal)) return std::nullopt;
  const char* at = proc_stat.data() + kTotal.size();
  const char* end = proc_stat.data() + std::min(proc_stat.find('\n'), proc_stat.size());
  std::uint64_t busy = 0;
  for (std::size_t field = 0; field < kFields; ++field) {
    while (at != end && *at == ' ') ++at;
    std::uint64_t ticks = 0;
    const auto [next, error] = std::from_chars(at, end, ticks);
    if (error != std::errc()) return std::nullopt;
    if (field != kIdle && field != kWait) busy += ticks;
    at = next;
  }
  return busy;
}

OthersMeter::Look OthersMeter::look() {
  timespec own{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  Look out{.wall_s = wall_seconds(),
           .own_s = static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec)};
  if (const auto text = base::read_file("/proc/stat", kProcFileBytesMax)) {
    if (const auto ticks = busy_ticks(*text))
      out.busy_s = static_cast<double>(*ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  return out;
}

OthersMeter::OthersMeter() : start_(look()) {}

std::optional<double> OthersMeter::processors_busy() const {
  const Look now = look();
  if (!now.busy_s || !start_.busy_s || now.wall_s <= start_.wall_s) return std::nullopt;
  const double others_s = (*now.busy_s - *start_.busy_s) - (now.own_s - start_.own_s);
  return std::max(0.0, others_s / (now.wall_s - start_.wall_s));
}

}  // namespace llorch::cli::bench
