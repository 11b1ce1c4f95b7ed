// Draws on the emulated device against the host's sampler, bit for bit: whatever the parameters, the width, the company.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "cuda_support.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/inference/continuous_batch.h"
#include "engine/sampling/sampler.h"

namespace llorch::cuda_test {
namespace {

using base::TokenId;
using engine::compute::cuda::CudaBackend;
using engine::compute::cuda::emulation::make_backend;
using engine::contract::DrawLimits;
using engine::contract::RowDraw;
using engine::contract::RowDrawn;
using engine::sampling::Sampler;
using engine::sampling::SamplingParams;

constexpr std::uint32_t kEditsMax = 4096;
constexpr float kMax = std::numeric_limits<float>::max();

// One draw with all it depends on.
struct Request {
  SamplingParams params;
  std::vector<float> logits;
  std::vector<TokenId> history{};
  std::size_t prompt_tokens = 0;
  std::uint32_t position = 0;
  std::vector<std::uint32_t> mask{};

  engine::sampling::SampleInput input() const {
    return {.logits = logits,
            .history = {.tokens = history, .prompt_tokens = prompt_tokens},
            .position = position,
            .mask = mask};
  }
  Sampler sampler() const { return Sampler(params, {.vocab = logits.size(), .history_max = history.size()}); }
};

class Machine {
 public:
  Machine(std::uint32_t rows_max, std::uint32_t width, bool backwards = false)
      : backend_(make_backend({.memory_bytes = 3u << 30, .backwards = backwards})), width_(width) {
    const DrawLimits limits{.rows_max = rows_max, .width = width, .edits_max = kEditsMax};
    drawer_ = backend_->make_drawer(limits).value();
    EXPECT_EQ(backend_->memory_used_bytes(), backend_->drawer_bytes(limits));
    rows_ = engine::contract::DeviceBuffer::allocate(*backend_, std::uint64_t{rows_max + 1} * width * sizeof(float),
                                                     engine::contract::MemoryPurpose::kActivations)
                .value();
  }
  CudaBackend& backend() { return *backend_; }

  // Draws for all of them at once, from rows in the opposite order behind one that stays as it is.
  std::vector<RowDrawn> draw(std::span<const Request> requests) {
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
    drawer_->draw(reinterpret_cast<float*>(rows_.data()), draws);
    const auto drawn = drawer_->wait();
    EXPECT_TRUE(drawn);
    std::vector<float> after(width_);
    backend_->copy_to_host(std::as_writable_bytes(std::span(after)), rows_.data());
    EXPECT_EQ(after, first);
    return {drawn->begin(), drawn->end()};
  }

 private:
  void put(std::uint32_t row, std::span<const float> values) {
    backend_->copy_to_device(rows_.data() + std::uint64_t{row} * width_ * sizeof(float), std::as_bytes(values));
  }

