#include <gtest/gtest.h>

#include <algorithm>

#include "base/testing/allocation_counter.h"
#include "engine/inference/continuous_batch.h"
#include "engine/inference/testing/tiny_engine.h"

namespace llorch::engine::inference {
namespace {

using base::TokenId;
using plan::DrawLimits;
using plan::RowDraw;
using plan::RowDrawn;
using testing::many;
using testing::ModelFile;
using testing::RecordingBackend;

constexpr std::uint64_t kDeviceSamplerBytes = 640;

// A device that draws: it "draws" the number that the recording head wrote, and spoils the row.
class DrawingBackend final : public RecordingBackend {
 public:
  std::uint64_t device_sampler_bytes(const DrawLimits& limits) const override {
    return kDeviceSamplerBytes * limits.rows_max;
  }
  base::Result<std::unique_ptr<plan::DeviceSampler>> make_device_sampler(const DrawLimits& limits) override {
    auto memory = TRY(plan::DeviceBuffer::allocate(*this, device_sampler_bytes(limits), plan::MemoryPurpose::kTables));
    return std::make_unique<Fake>(*this, limits, std::move(memory));
  }
  void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept override {
    bytes_read += host.size();
    RecordingBackend::copy_to_host(host, device);
  }

  std::uint64_t bytes_read = 0;
  std::vector<char> events;  // d: draws were enqueued, m: meanwhile, w: waited for

 private:
  class Fake final : public plan::DeviceSampler {
   public:
    Fake(DrawingBackend& backend, const DrawLimits& limits, plan::DeviceBuffer memory)
        : backend_(backend), limits_(limits), memory_(std::move(memory)) {
      drawn_.reserve(limits.rows_max);
    }
    void draw(float* rows, std::span<const RowDraw> draws) noexcept override {
      backend_.events.push_back('d');
      drawn_.clear();
      for (const RowDraw& draw : draws) {
        float* row = rows + std::size_t{draw.row} * limits_.width;
        drawn_.push_back({.index = static_cast<std::uint32_t>(row[0])});
        std::fill_n(row, limits_.width, -1.0f);
      }
    }
    base::Result<std::span<const RowDrawn>> wait() override {
      backend_.events.push_back('w');
      return drawn_;
    }

