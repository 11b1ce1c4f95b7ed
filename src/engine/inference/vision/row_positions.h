#pragma once
#include <cstdint>
#include <span>

#include "engine/plan/context.h"

namespace llorch::engine::inference::vision {

// Where a row stands on the axes of a rotation by sections (ExecutionContext::positions3).
struct RowPosition {
  std::uint32_t time = 0;
  std::uint32_t row = 0;
  std::uint32_t column = 0;
  bool operator==(const RowPosition&) const = default;
};

// How far a request has come. Starts as zeros.
struct RowCursor {
  std::uint32_t next = 0;        // position of the next row of text
  std::uint32_t image_rows = 0;  // rows of images met
  std::uint32_t frame = 0;       // the frame that is open, or comes next
  std::uint32_t frame_rows = 0;  // rows of it met
  std::uint32_t frame_base = 0;  // its position, once open
};

// The place of the request's next row. Text stands at one position on all axes. A frame of h x w rows at base p stands at
// time p, rows p.. and columns p.., and text goes on behind the largest of them: at p + max(h, w). Past the last frame a row
// with an image's id is text. `frames` are in rows, not patches. (Qwen2-VL, arXiv 2409.12191, section 2.1.)
RowPosition place_row(RowCursor& cursor, bool is_image_row, std::span<const plan::VisionGrid> frames);

}  // namespace llorch::engine::inference::vision
