// Which state is whose: each is a row of one number, position and slot in one.
#include "engine/inference/speculation/hidden_states.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/inference/testing/recording_backend.h"

namespace llorch::engine::inference::speculation {
namespace {

constexpr float state_of(std::uint32_t slot, std::uint32_t position) {
  return static_cast<float>(1000 * slot + position);
}

class States : public ::testing::Test {
 protected:
  // Rows of a slot, the first of them at a position.
  struct Rows {
    std::uint32_t slot, first, count;
  };
  // What the predictor reads for each row of a step.
  std::vector<float> follow(std::vector<Rows> step) {
    slots_.clear(), lengths_.clear(), offsets_.assign(1, 0);
    std::vector<float> states;
    for (const Rows& rows : step) {
      slots_.push_back(rows.slot), lengths_.push_back(rows.first + rows.count);
      for (std::uint32_t i = 0; i < rows.count; ++i) states.push_back(state_of(rows.slot, rows.first + i));
      offsets_.push_back(static_cast<std::uint32_t>(states.size()));
    }
    const plan::ExecutionContext ctx{.batch_size = static_cast<std::uint32_t>(step.size()),
                                     .total_rows = offsets_.back(),
                                     .active_slots = slots_,
                                     .sequence_lengths = lengths_,
                                     .row_offsets = offsets_};
    const float* read = hidden_.follow(ctx, reinterpret_cast<const std::byte*>(states.data()));
    return {read, read + states.size()};
  }
  float before(std::uint32_t slot, std::uint32_t position) {
    const HiddenStates::Place place{slot, position};
    return hidden_.knows(place) ? *hidden_.stage({&place, 1}) : -1;
  }

  testing::RecordingBackend backend_;
  HiddenStates hidden_ =
      HiddenStates::make({.rows_max = 16, .output_rows_max = 4, .slots_max = 3, .context_tokens_max = 64}, 1, backend_)
          .value();
  std::vector<std::uint32_t> slots_, lengths_, offsets_;
};

TEST_F(States, ARowReadsTheStateOfThePositionBefore) {
  for (std::uint32_t slot = 0; slot < 3; ++slot) hidden_.reset(slot);
  EXPECT_EQ(follow({{0, 0, 3}, {2, 0, 2}}), (std::vector<float>{0, 0, 1, 0, 2000}));
  EXPECT_EQ(follow({{0, 3, 1}, {1, 0, 1}, {2, 2, 2}}), (std::vector<float>{2, 0, 2001, 2002}));
  EXPECT_EQ(before(0, 4), 3);
  EXPECT_EQ(before(2, 4), 2003);
  EXPECT_EQ(before(2, 3), 2002) << "of the last step's rows each is known";
  EXPECT_EQ(before(0, 5), -1) << "nobody has been there";
  EXPECT_EQ(before(1, 0), -1) << "nothing is before the first";
}

TEST_F(States, GoingBackWithinAStepKeepsWhatWasBefore) {
  hidden_.reset(0);
  follow({{0, 0, 4}});
  follow({{0, 4, 5}});
  hidden_.rewind(0, 6);
  EXPECT_EQ(before(0, 6), 5);
  EXPECT_EQ(follow({{0, 6, 2}}), (std::vector<float>{5, 6}));
  // To where the step began, as models with recurrent state do: what was accepted is known until the next step.
  hidden_.rewind(0, 6);
  EXPECT_EQ(before(0, 6), 5);
  EXPECT_EQ(before(0, 7), 6);
  EXPECT_EQ(follow({{0, 6, 3}}), (std::vector<float>{5, 6, 7}));
}

TEST_F(States, GoingBackFurtherForgets) {
  hidden_.reset(0);
  follow({{0, 0, 4}});
  follow({{0, 4, 1}});
  hidden_.rewind(0, 2);
  EXPECT_EQ(before(0, 2), -1);
  EXPECT_EQ(follow({{0, 2, 2}}), (std::vector<float>{0, 2})) << "zeros where nothing is known";
}

TEST_F(States, ASlotThatWasNotInTheStepKeepsItsLast) {
  hidden_.reset(0), hidden_.reset(1);
  follow({{0, 0, 3}, {1, 0, 3}});
  follow({{1, 3, 2}});
  EXPECT_EQ(before(0, 3), 2);
  EXPECT_EQ(before(0, 2), -1) << "the step's rows are another's by now";
  hidden_.fork(0, 2);
  EXPECT_EQ(before(2, 3), 2);
  hidden_.reset(0);
  EXPECT_EQ(before(0, 3), -1);
}

// From its second row on the predictor reads its own states, also where the model has computed what was never drawn.
TEST_F(States, OwnStatesGoBeforeThoseOfRowsThatWereTakenBack) {
  hidden_.reset(0);
  follow({{0, 0, 6}});
  hidden_.rewind(0, 0);
  const HiddenStates::Place place{0, 3};
  EXPECT_EQ(before(0, 3), 2);
  const float own = 7777;
  hidden_.keep({&place, 1}, reinterpret_cast<const std::byte*>(&own));
  EXPECT_EQ(before(0, 4), own);
  follow({{0, 0, 5}});
  EXPECT_EQ(before(0, 4), 3) << "until the model has been there";
}

}  // namespace
}  // namespace llorch::engine::inference::speculation