   private:
    DrawingBackend& backend_;
    DrawLimits limits_;
    plan::DeviceBuffer memory_;
    std::vector<RowDrawn> drawn_;
  };
};

struct Drawing {
  explicit Drawing(const EngineOptions& options) {
    auto result = Engine::load(file.path(), options, backend);
    EXPECT_TRUE(result) << result.error().message;
    engine = *std::move(result);
    backend.events.reserve(64);
  }
  ModelFile file;
  DrawingBackend backend;
  std::unique_ptr<Engine> engine;
};

TEST(EngineDraw, ItsMemoryIsPredictedAndTakenOnlyWhenAskedFor) {
  const ModelFile file;
  for (const bool draws : {false, true}) {
    DrawingBackend backend;
    const EngineOptions options{.slots = 3, .draws = draws};
    const auto predicted = Engine::predict(file.path(), options, backend);
    const auto engine = Engine::load(file.path(), options, backend);
    ASSERT_TRUE(predicted && engine);
    EXPECT_EQ((*engine)->facts().draws, draws);
    EXPECT_EQ(predicted->total_bytes(), backend.memory_used_bytes());
  }
  RecordingBackend host;  // a device that leaves draws to others
  EXPECT_FALSE(Engine::load(file.path(), {.draws = true}, host).value()->facts().draws);
}

// Of a row that is drawn from nothing travels but what was drawn, and the host works while the device does.
TEST(EngineDraw, OnlyRowsThatAreWantedAreRead) {
  Drawing drawing({.slots = 4, .prefill_chunk = 16, .output_rows_max = 8, .draws = true});
  const auto tokens = many(12);
  const std::uint64_t row_bytes = drawing.engine->facts().vocab * sizeof(float);
  const std::vector<SlotRows> requests{{0, std::span(tokens).subspan(0, 3)},
                                       {1, std::span(tokens).subspan(3, 2), RowsWanted::kAll},
                                       {2, std::span(tokens).subspan(5, 4), RowsWanted::kNone},
                                       {3, std::span(tokens).subspan(9, 1)}};
  std::vector<std::size_t> asked;
  const RowDraw draw;
  StepHooks hooks{.draw =
                      [&](std::size_t request) {
                        asked.push_back(request);
                        return &draw;
                      },
                  .meanwhile = [&] { drawing.backend.events.push_back('m'); }};
  const auto output = drawing.engine->step(requests, hooks);
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(asked, (std::vector<std::size_t>{0, 3})) << "who wants one row";
  EXPECT_EQ(drawing.backend.events, (std::vector<char>{'d', 'm', 'w'}));
  ASSERT_EQ(output->drawn.size(), 2u);
  EXPECT_EQ(output->drawn[0].index, 2002u);  // position 2, id 2
  EXPECT_EQ(output->drawn[1].index, 9u);     // position 0, id 9
  EXPECT_EQ(drawing.backend.bytes_read, 2 * row_bytes) << "the two rows of slot 1";
  EXPECT_EQ(output->row(1)[0], 3.0f);
  EXPECT_EQ(output->row(2)[0], 1004.0f);

  // A step in which everything is drawn reads no logits and allocates nothing.
  const std::vector<SlotRows> decode{{0, std::span(tokens).subspan(7, 1)}, {3, std::span(tokens).subspan(8, 1)}};
  drawing.backend.bytes_read = 0;
  hooks.draw = [&](std::size_t) { return &draw; };
  const auto before = base::testing::allocations_count();
  const auto drawn = drawing.engine->step(decode, hooks);
  EXPECT_EQ(base::testing::allocations_count(), before);
  ASSERT_TRUE(drawn);
  EXPECT_EQ(drawn->drawn[1].index, 1008u);
  EXPECT_EQ(drawing.backend.bytes_read, 0u);
}

// What was removed while the device ran is told nothing; the next plan is without it.
TEST(EngineDraw, ASequenceRemovedMeanwhileIsForgotten) {
  Drawing drawing({.slots = 2, .draws = true});
  ContinuousBatch batch(*drawing.engine, {});
  const auto prompt = many(3);
  for (const std::uint32_t id : {0u, 1u})
    ASSERT_TRUE(batch.add({.id = SequenceId{id}, .prompt = prompt, .tokens_max = 30}));
  const RowDraw draw;
  std::vector<SequenceId> told;
  const DrawSinks draws{.draw = [&](SequenceId) { return &draw; },
                        .drawn =
                            [&](SequenceId id, const RowDrawn&) {
                              told.push_back(id);
                              batch.append(id, TokenId{1});
                            },
                        .meanwhile = [&] { batch.remove(SequenceId{0}); }};
  const LogitsSink none = [](SequenceId, std::span<const float>) { FAIL() << "nobody wants logits"; };
  for (std::int64_t step = 0; step < 2; ++step) ASSERT_TRUE(batch.step(step, none, draws).value());
  EXPECT_EQ(told, (std::vector<SequenceId>{SequenceId{1}, SequenceId{1}}));
  EXPECT_EQ(batch.usage().running, 1u);
}

// A row behind a proposal is drawn from on the host, all others of the step on the device.
TEST(EngineDraw, RowsWithProposalsAreReadAndTheOthersDrawn) {
  class Foretelling final : public speculation::ProposalSource {
   public:
    bool propose(std::span<Request> requests) override {
      for (Request& request : requests) {
        if (request.id != SequenceId{1}) continue;
        request.proposals[0] = TokenId{7};
        request.count = 1;
      }
      return true;
    }
    void remove(SequenceId) override {}
  } foretelling;
  Drawing drawing({.slots = 3, .proposal_rows_max = 6, .draws = true});
  ContinuousBatch batch(*drawing.engine, {.speculation = {.source = &foretelling, .proposals_max = 2, .always = true}});
  const auto prompt = many(3);
  for (const std::uint32_t id : {0u, 1u, 2u})
    ASSERT_TRUE(batch.add({.id = SequenceId{id}, .prompt = prompt, .tokens_max = 30}));
  const RowDraw draw;
  std::vector<std::pair<SequenceId, float>> read;
  std::vector<std::pair<SequenceId, std::uint32_t>> drawn;
  const DrawSinks draws{.draw = [&](SequenceId) { return &draw; },
                        .drawn =
                            [&](SequenceId id, const RowDrawn& row) {
                              drawn.emplace_back(id, row.index);
                              batch.append(id, TokenId{5});
                            }};
  const LogitsSink sink = [&](SequenceId id, std::span<const float> logits) {
    read.emplace_back(id, logits[0]);
    batch.append(id, TokenId{7});
  };
  for (std::int64_t step = 0; step < 2; ++step) ASSERT_TRUE(batch.step(step, sink, draws).value());
  const SequenceId one{1};
  // The head writes 1000 * position + token: the prompt's end, the first proposal, and the same two tokens on.
  EXPECT_EQ(read, (std::vector<std::pair<SequenceId, float>>{{one, 2002}, {one, 3007}, {one, 4007}, {one, 5007}}));
  const SequenceId zero{0}, two{2};
  EXPECT_EQ(drawn,
            (std::vector<std::pair<SequenceId, std::uint32_t>>{{zero, 2002}, {two, 2002}, {zero, 3005}, {two, 3005}}));
}

}  // namespace
}  // namespace llorch::engine::inference
