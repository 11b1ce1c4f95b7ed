#include "engine/inference/vision/row_positions.h"

#include <algorithm>

namespace llorch::engine::inference::vision {

RowPosition place_row(RowCursor& cursor, bool is_image_row, std::span<const plan::VisionGrid> frames) {
  if (!is_image_row || cursor.frame == frames.size()) {
    const std::uint32_t at = cursor.next++;
    return {at, at, at};
  }
  const plan::VisionGrid& grid = frames[cursor.frame];
  if (cursor.frame_rows == 0) {
    cursor.frame_base = cursor.next;
    cursor.next += std::max(grid.height, grid.width);
  }
  const RowPosition place{.time = cursor.frame_base,
                          .row = cursor.frame_base + cursor.frame_rows / grid.width,
                          .column = cursor.frame_base + cursor.frame_rows % grid.width};
  ++cursor.image_rows;
  if (++cursor.frame_rows == grid.height * grid.width) {
    ++cursor.frame;
    cursor.frame_rows = 0;
  }
  return place;
}

}  // namespace llorch::engine::inference::vision
