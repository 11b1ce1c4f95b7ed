// What a step of decode of a whole model takes on this GPU, replayed as a graph and kernel by kernel, beside the time in which a copy
// on the device would read its weights once. Usage: gpu_decode MODEL [MODEL...]. Without a GPU it says why and measures nothing.
#include <fmt/core.h>

#include <chrono>
#include <vector>

#include "engine/compute/cuda/backend.h"
#include "engine/compute/cuda/device.h"
#include "engine/inference/engine.h"

namespace {

using namespace llorch;
using engine::compute::cuda::CudaBackend;
using engine::compute::cuda::LaunchCounters;
using engine::contract::MemoryPurpose;
using engine::inference::Engine;
using engine::inference::SlotRows;

constexpr std::uint32_t kPromptTokens = 64, kWarmupSteps = 8, kSteps = 128;
constexpr std::uint32_t kBatches[] = {1, 8, 64};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Bytes per second, read and written.
double copy_bandwidth(CudaBackend& backend) {
  constexpr std::uint64_t kBytes = 1ULL << 30;
  constexpr int kRepetitions = 20;
  std::byte* from = backend.allocate(kBytes, MemoryPurpose::kWorkspace).value();
  std::byte* to = backend.allocate(kBytes, MemoryPurpose::kWorkspace).value();
  backend.copy_on_device(to, from, kBytes);
  base::Result<> done = backend.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepetitions; ++i) backend.copy_on_device(to, from, kBytes);
  done = backend.synchronize();
  const double seconds = seconds_since(begin);
  backend.release(from);
  backend.release(to);
  return done ? 2.0 * kBytes * kRepetitions / seconds : 0;
}

struct Steps {
  double seconds = 0;         // of one
  double device_seconds = 0;  // of that, its kernels
  double launches = 0;
  std::uint64_t replayed = 0;
};
base::Result<Steps> decode(CudaBackend& backend, Engine& engine, std::uint32_t slots, bool graphs) {
  if (graphs) {
    backend.limit_graphs({});
  } else {
    backend.limit_graphs({.steps_max = 0});
  }
  std::vector<base::TokenId> prompt(kPromptTokens);
  for (std::uint32_t i = 0; i < kPromptTokens; ++i) prompt[i] = base::TokenId{i % engine.facts().vocab};
  std::vector<SlotRows> rows;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    TRY(engine.reset(slot));
    TRY(engine.prefill(slot, prompt));
    rows.push_back({.slot = slot, .tokens = std::span(prompt).first(1)});
  }
  for (std::uint32_t step = 0; step < kWarmupSteps; ++step) TRY(engine.step(rows));
  const std::uint64_t replayed_before = backend.graphs().counters().replayed;
  LaunchCounters counters;
  backend.count_launches(&counters);
  backend.time_steps(true);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t step = 0; step < kSteps; ++step) TRY(engine.step(rows));
  const double seconds = seconds_since(begin);
  backend.count_launches(nullptr);
  const double device_seconds = backend.take_step_times().seconds;
  backend.time_steps(false);
  return Steps{.seconds = seconds / kSteps,
               .device_seconds = device_seconds / kSteps,
               .launches = counters.per_step(),
               .replayed = backend.graphs().counters().replayed - replayed_before};
}

base::Result<> measure(CudaBackend& backend, const char* path, double bandwidth) {
  const auto engine = TRY(Engine::load(path, {.context_tokens = 512, .slots = 64}, backend));
  const auto weights = static_cast<double>(backend.used_bytes(MemoryPurpose::kWeights));
  for (const std::uint32_t slots : kBatches)
    for (const bool graphs : {true, false}) {
      const Steps steps = TRY(decode(backend, *engine, slots, graphs));
      fmt::print(
          "{} batch {:2} graphs {:3}: {:9.1f} us a step, {:9.1f} on the device, {:9.1f} tokens/s {:6.1f} launches a "
          "step, {} of {} replayed, {:5.1f} % of copy\n",
          path, slots, graphs ? "on" : "off", steps.seconds * 1e6, steps.device_seconds * 1e6,
          slots / steps.seconds, steps.launches, steps.replayed, kSteps, 100 * weights / steps.seconds / bandwidth);
    }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  auto made = engine::compute::cuda::make_cuda_backend({.device = 0});
  if (!made) {
    fmt::print("nothing measured: {}\n", made.error().message);
    return 0;
  }
  auto& backend = static_cast<CudaBackend&>(**made);
  const double bandwidth = copy_bandwidth(backend);
  fmt::print("{}: copy on the device {:.1f} GB/s\n", backend.device_class(), bandwidth / 1e9);
  for (int i = 1; i < argc; ++i)
    if (const auto done = measure(backend, argv[i], bandwidth); !done) {
      fmt::print("{}: {}\n", argv[i], done.error().message);
      return 1;
    }
  return 0;
}