  std::unique_ptr<CudaBackend> backend_;
  std::uint32_t width_;
  engine::contract::DeviceBuffer rows_;
  std::unique_ptr<engine::contract::Drawer> drawer_;
};

std::string text_of(const base::Result<TokenId>& id) {
  return id ? fmt::format("{}", index(*id)) : fmt::format("{}: {}", id.error().name(), id.error().message);
}
void expect_host(const Request& request, const RowDrawn& drawn) {
  Sampler sampler = request.sampler();
  EXPECT_EQ(text_of(Sampler::drawn(drawn, request.position)), text_of(sampler.sample(request.input())));
}

using Random = std::mt19937;

float between(Random& random, float low, float high) {
  return low + (high - low) * static_cast<float>(random() >> 8) * 0x1p-24f;
}
template <class T>
T one_of(Random& random, std::initializer_list<T> list) {
  return *(list.begin() + random() % list.size());
}

// Rows of all kinds: spread out, full of ties, flat, with zeros of both signs, at the ends of the range.
std::vector<float> random_row(Random& random, std::uint32_t width) {
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

Request random_request(Random& random, std::uint32_t width) {
  Request r{.params = {.temperature = one_of(random, {0.0f, 0.01f, 0.7f, 1.0f, 2.0f})},
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

// OC-CORE-1033: one device, one host, one answer, in any company and whatever the order of a device's threads.
TEST(Draw, IsTheHostsWhateverIsAskedFor) {
  std::uint32_t seed = 20;
  for (const std::uint32_t width : {1u, 2u, 31u, 33u, 257u, 2047u, 2048u, 2049u, 6001u}) {
    Random random(++seed);
    SCOPED_TRACE(fmt::format("width {} seed {}", width, seed));
    Machine machine(70, width), backwards(70, width, true), alone(1, width);
    for (const std::size_t batch : {1u, 2u, 7u, 64u, 70u}) {
      std::vector<Request> requests;
      for (std::size_t i = 0; i < batch; ++i) requests.push_back(random_request(random, width));
      const auto drawn = machine.draw(requests), other = backwards.draw(requests);
      for (std::size_t i = 0; i < batch; ++i) {
        SCOPED_TRACE(fmt::format("batch {} draw {}", batch, i));
        expect_host(requests[i], drawn[i]);
        expect_host(requests[i], other[i]);
        if (i < 3) expect_host(requests[i], alone.draw({&requests[i], 1})[0]);
      }
    }
  }
}

// As many entries as vocabularies have, nearly all of them candidates; and as models spread them.
TEST(Draw, IsTheHostsForTheLargestVocabularies) {
  constexpr std::uint32_t kWidth = 262'144;
  Random random(5);
  Machine machine(3, kWidth);
  std::vector<Request> requests(3);
  for (Request& r : requests) r.logits.resize(kWidth);
  for (std::uint32_t i = 0; i < kWidth; ++i) {
    requests[0].logits[i] = between(random, 0, 3);
    requests[1].logits[i] = between(random, -25, 5) + (i % 1000 == 0 ? 9.0f : 0.0f);
    requests[2].logits[i] = between(random, -25, 5);
  }
  requests[0].params = {.temperature = 2.0f, .top_p = 0.97f, .seed = 3};
  requests[1].params = {.temperature = 1.0f, .min_p = 0.001f, .seed = 4};
  requests[2].params = {.temperature = 0.8f, .top_k = 64, .top_p = 0.9f, .seed = 5};
  const auto drawn = machine.draw(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) expect_host(requests[i], drawn[i]);
}

// What a device does not know is the host's, and so are more edits than were planned for; the largest needs no cuts.
TEST(Draw, TheDeviceDrawsWhatCutsTheEndOfTheOrder) {
  const auto known = [](const SamplingParams& params, std::uint32_t edits_max = kEditsMax) {
    const std::vector<TokenId> history{TokenId{1}, TokenId{2}, TokenId{1}};
    Sampler sampler(params, {.vocab = 8, .history_max = 3});
    return sampler.device_draw({.history = {.tokens = history}}, edits_max) != nullptr;
  };
  EXPECT_TRUE(known({}));
  EXPECT_TRUE(known({.repetition_penalty = 1.1f, .frequency_penalty = 0.2f, .dry_multiplier = 0.5f}));
  for (const SamplingParams& params :
       {SamplingParams{.dynatemp_range = 0.5f}, SamplingParams{.top_n_sigma = 1}, SamplingParams{.typical_p = 0.9f},
        SamplingParams{.xtc_probability = 0.5f}, SamplingParams{.mirostat = 2},
        SamplingParams{.order = engine::sampling::SamplerOrder::kTemperatureLast}}) {
    EXPECT_FALSE(known(params));
    SamplingParams greedy = params;
    greedy.temperature = 0;
    EXPECT_TRUE(known(greedy));
  }
  EXPECT_TRUE(known({.repetition_penalty = 1.1f}, 2));
  EXPECT_FALSE(known({.repetition_penalty = 1.1f}, 1));
}

// Ids of three sequences through one engine, all that is drawn, by the device or by the host.
std::vector<std::vector<TokenId>> generate(const Model& model, bool on_device, const EmulationOptions& device = {}) {
  using engine::inference::SequenceId;
  const auto backend = make_backend(device);
  const auto engine = load(model, {.chunk = 8, .slots = 3, .draws = on_device}, *backend);
  EXPECT_EQ(engine->draws(), on_device);
  engine::inference::ContinuousBatch batch(*engine, {});
  const SamplingParams params[] = {{.temperature = 0},
                                   {.temperature = 0.9f, .top_p = 0.9f, .seed = 11},
                                   {.temperature = 1.2f,
                                    .top_k = 30,
                                    .min_p = 0.02f,
                                    .repetition_penalty = 1.2f,
                                    .presence_penalty = 0.3f,
                                    .seed = 12}};
  std::vector<Sampler> samplers;
  std::vector<std::vector<TokenId>> tokens;
  for (std::uint32_t i = 0; i < 3; ++i) {
    samplers.emplace_back(params[i], engine::sampling::SamplerSizes{.vocab = engine->facts().vocab, .history_max = 64});
    tokens.emplace_back();
    for (std::uint32_t t = 0; t < 5 + 6 * i; ++t) tokens[i].push_back(TokenId{1 + (t + i) % 4});
    EXPECT_TRUE(batch.add({.id = SequenceId{i}, .prompt = tokens[i], .tokens_max = 64}));
  }
  int by_device = 0, meanwhiles = 0;
  const auto input = [&](SequenceId id, std::span<const float> logits) {
    const auto& history = tokens[static_cast<std::size_t>(id)];
    return engine::sampling::SampleInput{
        .logits = logits, .history = {.tokens = history}, .position = static_cast<std::uint32_t>(history.size())};
  };
  const auto append = [&](SequenceId id, TokenId token) {
    auto& history = tokens[static_cast<std::size_t>(id)];
    history.push_back(token);
    history.size() < 36 ? batch.append(id, token) : batch.remove(id);
  };
  const engine::inference::DrawSinks draws{.draw = [&](SequenceId id) -> const RowDraw* {
                                             // Every fifth token of one sequence by the host, in the same steps.
                                             if (id == SequenceId{1} && tokens[1].size() % 5 == 0) return nullptr;
                                             return samplers[static_cast<std::size_t>(id)].device_draw(input(id, {}),
                                                                                                       kEditsMax);
                                           },
                                           .drawn =
                                               [&](SequenceId id, const RowDrawn& drawn) {
                                                 ++by_device;
                                                 append(id, Sampler::drawn(drawn, 0).value());
                                               },
                                           .meanwhile = [&] { ++meanwhiles; }};
  bool ran = true;
  for (std::int64_t now = 0; ran; ++now) {
    ran = batch
              .step(
                  now,
                  [&](SequenceId id, std::span<const float> logits) {
                    append(id, samplers[static_cast<std::size_t>(id)].sample(input(id, logits)).value());
                  },
                  draws)
              .value();
  }
  EXPECT_EQ(by_device > 0, on_device);
  EXPECT_GT(meanwhiles, 0);
  return tokens;
}

class DrawFamilies : public testing::TestWithParam<std::string> {};

// SYS-2.3.2: what a model says does not depend on where its tokens are drawn.
TEST_P(DrawFamilies, SayTheSameWhereverTokensAreDrawn) {
  const Model model = read_model(GetParam());
  const auto by_host = generate(model, false);
  EXPECT_EQ(generate(model, true), by_host);
}
INSTANTIATE_TEST_SUITE_P(Cuda, DrawFamilies, testing::ValuesIn(model_names()),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace llorch::cuda_test
