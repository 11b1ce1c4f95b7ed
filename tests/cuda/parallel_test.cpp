// Every model family shared by two emulated GPUs: against the float64 references with the tolerances of one, and against
// itself, with sums by way of the collective library's functions and by way of the host.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "cuda_support.h"
#include "engine/compute/cuda/collective/collective.h"
#include "engine/inference/parallel/host_collective.h"

namespace llorch::cuda_test {
namespace {

using engine::compute::cuda::CudaBackend;
using engine::compute::cuda::CudaCollective;
using engine::compute::cuda::GraphCounters;
using engine::compute::cuda::LaunchCounters;
using engine::compute::cuda::Nccl;
using engine::compute::cuda::StepGraphs;
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
  Devices devices(engine::plan::Collective& by) {
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
  HostCollective host(std::array<engine::plan::Backend*, 2>{pair.backends[0].get(), pair.backends[1].get()});
  EXPECT_TRUE(same_bits(score(model_, {}, pair.devices(host)), logits)) << "summed on the host";
  for (const auto& backend : pair.backends) EXPECT_EQ(backend->memory_used_bytes(), 0U);
}

// What lies between two sums is replayed as graphs, and moves no bit: the same steps with every kernel launched by itself, with
// graphs on one GPU only.
TEST_P(Parallel, ReplayMovesNoBit) {
  constexpr std::uint32_t kSteps = 6, kPrompt = 6;
  const std::span<const base::TokenId> text = std::span(model_.reference.tokens).last(4);  // behind the last image
  std::vector<float> logits[3];
  for (std::size_t run = 0; run < 3; ++run) {
    Pair pair;
    if (run != 0) pair.backends[0]->limit_graphs({.steps_max = 0});
    if (run == 1) pair.backends[1]->limit_graphs({.steps_max = 0});
    const auto engine = load(model_, {.kv_dtype = engine::plan::DType::kF16, .chunk = 64}, pair.devices());
    for (std::uint32_t i = 0; i < kPrompt + kSteps; ++i) {
      const auto row = engine->decode(0, text[i % text.size()]);
      ASSERT_TRUE(row) << row.error().message;
      logits[run].insert(logits[run].end(), row->begin(), row->end());
    }
    const GraphCounters& graphs = pair.backends[1]->graphs().counters();
    EXPECT_EQ(pair.backends[0]->graphs().counters(), run == 0 ? graphs : GraphCounters{});
    EXPECT_EQ(graphs.eager, StepGraphs::kEagerSteps * graphs.made);  // every stretch of every step
    EXPECT_EQ(graphs.replayed, (kPrompt + kSteps - StepGraphs::kEagerSteps) * graphs.made);
    EXPECT_EQ(graphs.made > 1, run != 1);
  }
  EXPECT_TRUE(same_bits(logits[0], logits[1])) << "launched one by one";
  EXPECT_TRUE(same_bits(logits[0], logits[2])) << "graphs on one GPU";
}

std::vector<std::string> shared_models() {
  std::vector<std::string> names = model_names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("mamba2"); });  // nothing to share out
  return names;
}
INSTANTIATE_TEST_SUITE_P(Golden, Parallel, testing::ValuesIn(once_a_family(shared_models())),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

// What is drawn on the device is drawn from whole rows, though each GPU has computed a part of them: as from the rows that the
// host was given, by another device.
TEST(ParallelDraws, AreFromWholeRows) {
  using engine::plan::RowDraw;
  using engine::plan::RowDrawn;
  constexpr std::uint32_t kSlots = 3;
  const Model model = read_model("llama3_gguf");
  Pair drawing, reading;
  const auto drawn_by = load(model, {.slots = kSlots, .draws = true}, drawing.devices());
  const auto read_by = load(model, {.slots = kSlots}, reading.devices());
  ASSERT_TRUE(drawn_by->facts().draws);
  const std::uint32_t vocab = drawn_by->facts().vocab;
  const auto alone = make_backend({});
  const auto device_sampler = alone->make_device_sampler({.rows_max = kSlots, .width = vocab, .edits_max = 1}).value();
  const auto rows = engine::plan::DeviceBuffer::allocate(*alone, std::uint64_t{kSlots} * vocab * sizeof(float),
                                                         engine::plan::MemoryPurpose::kActivations)
                        .value();
  for (std::uint32_t step = 0; step < 5; ++step) {
    std::vector<engine::inference::SlotRows> requests;
    std::vector<RowDraw> draws;
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      requests.push_back({slot, std::span(model.reference.tokens).subspan(slot + step, 1 + slot),
                          engine::inference::RowsWanted::kLast});
      draws.push_back(
          {.row = slot, .temperature = static_cast<float>(slot), .uniform = 0.2f * static_cast<float>(step)});
    }
    const engine::inference::StepHooks hooks{.draw = [&](std::size_t i) { return &draws[i]; }};
    const auto drawn = drawn_by->step(requests, hooks);
    const auto read = read_by->step(requests);
    ASSERT_TRUE(drawn && read);
    alone->copy_to_device(rows.data(), std::as_bytes(read->logits));
    device_sampler->draw(reinterpret_cast<float*>(rows.data()), draws);
    const auto expected = device_sampler->wait().value();
    ASSERT_EQ(drawn->drawn.size(), kSlots);
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      EXPECT_EQ(drawn->drawn[slot].index, expected[slot].index) << "step " << step << " slot " << slot;
      EXPECT_EQ(expected[slot].fault, engine::plan::DrawFault::kNone);
    }
  }
}

