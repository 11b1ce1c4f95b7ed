#pragma once
// Draws on a CUDA device against the host's sampler, whatever machine is behind it.
#include <random>
#include <string>

#include "cuda_support.h"
#include "engine/sampling/sampler.h"

namespace llorch::cuda_test {

constexpr std::uint32_t kEditsMax = 4096;

// One draw with all it depends on.
struct DrawRequest {
  engine::sampling::SamplingParams params;
  std::vector<float> logits;
  std::vector<base::TokenId> history{};
  std::size_t prompt_tokens = 0;
  std::uint32_t position = 0;
  std::vector<std::uint32_t> mask{};

  engine::sampling::SampleInput input() const {
    return {.logits = logits,
            .history = {.tokens = history, .prompt_tokens = prompt_tokens},
            .position = position,
            .mask = mask};
  }
  engine::sampling::Sampler sampler() const {
    return engine::sampling::Sampler(params, {.vocab = logits.size(), .history_max = history.size()});
  }
};

// Parameters that a device knows, and a row of any kind: spread out, full of ties, flat, with zeros of both signs, at the ends
// of the range, at times with an entry that is no number or a mask that allows nothing.
DrawRequest random_draw(std::mt19937& random, std::uint32_t width);
float between(std::mt19937& random, float low, float high);

// What was drawn is what the host draws, faults included.
void expect_host(const DrawRequest& request, const engine::plan::RowDrawn& drawn);

// A device sampler and rows for it. Takes exactly what the backend has said.
class DrawMachine {
 public:
  DrawMachine(std::unique_ptr<engine::plan::Backend> backend, std::uint32_t rows_max, std::uint32_t width);
  // Draws for all of them at once, from rows in the opposite order behind one that must stay as it is.
  std::vector<engine::plan::RowDrawn> draw(std::span<const DrawRequest> requests);

 private:
  void put(std::uint32_t row, std::span<const float> values);

  std::unique_ptr<engine::plan::Backend> backend_;
  std::uint32_t width_;
  engine::plan::DeviceBuffer rows_;
  std::unique_ptr<engine::plan::DeviceSampler> device_sampler_;
};

}  // namespace llorch::cuda_test
