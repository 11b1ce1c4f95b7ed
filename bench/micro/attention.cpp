// Attention of one decoded token on one thread, its cache in scattered pages, many caches in turn so that each comes from memory.
// Counters: Gop/s, multiply-adds; ops_of_peak, over what the widest FMA does from registers, measured in this process; GB/s,
// bytes of the cache that were used, each counted once.
// Usage: attention_bench [--benchmark_filter=latent/avx512/32768]. Names: kind/instruction set/positions. Kinds: `latent`,
// 16 heads over a shared row of 512 + 64; `gqaN`, N query heads for each of 4 heads of 64 keys and values.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "engine/compute/cpu/kernels.h"
#include "engine/compute/half.h"
#include "peaks.h"

namespace {

using namespace llorch::engine;
using compute::cpu::Kernels;
using compute::cpu::kPagePositions;
using compute::cpu::KvLayout;
using compute::cpu::KvPages;
using compute::cpu::KvType;
using llorch::bench::peak_rate;
namespace host = compute::cpu::host;

constexpr std::size_t kCacheBytes = 160u << 20;  // of all caches of a case, together
constexpr std::size_t kLatent = 512, kLatentKey = 576, kLatentQueries = 16, kHeadDim = 64, kKvHeads = 4;

struct Case {
  std::size_t queries_per_kv = 0;  // 0: latent
  host::Isa isa = host::Isa::kAvx2;
  std::size_t positions = 0;

  bool latent() const { return queries_per_kv == 0; }
  KvLayout layout() const {
    if (latent()) return {.type = KvType::kF16, .kv_heads = 1, .key_dim = kLatentKey, .value_dim = 0};
    return {.type = KvType::kF16, .kv_heads = kKvHeads, .key_dim = kHeadDim, .value_dim = kHeadDim};
  }
  std::size_t heads() const { return latent() ? kLatentQueries : kKvHeads * queries_per_kv; }
  double products() const {
    const std::size_t of_a_position = latent() ? kLatentKey + kLatent : 2 * kHeadDim;
    return static_cast<double>(heads() * positions * of_a_position);
  }
  std::size_t page_bytes() const { return layout().value_offset(layout().kv_heads); }
};

// Pages of several sequences, dealt out in a random order.
struct Caches {
  std::vector<std::uint16_t> elements;
  std::vector<std::byte*> pages;  // [sequences, pages_each], aligned as a backend's are
  std::size_t pages_each = 0, sequences = 0;

  explicit Caches(const Case& c) : pages_each((c.positions + kPagePositions - 1) / kPagePositions) {
    sequences = std::max<std::size_t>(1, kCacheBytes / (pages_each * c.page_bytes()));
    const std::size_t count = pages_each * sequences, page_elements = c.page_bytes() / 2;
    constexpr std::size_t kLarge = 2u << 20;
    elements.reserve(count * page_elements + kLarge / 2);
    const auto begin = (reinterpret_cast<std::uintptr_t>(elements.data()) + kLarge - 1) / kLarge * kLarge;
    ::madvise(reinterpret_cast<void*>(begin), count * c.page_bytes(), MADV_HUGEPAGE);
    std::mt19937 random(5);
    for (std::size_t i = 0; i < elements.capacity(); ++i)
      elements.push_back(compute::float_to_half(static_cast<float>(random() % 2001) * 0.001f - 1.0f));
    for (std::size_t i = 0; i < count; ++i) pages.push_back(reinterpret_cast<std::byte*>(begin) + i * c.page_bytes());
    std::ranges::shuffle(pages, random);
  }
};

void attend(benchmark::State& state, const Case& c) {
  Caches caches(c);
  const Kernels& kernels = compute::cpu::kernels(c.isa);
  const std::size_t stride = caches.pages_each * kPagePositions + 16;
  std::vector<float> q(c.heads() * kLatentKey), out(c.heads() * kLatent), scored(c.heads() * stride + 16);
  auto* scores = reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(scored.data()) + 63) / 64 * 64);
  std::mt19937 random(3);
  for (float& value : q) value = static_cast<float>(random() % 2001) * 0.0002f - 0.2f;
  const std::uint32_t sequence = 0, position = static_cast<std::uint32_t>(c.positions - 1);
  std::size_t next = 0;
  for (auto _ : state) {
    const KvPages pages{.pages = caches.pages.data() + next * caches.pages_each,
                        .pages_stride = caches.pages_each,
                        .sequence_of_row = &sequence,
                        .positions = &position};
    next = (next + 1) % caches.sequences;
    if (c.latent()) {
      kernels.latent_attention({.type = KvType::kF16,
                                .pages = pages,
                                .q = q.data(),
                                .q_stride = q.size(),
                                .out = out.data(),
                                .out_stride = out.size(),
                                .heads = c.heads(),
                                .latent_dim = kLatent,
                                .key_dim = kLatentKey,
                                .scale = 0.1f,
                                .scores = scores,
                                .scores_stride = stride},
                               {0, (c.heads() + compute::cpu::kLatentHeads - 1) / compute::cpu::kLatentHeads});
    } else {
      kernels.attention({.layout = c.layout(),
                         .pages = pages,
                         .q = q.data(),
                         .q_stride = q.size(),
                         .out = out.data(),
                         .out_stride = out.size(),
                         .heads = c.heads(),
                         .scale = 0.1f,
                         .rows = 1,
                         .scores = scores,
                         .scores_stride = stride},
                        {0, kKvHeads});
    }
    benchmark::DoNotOptimize(out.data());
  }
  using benchmark::Counter;
  const double bytes = static_cast<double>(caches.pages_each * c.page_bytes());
  state.counters["Gop/s"] = Counter(c.products() * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["ops_of_peak"] = Counter(c.products() / peak_rate(c.isa, false), Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const host::CpuFeatures features = host::detect_cpu_features();
  for (std::size_t queries : {0, 1, 4, 7, 8}) {
    for (host::Isa isa : {host::Isa::kAvx2, host::Isa::kAvx512}) {
      if (isa == host::Isa::kAvx512 && !features.avx512) continue;
      for (std::size_t positions : {4096, 32768}) {
        const Case c{.queries_per_kv = queries, .isa = isa, .positions = positions};
        const std::string kind = c.latent() ? "latent" : "gqa" + std::to_string(queries);
        const std::string name = kind + "/" + std::string(host::isa_name(isa)) + "/" + std::to_string(positions);
        benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& state) {
          attend(state, c);
        })->Unit(benchmark::kMicrosecond);
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
