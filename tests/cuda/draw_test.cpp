// Draws on the emulated device against the host's sampler, bit for bit: whatever the parameters, the width, the company.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "draw_support.h"
#include "engine/compute/cpu/backend.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/inference/continuous_batch.h"

namespace llorch::cuda_test {
namespace {

using base::TokenId;
using engine::compute::cuda::emulation::make_backend;
using engine::plan::RowDraw;
using engine::plan::RowDrawn;
using engine::sampling::Sampler;
using engine::sampling::SamplingParams;

using MakeBackend = std::function<std::unique_ptr<engine::plan::Backend>()>;

void expect_the_hosts_draws(const MakeBackend& make, const MakeBackend& make_other) {
  std::uint32_t seed = 20;
  for (const std::uint32_t width : {1u, 2u, 31u, 33u, 257u, 2047u, 2048u, 2049u, 6001u}) {
    std::mt19937 random(++seed);
    SCOPED_TRACE(fmt::format("width {} seed {}", width, seed));
    DrawMachine machine(make(), 70, width), alone(make(), 1, width), another(make_other(), 70, width);
    for (const std::size_t batch : {1u, 2u, 7u, 64u, 70u}) {
      std::vector<DrawRequest> requests;
      for (std::size_t i = 0; i < batch; ++i) requests.push_back(random_draw(random, width));
      const auto drawn = machine.draw(requests), other = another.draw(requests);
      for (std::size_t i = 0; i < batch; ++i) {
        SCOPED_TRACE(fmt::format("batch {} draw {}", batch, i));
        expect_host(requests[i], drawn[i]);
        expect_host(requests[i], other[i]);
        if (i < 3) expect_host(requests[i], alone.draw({&requests[i], 1})[0]);
      }
    }
  }
}

void expect_the_hosts_draws_of_large_vocabularies(std::unique_ptr<engine::plan::Backend> backend) {
  constexpr std::uint32_t kWidth = 262'144;
  std::mt19937 random(5);
  DrawMachine machine(std::move(backend), 3, kWidth);
  std::vector<DrawRequest> requests(3);
  for (DrawRequest& r : requests) r.logits.resize(kWidth);
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

// OC-CORE-1033: one device, one host, one answer, in any company and whatever the order of a device's threads.
TEST(Draw, IsTheHostsWhateverIsAskedFor) {
  expect_the_hosts_draws([] { return make_backend({}); }, [] { return make_backend({.backwards = true}); });
}

// As many entries as vocabularies have, nearly all of them candidates; and as models spread them.
TEST(Draw, IsTheHostsForTheLargestVocabularies) { expect_the_hosts_draws_of_large_vocabularies(make_backend({})); }

// OC-CORE-1033: the CPU device draws on its threads, in whichever instruction set.
class CpuDraw : public ::testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<engine::plan::Backend> cpu(std::uint32_t threads_count) {
    return engine::compute::cpu::make_cpu_backend(
               {.threads_count = threads_count, .memory_budget_bytes = 1ULL << 30, .isa = GetParam()})
        .value();
  }
  void SetUp() override {
    if (!golden::processor_has(GetParam())) GTEST_SKIP() << "this processor lacks " << GetParam();
  }
};
INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, CpuDraw, ::testing::Values("avx2", "avxvnni", "avx512"));

TEST_P(CpuDraw, IsTheHostsWhateverIsAskedFor) {
  expect_the_hosts_draws([] { return cpu(3); }, [] { return cpu(1); });
}
TEST_P(CpuDraw, IsTheHostsForTheLargestVocabularies) { expect_the_hosts_draws_of_large_vocabularies(cpu(2)); }

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
  EXPECT_EQ(engine->facts().draws, on_device);
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
INSTANTIATE_TEST_SUITE_P(Cuda, DrawFamilies, testing::ValuesIn(once_a_family(model_names())),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace llorch::cuda_test
