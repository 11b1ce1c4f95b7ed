// Every model family shared by two emulated GPUs: against the float64 references with the tolerances of one, and against
// itself, with sums by way of the collective library's functions and by way of the host.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda_support.h"
#include "engine/compute/cuda/collective/collective.h"
#include "engine/inference/parallel/host_collective.h"

namespace llorch::cuda_test {
namespace {

using engine::compute::cuda::CudaBackend;
using engine::compute::cuda::CudaCollective;
using engine::compute::cuda::Nccl;
using engine::compute::cuda::emulation::make_backend;
using engine::inference::parallel::Devices;
using engine::inference::parallel::HostCollective;
using golden::same_bits;

// Two GPUs, the second of which runs its threads and blocks backwards.
struct Pair {
  Pair() {
    auto nccl = Nccl::open(LLORCH_FAKE_NCCL, {0, 1});
    EXPECT_TRUE(nccl) << nccl.error().message;
    collective = std::make_unique<CudaCollective>(
        std::vector<CudaCollective::Gpu>{{.backend = backends[0].get()}, {.backend = backends[1].get()}},
        *std::move(nccl));
  }
  Devices devices(engine::contract::Collective& by) {
    return {.backends = {backends[0].get(), backends[1].get()}, .collective = &by};
  }
  Devices devices() { return devices(*collective); }

  std::array<std::unique_ptr<CudaBackend>, 2> backends{make_backend({}), make_backend({.backwards = true})};
  std::unique_ptr<CudaCollective> collective;
};

std::vector<float> score(const Model& model, const RunOptions& options, const Devices& devices) {
  const auto loaded = load(model, options, devices);
  std::vector<float> logits;
  const auto done = loaded->score(0, model.reference.tokens, [&](std::size_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  });
  EXPECT_TRUE(done) << done.error().message;
  return logits;
}

class Parallel : public testing::TestWithParam<std::string> {
 protected:
  Model model_ = read_model(GetParam());
};

// SYS-2.3.2, SYS-2.3.4, SYS-6.3.3
TEST_P(Parallel, AgreesWithTheReferenceInOneSetOfBits) {
  Pair pair;
  const std::vector<float> logits = score(model_, {}, pair.devices());
  const double error = golden::relative_error(logits, model_.reference.logits);
  RecordProperty("relative_error", fmt::format("{:.3g}", error));
  EXPECT_LE(error, 2e-3);  // as one GPU, families_test.cpp
  EXPECT_TRUE(same_bits(score(model_, {.chunk = 1}, pair.devices()), logits)) << "row by row";
  EXPECT_TRUE(same_bits(score(model_, {.chunk = 7, .slots = 2}, pair.devices()), logits)) << "in chunks";
  HostCollective host(std::array<engine::contract::Backend*, 2>{pair.backends[0].get(), pair.backends[1].get()});
  EXPECT_TRUE(same_bits(score(model_, {}, pair.devices(host)), logits)) << "summed on the host";
  for (const auto& backend : pair.backends) EXPECT_EQ(backend->memory_used_bytes(), 0U);
}

std::vector<std::string> shared_models() {
  std::vector<std::string> names = model_names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("mamba2"); });  // nothing to share out
  return names;
}
INSTANTIATE_TEST_SUITE_P(Golden, Parallel, testing::ValuesIn(shared_models()),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

TEST(ParallelMemory, IsPredictedForEveryGpu) {
  Pair pair;
  const Model model = read_model("llama3_gguf");
  const engine::inference::EngineOptions options{.context_tokens = 128, .slots = 2, .prefill_chunk = 32};
  const auto predicted = engine::inference::Engine::predict(model.path, options, pair.devices());
  ASSERT_TRUE(predicted) << predicted.error().message;
  const auto loaded = engine::inference::Engine::load(model.path, options, pair.devices());
  ASSERT_TRUE(loaded) << loaded.error().message;
  for (std::size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ((*predicted)[rank].total_bytes(), pair.backends[rank]->memory_used_bytes()) << "GPU " << rank;
  EXPECT_EQ((*loaded)->facts().numerics, std::string(pair.backends[0]->numerics()) + "/tp2");
}

}  // namespace
}  // namespace llorch::cuda_test
