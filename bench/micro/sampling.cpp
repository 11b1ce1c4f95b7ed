// A step's draws: the host's sampler, one row after the other, beside the CPU device's on its threads.
// Usage: sampling_bench [THREADS=2] [ROWS=8] [VOCAB=131072]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "engine/compute/cpu/backend.h"
#include "engine/sampling/sampler.h"

using namespace llorch::engine;

namespace {

constexpr int kRounds = 21;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class Run>
double median_ms(const Run& run) {
  std::vector<double> ms;
  for (int i = 0; i < kRounds; ++i) {
    const double begin = seconds();
    run();
    ms.push_back(1e3 * (seconds() - begin));
  }
  std::ranges::nth_element(ms, ms.begin() + kRounds / 2);
  return ms[kRounds / 2];
}

// Logits as a model spreads them: normal, with some that stand out the more the surer it is.
std::vector<float> logits(std::uint32_t rows, std::uint32_t vocab, float deviation, float lead) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> out(std::size_t{rows} * vocab);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = normal(random) + (i % 5003 == 0 ? lead : 0);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::uint32_t otherwise) {
    return argc > i ? static_cast<std::uint32_t>(std::atoi(argv[i])) : otherwise;
  };
  const std::uint32_t threads = number(1, 2), rows = number(2, 8), vocab = number(3, 131072);
  const auto backend =
      compute::cpu::make_cpu_backend({.threads_count = threads, .memory_budget_bytes = 8ULL << 30, .isa = {}}).value();
  const auto device = backend->make_device_sampler({.rows_max = rows, .width = vocab, .edits_max = 16}).value();
  fmt::print("{} rows of {}, {} threads, ms by the clock: host, device\n", rows, vocab, threads);
  const struct {
    const char* name;
    sampling::SamplingParams params;
    float deviation, lead;
  } cases[] = {{"greedy", {.temperature = 0}, 3, 0},
               {"temperature 1, sure", {.seed = 5}, 3, 25},
               {"temperature 1, unsure", {.seed = 5}, 3, 0},
               {"top_k 40, top_p 0.95", {.top_k = 40, .top_p = 0.95f, .seed = 5}, 3, 0},
               {"top_p 0.95, unsure", {.top_p = 0.95f, .seed = 5}, 3, 0}};
  for (const auto& c : cases) {
    const std::vector<float> stored = logits(rows, vocab, c.deviation, c.lead);
    std::vector<sampling::Sampler> samplers;
    for (std::uint32_t r = 0; r < rows; ++r) samplers.emplace_back(c.params, sampling::SamplerSizes{.vocab = vocab});
    std::vector<std::uint32_t> on_host(rows), on_device(rows);
    const double host = median_ms([&] {
      for (std::uint32_t r = 0; r < rows; ++r)
        on_host[r] = index(samplers[r].sample({.logits = {stored.data() + std::size_t{r} * vocab, vocab}}).value());
    });
    std::vector<float> row = stored;  // nothing is edited, so nothing in it changes
    const double drawn = median_ms([&] {
      std::vector<plan::RowDraw> draws;
      for (std::uint32_t r = 0; r < rows; ++r) {
        draws.push_back(*samplers[r].device_draw({}, 16));
        draws.back().row = r;
      }
      device->draw(row.data(), draws);
      const auto ids = device->wait().value();
      for (std::uint32_t r = 0; r < rows; ++r) on_device[r] = ids[r].index;
    });
    fmt::print("{:24} {:8.3f} {:8.3f}  {:5.1f}x{}\n", c.name, host, drawn, host / drawn,
               on_host == on_device ? "" : "  DIFFERENT DRAWS");
  }
}
