// Tokens per second of decoding 1, 2, 4, ... sequences at once, interleaved round by round with a probe of the memory's
// read bandwidth, so that every figure is a ratio taken in one minute.
// Usage: decode_batch_bench MODEL [THREADS] [ROUNDS]. Build in release; run with nothing else on. One JSON line per batch.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <map>
#include <thread>
#include <vector>

#include "engine/compute/cpu/backend.h"
#include "engine/inference/engine.h"
#include "median.h"

namespace {

using namespace llorch;
using base::TokenId;
using bench::median;
using engine::inference::Engine;
using engine::inference::SlotRows;
using Seconds = std::chrono::duration<double>;

constexpr std::uint32_t kBatchMax = 8;
constexpr std::uint32_t kPromptTokens = 32;
constexpr std::uint32_t kStepsPerRound = 12;

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return Seconds(std::chrono::steady_clock::now() - begin).count();
}

// Bytes per second of all threads reading a buffer far larger than the caches, once.
double read_bandwidth(unsigned threads) {
  static const std::vector<std::uint64_t> buffer(std::size_t{1} << 27, 1);  // 1 GiB
  std::vector<std::uint64_t> sums(threads * 8);
  const double seconds = seconds_of([&] {
    std::vector<std::thread> readers;
    for (unsigned t = 0; t < threads; ++t) {
      readers.emplace_back([&, t] {
        std::uint64_t a = 0, b = 0, c = 0, d = 0;
        const std::size_t part = buffer.size() / threads;
        for (const std::uint64_t *p = buffer.data() + t * part, *end = p + part; p != end; p += 4)
          a += p[0], b += p[1], c += p[2], d += p[3];
        sums[t * 8] = a + b + c + d;
      });
    }
    for (std::thread& reader : readers) reader.join();
  });
  if (std::ranges::count(sums, std::uint64_t{0}) == static_cast<std::ptrdiff_t>(sums.size())) std::abort();
  return static_cast<double>(buffer.size() * sizeof(std::uint64_t)) / seconds;
}

void must(const auto& result) {
  if (result) return;
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(1);
}

// Seconds of one step that decodes `batch` sequences.
double decode_step_seconds(Engine& engine, std::uint32_t batch) {
  std::vector<TokenId> prompt(kPromptTokens);
  for (std::uint32_t slot = 0; slot < batch; ++slot) {
    for (std::uint32_t i = 0; i < kPromptTokens; ++i) prompt[i] = TokenId{(slot * 31 + i * 7) % engine.facts().vocab};
    must(engine.reset(slot));
    must(engine.prefill(slot, prompt));
  }
  std::vector<TokenId> next(batch);
  std::vector<SlotRows> rows(batch);
  return seconds_of([&] {
           for (std::uint32_t step = 0; step < kStepsPerRound; ++step) {
             for (std::uint32_t slot = 0; slot < batch; ++slot) {
               next[slot] = TokenId{(step * 13 + slot) % engine.facts().vocab};
               rows[slot] = {.slot = slot, .tokens = {&next[slot], 1}};
             }
             must(engine.step(rows));
           }
         }) /
         kStepsPerRound;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print(stderr, "usage: decode_batch_bench MODEL [THREADS] [ROUNDS]\n"), 2;
  const unsigned threads = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : std::thread::hardware_concurrency();
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 7;
  const auto backend =
      engine::compute::cpu::make_cpu_backend(
          {.threads_count = threads, .memory_budget_bytes = std::numeric_limits<std::uint64_t>::max()})
          .value();
  const auto engine = Engine::load(argv[1], {.context_tokens = 256, .slots = kBatchMax}, *backend);
  if (!engine) return fmt::print(stderr, "{}\n", engine.error().message), 1;
  const double weights = static_cast<double>((*engine)->memory_plan().weights_bytes);
  std::map<std::uint32_t, std::vector<double>> step_seconds, of_limit;
  for (int round = 0; round < rounds; ++round) {
    const double bandwidth = read_bandwidth(threads);
    for (std::uint32_t batch = 1; batch <= kBatchMax; batch *= 2) {
      const double seconds = decode_step_seconds(**engine, batch);
      step_seconds[batch].push_back(seconds);
      of_limit[batch].push_back(weights / bandwidth / seconds);
    }
  }
  const double alone = 1 / median(step_seconds[1]);
  for (const auto& [batch, seconds] : step_seconds) {
    const double rate = batch / median(seconds);
    fmt::print(R"({{"model":"{}","threads":{},"batch":{},"tokens_per_s":{:.2f},"ratio_to_batch_1":{:.3f},)"
               R"("share_of_read_limit":{:.3f},"rounds":{}}})"
               "\n",
               (*engine)->facts().name, threads, batch, rate, rate / alone, median(of_limit[batch]), rounds);
  }
  return 0;
}
