// What whole models reach on this GPU: decode by batch and by how many positions each sequence holds, replayed as graphs and kernel by
// kernel, and prefill. One JSON line per case, beside what the device reads in this minute (LLORCH_READ_LIMIT in GB/s, of gpu_probe;
// without it the ratio is null). Usage: gpu_decode MODEL [MODEL...].
// LLORCH_GPU=emulated tries the program. Exit status: 0; 1 after an error; 4 without a GPU.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "engine/compute/cuda/emulation/driver.h"
#include "engine/inference/engine.h"

namespace {

using namespace llorch;
using engine::compute::cuda::CudaBackend;
using engine::compute::cuda::LaunchCounters;
using engine::plan::MemoryPurpose;
using engine::inference::Engine;
using engine::inference::SlotRows;
namespace emulation = engine::compute::cuda::emulation;

struct Plan {
  std::vector<std::uint32_t> batches{1, 8, 64};
  std::vector<std::uint32_t> contexts{0, 1024, 8192};
  std::uint32_t prefill_tokens = 2048;
  std::uint32_t steps = 64;
  // Of all sequences of a batch together: the cache of an 8B model takes 16 GiB for so many.
  std::uint64_t positions_max = 128 * 1024;
};
Plan tiny() { return {.batches = {1, 2}, .contexts = {0, 70}, .prefill_tokens = 80, .steps = 4, .positions_max = 512}; }
constexpr std::uint32_t kWarmupSteps = 4;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
std::vector<base::TokenId> some_tokens(const Engine& engine, std::uint32_t count) {
  std::vector<base::TokenId> tokens(count);
  for (std::uint32_t i = 0; i < count; ++i) tokens[i] = base::TokenId{(i * 7 + 3) % engine.facts().vocab};
  return tokens;
}

struct Steps {
  double seconds = 0;         // of one
  double device_seconds = 0;  // of that, its kernels
  double launches = 0;
  std::uint64_t replayed = 0;
};
base::Result<Steps> decode(CudaBackend& backend, Engine& engine, const Plan& plan, std::uint32_t slots, bool graphs) {
  if (graphs) {
    backend.limit_graphs({});
  } else {
    backend.limit_graphs({.steps_max = 0});
  }
  const std::vector<base::TokenId> token = some_tokens(engine, 1);
  std::vector<SlotRows> rows;
  for (std::uint32_t slot = 0; slot < slots; ++slot) rows.push_back({.slot = slot, .tokens = token});
  for (std::uint32_t step = 0; step < kWarmupSteps; ++step) TRY(engine.step(rows));
  const std::uint64_t replayed_before = backend.graphs().counters().replayed;
  LaunchCounters counters;
  backend.count_launches(&counters);
  backend.time_steps(true);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t step = 0; step < plan.steps; ++step) TRY(engine.step(rows));
  const double seconds = seconds_since(begin);
  backend.count_launches(nullptr);
  const double device_seconds = backend.take_step_times().seconds;
  backend.time_steps(false);
  return Steps{.seconds = seconds / plan.steps,
               .device_seconds = device_seconds / plan.steps,
               .launches = counters.per_step(),
               .replayed = backend.graphs().counters().replayed - replayed_before};
}

// What one step reads at least: every weight once, and what the sequences hold.
void print_decode(const char* path, std::uint32_t batch, std::uint32_t context, bool graphs, const Steps& steps, double bytes,
                  double limit) {
  fmt::print(R"({{"stage":"speed","name":"decode","model":"{}","batch":{},"context":{},"graphs":{},"us":{:.1f},"device_us":{:.1f},)"
             R"("tokens_s":{:.1f},"launches":{:.1f},"replayed":{},"GB_s":{:.1f},"of_read_limit":{}}})"
             "\n",
             path, batch, context, graphs, steps.seconds * 1e6, steps.device_seconds * 1e6, batch / steps.seconds,
             steps.launches, steps.replayed, bytes / steps.seconds / 1e9,
             limit > 0 ? fmt::format("{:.3f}", bytes / steps.seconds / limit) : "null");
}

base::Result<> measure(CudaBackend& backend, const Plan& plan, const char* path, double limit) {
  const std::uint32_t slots = plan.batches.back();
  const std::uint32_t longest = std::max(plan.contexts.back(), plan.prefill_tokens);
  const auto begin = std::chrono::steady_clock::now();
  const auto engine = TRY(Engine::load(
      path, {.context_tokens = longest + 4 * plan.steps + 64, .slots = slots, .prefill_chunk = 512, .kv_tokens = plan.positions_max},
      backend));
  const auto weights = static_cast<double>(backend.used_bytes(MemoryPurpose::kWeights));
  fmt::print(R"({{"stage":"speed","name":"load_model","model":"{}","s":{:.3f},"weights_GB":{:.2f}}})" "\n", path, seconds_since(begin),
             weights / 1e9);
  const double kv_bytes = static_cast<double>(backend.used_bytes(MemoryPurpose::kState)) /
                          static_cast<double>(std::max<std::uint64_t>(engine->facts().kv_tokens, 1));
  for (int round = 0; round < 2; ++round) {  // the first one warms up
    TRY(engine->reset(0));
    const auto prompt = some_tokens(*engine, plan.prefill_tokens);
    const auto started = std::chrono::steady_clock::now();
    TRY(engine->prefill(0, prompt));
    const double seconds = seconds_since(started);
    if (round == 1)
      fmt::print(R"({{"stage":"speed","name":"prefill","model":"{}","tokens":{},"s":{:.4f},"tokens_s":{:.0f}}})" "\n", path,
                 plan.prefill_tokens, seconds, plan.prefill_tokens / seconds);
  }
  for (const std::uint32_t context : plan.contexts)
    for (const std::uint32_t batch : plan.batches) {
      if (std::uint64_t{batch} * (context + 2 * (plan.steps + kWarmupSteps) + 64) > plan.positions_max) continue;
      for (std::uint32_t slot = 0; slot < slots; ++slot) TRY(engine->reset(slot));
      for (std::uint32_t slot = 0; slot < batch && context > 0; ++slot)
        TRY(engine->prefill(slot, some_tokens(*engine, context)));
      for (const bool graphs : {true, false}) {
        const Steps steps = TRY(decode(backend, *engine, plan, batch, graphs));
        print_decode(path, batch, context, graphs, steps, weights + kv_bytes * batch * context, limit);
      }
    }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // whoever ends it early has what was measured
  auto made = emulation::make_gpu_backend(0);
  if (!made) {
    fmt::print("nothing measured: {}\n", made.error().message);
    return 4;
  }
  auto& backend = static_cast<CudaBackend&>(**made);
  const char* const given = std::getenv("LLORCH_READ_LIMIT");
  const double limit = given != nullptr ? std::atof(given) * 1e9 : 0;
  int status = 0;
  for (int i = 1; i < argc; ++i)
    if (const auto done = measure(backend, emulation::is_emulated() ? tiny() : Plan{}, argv[i], limit); !done) {
      fmt::print(R"({{"stage":"speed","name":"model","model":"{}","error":"{}"}})" "\n{}\n", argv[i], done.error().name(),
                 done.error().message);
      status = 1;
    }
  return status;
}