// A step of one of two GPUs: kernels of a prefill of 16 rows, of a decoded token, of a batch of 8 of them; what a decoded token is
// sent as once its steps come again: graphs, and between them gatherings.
struct Costs {
  std::uint64_t prefill = 0, decode = 0, batch = 0, graphs = 0;
  bool operator==(const Costs&) const = default;
};

std::array<Costs, 2> costs_of(const Model& model) {
  constexpr std::uint32_t kBatch = 8;
  Pair pair;
  const auto engine = load(model, {.chunk = 64, .slots = kBatch}, pair.devices());
  const auto tokens = std::span(model.reference.tokens);
  std::array<Costs, 2> costs;
  const auto count = [&](std::uint64_t Costs::*kernels, const auto& work) {
    std::array<LaunchCounters, 2> counters;
    for (std::size_t rank = 0; rank < 2; ++rank) pair.backends[rank]->count_launches(&counters[rank]);
    work();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      pair.backends[rank]->count_launches(nullptr);
      costs[rank].*kernels = counters[rank].total;
    }
  };
  const auto decode = [&] { EXPECT_TRUE(engine->decode(0, tokens.back())); };
  count(&Costs::prefill, [&] { EXPECT_TRUE(engine->prefill(0, tokens.first(16))); });
  count(&Costs::decode, decode);
  for (std::uint32_t i = 1; i < StepGraphs::kEagerSteps; ++i) decode();
  std::array<GraphCounters, 2> before;
  for (std::size_t rank = 0; rank < 2; ++rank) before[rank] = pair.backends[rank]->graphs().counters();
  decode();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const GraphCounters& now = pair.backends[rank]->graphs().counters();
    costs[rank].graphs = now.replayed - before[rank].replayed;
    EXPECT_EQ(now.eager, before[rank].eager) << model.name;
  }
  std::vector<engine::inference::SlotRows> rows;
  for (std::uint32_t slot = 0; slot < kBatch; ++slot)
    rows.push_back({slot, tokens.last(1), engine::inference::RowsWanted::kLast});
  count(&Costs::batch, [&] { EXPECT_TRUE(engine->step(rows)); });
  return costs;
}

// As launches.txt of one GPU (families_test.cpp), which it adds to; LLORCH_UPDATE_LAUNCHES=1 rewrites it.
TEST(ParallelLaunches, AsCommitted) {
  const std::filesystem::path path = std::filesystem::path(LLORCH_SOURCE_DIR) / "tests/cuda/launches_tp2.txt";
  std::string table =
      "# Of each of two GPUs that share a model, per step: kernels of a prefill of 16 rows, of one decoded token, of a "
      "batch of 8\n"
      "# of them; graphs that a decoded token is sent as when its steps come again, with a gathering between one and "
      "the next.\n"
      "# model prefill decode batch graphs\n";
  for (const std::string& name : shared_models()) {
    const std::array<Costs, 2> costs = costs_of(read_model(name));
    EXPECT_EQ(costs[0], costs[1]) << name;
    table += fmt::format("{} {} {} {} {}\n", name, costs[0].prefill, costs[0].decode, costs[0].batch, costs[0].graphs);
  }
  if (std::getenv("LLORCH_UPDATE_LAUNCHES") != nullptr) {
    std::ofstream(path) << table;
    GTEST_SKIP() << path << " is rewritten";
  }
  std::ifstream file(path);
  EXPECT_EQ(table, std::string(std::istreambuf_iterator<char>(file), {}));
}

// What stays and the most there ever was, which a short context reaches while weights are loaded and a long one when all is there.
TEST(ParallelMemory, IsPredictedForEveryGpu) {
  for (const std::uint32_t context : {16U, 512U}) {
    std::array<std::uint64_t, 2> peak_bytes{};
    const std::array backends{make_metered_backend(peak_bytes[0]), make_metered_backend(peak_bytes[1])};
    CudaCollective collective({{.backend = backends[0].get()}, {.backend = backends[1].get()}},
                              Nccl::open(LLORCH_FAKE_NCCL, {0, 1}).value());
    const Devices devices{.backends = {backends[0].get(), backends[1].get()}, .collective = &collective};
    const Model model = read_model("llama3_gguf");
    const engine::inference::EngineOptions options{.context_tokens = context, .slots = 2, .prefill_chunk = context};
    const auto predicted = engine::inference::Engine::predict(model.path, options, devices);
    ASSERT_TRUE(predicted) << predicted.error().message;
    const auto loaded = engine::inference::Engine::load(model.path, options, devices);
    ASSERT_TRUE(loaded) << loaded.error().message;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto& plan = (*predicted)[rank];
      EXPECT_EQ(plan.total_bytes(), backends[rank]->memory_used_bytes()) << "GPU " << rank;
      EXPECT_EQ(plan.peak_bytes(), peak_bytes[rank]) << "GPU " << rank;
      EXPECT_EQ(plan.peak_bytes() > plan.total_bytes(), context == 16) << "GPU " << rank;
    }
    EXPECT_EQ((*loaded)->facts().numerics, std::string(backends[0]->numerics()) + "/tp2");
  }
}

}  // namespace
}  // namespace llorch::cuda_test
