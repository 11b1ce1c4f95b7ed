#include "draw_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

namespace llorch::cuda_test {

using base::TokenId;
using engine::plan::RowDraw;
using engine::plan::RowDrawn;
using engine::sampling::Sampler;
using engine::sampling::SamplingParams;

namespace {

constexpr float kMax = std::numeric_limits<float>::max();

std::string text_of(const base::Result<TokenId>& id) {
  return id ? fmt::format("{}", index(*id)) : fmt::format("{}: {}", id.error().name(), id.error().message);
}
template <class T>
T one_of(std::mt19937& random, std::initializer_list<T> list) {
  return *(list.begin() + random() % list.size());
}

// Rows of all kinds: spread out, full of ties, flat, with zeros of both signs, at the ends of the range.
std::vector<float> random_row(std::mt19937& random, std::uint32_t width) {
  std::vector<float> row(width);
  const int kind = static_cast<int>(random() % 6);
  for (float& v : row) {
    switch (kind) {
      case 0: v = between(random, -30, 20); break;
      case 1: v = between(random, -4, 4); break;
      case 2: v = static_cast<float>(random() % 5) - 2.0f; break;
      case 3: v = one_of(random, {0.0f, -0.0f}); break;
      case 4: v = one_of(random, {kMax, -kMax, 1.0f, 1e-40f}); break;
      default: v = between(random, -1, 1) * between(random, 0, 25); break;
    }
  }
  return row;
}

}  // namespace

float between(std::mt19937& random, float low, float high) {
  return low + (high - low) * static_cast<float>(random() >> 8) * 0x1p-24f;
}
void expect_host(const DrawRequest& request, const RowDrawn& drawn) {
  Sampler sampler = request.sampler();
  EXPECT_EQ(text_of(Sampler::drawn(drawn, request.position)), text_of(sampler.sample(request.input())));
}

DrawMachine::DrawMachine(std::unique_ptr<engine::plan::Backend> backend, std::uint32_t rows_max, std::uint32_t width)
    : backend_(std::move(backend)), width_(width) {
  const engine::plan::DrawLimits limits{.rows_max = rows_max, .width = width, .edits_max = kEditsMax};
  device_sampler_ = backend_->make_device_sampler(limits).value();
  EXPECT_EQ(backend_->memory_used_bytes(), backend_->device_sampler_bytes(limits));
  rows_ = engine::plan::DeviceBuffer::allocate(*backend_, std::uint64_t{rows_max + 1} * width * sizeof(float),
                                               engine::plan::MemoryPurpose::kActivations)
              .value();
}

std::vector<RowDrawn> DrawMachine::draw(std::span<const DrawRequest> requests) {
  const std::vector<float> first(width_, 7.0f);
  put(0, first);
  std::vector<Sampler> samplers;
  std::vector<RowDraw> draws;
  samplers.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto row = static_cast<std::uint32_t>(requests.size() - i);
    put(row, requests[i].logits);
    samplers.push_back(requests[i].sampler());
    const RowDraw* draw = samplers.back().device_draw(requests[i].input(), kEditsMax);
    if (draw == nullptr) ADD_FAILURE() << "the device should know this";
    draws.push_back(*draw);
    draws.back().row = row;
  }
  device_sampler_->draw(reinterpret_cast<float*>(rows_.data()), draws);
  const auto drawn = device_sampler_->wait();
  EXPECT_TRUE(drawn);
  std::vector<float> after(width_);
  backend_->copy_to_host(std::as_writable_bytes(std::span(after)), rows_.data());
  EXPECT_EQ(after, first);
  return {drawn->begin(), drawn->end()};
}

void DrawMachine::put(std::uint32_t row, std::span<const float> values) {
  backend_->copy_to_device(rows_.data() + std::uint64_t{row} * width_ * sizeof(float), std::as_bytes(values));
}

DrawRequest random_draw(std::mt19937& random, std::uint32_t width) {
  DrawRequest r{.params = {.temperature = one_of(random, {0.0f, 0.01f, 0.7f, 1.0f, 2.0f})},
                .logits = random_row(random, width),
                .position = static_cast<std::uint32_t>(random() % 100'000)};
  SamplingParams& p = r.params;
  p.top_k = one_of(random, {0u, 0u, 1u, 3u, 40u, 5000u});
  p.top_k = std::min(p.top_k, width);
  p.top_p = one_of(random, {1.0f, 1.0f, 0.0f, 0.5f, 0.95f, 0.999f});
  p.min_p = one_of(random, {0.0f, 0.0f, 0.05f, 0.5f, 1.0f});
  p.min_keep = one_of(random, {1u, 1u, 2u, 50u});
  p.seed = random();
  p.choice = static_cast<std::uint32_t>(random() % 3);
  if (random() % 2 == 0) {
    p.repetition_penalty = one_of(random, {1.0f, 1.3f, 0.5f, 0.0f});
    p.frequency_penalty = one_of(random, {0.0f, 0.7f, -2.0f});
    p.presence_penalty = one_of(random, {0.0f, 1.5f, -0.4f});
    p.penalty_last_n = one_of(random, {0u, 5u});
    p.repetition_scope =
        one_of(random, {engine::sampling::PenaltyScope::kAll, engine::sampling::PenaltyScope::kOutput});
    p.dry_multiplier = one_of(random, {0.0f, 0.8f, 10.0f});
    for (std::size_t i = random() % 300; i > 0; --i)
      r.history.push_back(TokenId{static_cast<std::uint32_t>(random() % std::min(width, 40u))});
    r.prompt_tokens = r.history.size() / 2;
  }
  for (std::size_t i = random() % 2 == 0 ? random() % 40 : 0; i > 0; --i)  // ids come more than once
    p.logit_bias.push_back({TokenId{static_cast<std::uint32_t>(random() % width)}, between(random, -100, 100)});
  if (random() % 3 == 0) {
    r.mask.resize((width + 31) / 32);
    const std::uint32_t allowed = one_of(random, {2u, 30u, 2000u});
    for (std::uint32_t i = 0; i < width; ++i)
      if (random() % allowed == 0) r.mask[i / 32] |= 1u << (i % 32);  // at times none
  }
  if (random() % 12 == 0)
    r.logits[random() % width] =
        one_of(random, {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()});
  return r;
}

}  // namespace llorch::cuda_test
