// Attention on one thread, its cache in scattered pages. Of one decoded token: many caches in turn, so that each comes from memory.
// Of a chunk of a prompt, the last of its positions: one cache.
// Counters: Gop/s, multiply-adds; of_limit, their share of what the widest FMA does from registers,
// probed between iterations, alone_of_limit and alone as of matmul_bench; GB/s, bytes of the cache that were used, each counted once.
// Usage: attention_bench [--benchmark_filter=latent/avx512/32768]. Names: kind/instruction set/positions. Kinds: `latent`,
// 16 heads over a shared row of 512 + 64; `gqaN`, N query heads for each of 4 heads of 64 keys and values; `chunkN`, the same for
// 64 rows.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <numeric>
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
constexpr std::size_t kChunkRows = 64;

struct Case {
  std::size_t queries_per_kv = 0;  // 0: latent
  host::Isa isa = host::Isa::kAvx2;
  std::size_t positions = 0;
  std::size_t rows = 1;  // the last of them

  bool latent() const { return queries_per_kv == 0; }
  KvLayout layout() const {
    if (latent()) return {.type = KvType::kF16, .kv_heads = 1, .key_dim = kLatentKey, .value_dim = 0};
    return {.type = KvType::kF16, .kv_heads = kKvHeads, .key_dim = kHeadDim, .value_dim = kHeadDim};
  }
  std::size_t heads() const { return latent() ? kLatentQueries : kKvHeads * queries_per_kv; }
  double products() const {
    const std::size_t of_a_position = latent() ? kLatentKey + kLatent : 2 * kHeadDim;
    const std::size_t seen = rows * positions - rows * (rows - 1) / 2;
    return static_cast<double>(heads() * seen * of_a_position);
  }
  std::size_t page_bytes() const { return layout().value_offset(layout().kv_heads); }
};

// Pages of several sequences, dealt out in a random order.
struct Caches {
  std::vector<std::uint16_t> elements;
  std::vector<std::byte*> pages;  // [sequences, pages_each], aligned as a backend's are
  std::size_t pages_each = 0, sequences = 0;

  explicit Caches(const Case& c) : pages_each((c.positions + kPagePositions - 1) / kPagePositions) {
    sequences = c.rows > 1 ? 1 : std::max<std::size_t>(1, kCacheBytes / (pages_each * c.page_bytes()));
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
  const std::size_t q_stride = c.heads() * kLatentKey, out_stride = c.heads() * kLatent;
  const std::size_t row_tile = c.rows == 1 ? 1 : compute::cpu::kTileQueries / c.queries_per_kv;
  std::vector<float> q(c.rows * q_stride), out(c.rows * out_stride), scored(row_tile * c.heads() * stride + 16);
  std::vector<float> widened(kPagePositions * kHeadDim);
  auto* scores = reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(scored.data()) + 63) / 64 * 64);
  std::mt19937 random(3);
  for (float& value : q) value = static_cast<float>(random() % 2001) * 0.0002f - 0.2f;
  const std::vector<std::uint32_t> sequence(c.rows);
  std::vector<std::uint32_t> position(c.rows);
  std::iota(position.begin(), position.end(), static_cast<std::uint32_t>(c.positions - c.rows));
  std::size_t next = 0;
  llorch::bench::ShareOfLimit share(llorch::bench::kProductSlice);
  const auto attend_once = [&] {
    const KvPages pages{.pages = caches.pages.data() + next * caches.pages_each,
                        .pages_stride = caches.pages_each,
                        .sequence_of_row = sequence.data(),
                        .positions = position.data()};
    next = (next + 1) % caches.sequences;
    if (c.latent()) {
      kernels.latent_attention({.type = KvType::kF16,
                                .pages = pages,
                                .q = q.data(),
                                .q_stride = q_stride,
                                .out = out.data(),
                                .out_stride = out_stride,
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
                         .q_stride = q_stride,
                         .out = out.data(),
                         .out_stride = out_stride,
                         .heads = c.heads(),
                         .scale = 0.1f,
                         .rows = c.rows,
                         .row_tile = row_tile,
                         .scores = scores,
                         .scores_stride = stride,
                         .widened = widened.data()},
                        {0, (c.rows + row_tile - 1) / row_tile * kKvHeads});
    }
    benchmark::DoNotOptimize(out.data());
  };
  for (auto _ : state) share.run(state, c.products(), attend_once, [&] { return peak_rate(c.isa, false); });
  using benchmark::Counter;
  const double bytes = static_cast<double>(caches.pages_each * c.page_bytes());
  state.counters["Gop/s"] = Counter(c.products() * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsIterationInvariantRate);
  share.set_counters(state);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const host::CpuFeatures features = host::detect_cpu_features();
  for (std::size_t queries : {0, 1, 4, 7, 8}) {
    for (host::Isa isa : {host::Isa::kAvx2, host::Isa::kAvx512}) {
      if (isa == host::Isa::kAvx512 && !features.avx512) continue;
      const auto measure = [isa](const std::string& kind, Case c) {
        c.isa = isa;
        const std::string name = kind + "/" + std::string(host::isa_name(isa)) + "/" + std::to_string(c.positions);
        benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& state) {
          attend(state, c);
        })->Unit(benchmark::kMicrosecond);
      };
      const std::string number = std::to_string(queries);
      for (std::size_t positions : {4096, 32768})
        measure(queries == 0 ? "latent" : "gqa" + number, {.queries_per_kv = queries, .positions = positions});
      if (queries == 0) continue;
      for (std::size_t positions : {512, 4096})
        measure("chunk" + number, {.queries_per_kv = queries, .positions = positions, .rows = kChunkRows});
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
