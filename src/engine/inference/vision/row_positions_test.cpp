#include "engine/inference/vision/row_positions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace llorch::engine::inference::vision {
namespace {

using plan::VisionGrid;

std::vector<RowPosition> place_all(std::string_view rows, std::span<const VisionGrid> frames) {
  RowCursor cursor;
  std::vector<RowPosition> places;
  for (const char row : rows) places.push_back(place_row(cursor, row == 'i', frames));
  return places;
}

TEST(RowPositions, TextStandsAtOnePlace) {
  const std::vector<RowPosition> expected{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}};
  EXPECT_EQ(place_all("ttt", {}), expected);
}

TEST(RowPositions, AnImageSpansRowsAndColumnsAndTextFollowsTheLargest) {
  const std::vector<VisionGrid> wide{{.height = 2, .width = 3}};
  const std::vector<RowPosition> expected{{0, 0, 0}, {1, 1, 1}, {1, 1, 2}, {1, 1, 3},
                                          {1, 2, 1}, {1, 2, 2}, {1, 2, 3}, {4, 4, 4}};
  EXPECT_EQ(place_all("tiiiiiit", wide), expected);
  const std::vector<VisionGrid> high{{.height = 3, .width = 1}};
  EXPECT_EQ(place_all("iiit", high), (std::vector<RowPosition>{{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {3, 3, 3}}));
}

// Frames that follow each other are placed like images with text between.
TEST(RowPositions, EveryFrameHasABaseOfItsOwn) {
  const std::vector<VisionGrid> frames(2, {.height = 1, .width = 2});
  EXPECT_EQ(place_all("iiii", frames), (std::vector<RowPosition>{{0, 0, 0}, {0, 0, 1}, {2, 2, 2}, {2, 2, 3}}));
  EXPECT_EQ(place_all("iitii", frames),
            (std::vector<RowPosition>{{0, 0, 0}, {0, 0, 1}, {2, 2, 2}, {3, 3, 3}, {3, 3, 4}}));
}

TEST(RowPositions, PastTheLastFrameAnImageIdIsText) {
  const std::vector<VisionGrid> frames{{.height = 1, .width = 1}};
  EXPECT_EQ(place_all("iiti", frames), (std::vector<RowPosition>{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}}));
}

// A place never passes the number of rows before it, so what fits a slot's positions fits its rotations.
TEST(RowPositions, NeverPassTheRowsBefore) {
  for (std::uint32_t height = 1; height < 5; ++height) {
    for (std::uint32_t width = 1; width < 5; ++width) {
      const std::vector<VisionGrid> frames{{.height = height, .width = width}};
      RowCursor cursor;
      for (std::uint32_t i = 0; i < height * width; ++i) {
        const RowPosition place = place_row(cursor, true, frames);
        EXPECT_LE(std::max({place.time, place.row, place.column}), std::max(height, width) - 1);
      }
      EXPECT_EQ(cursor.image_rows, height * width);
      EXPECT_LE(cursor.next, height * width);
    }
  }
}

}  // namespace
}  // namespace llorch::engine::inference::vision
