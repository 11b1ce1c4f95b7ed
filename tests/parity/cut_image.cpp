// cut_image FILE PATCH TEMPORAL MERGE PIXELS_MIN PIXELS_MAX OUT: u32 height, u32 width in patches, then the rows as f32.
// Means and deviations are 0.5. Driven by transformers/test_images.py.
#include <fmt/core.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "images/decode/patch_rows.h"

using namespace llorch;

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const auto number = [&](int i) { return static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)); };
  const engine::plan::ImageRules rules{.patch = number(2),
                                       .temporal = number(3),
                                       .merge = number(4),
                                       .pixels_min = number(5),
                                       .pixels_max = number(6),
                                       .mean = {0.5F, 0.5F, 0.5F},
                                       .deviation = {0.5F, 0.5F, 0.5F}};
  const auto file = base::MappedFile::open(argv[1]);
  if (!file) return 1;
  const auto rows = images::decode::patch_rows_of(file->bytes(), rules, 1U << 20);
  if (!rows) {
    fmt::print(stderr, "{}\n", rows.error().message);
    return 1;
  }
  std::ofstream out(argv[7], std::ios::binary);
  const std::uint32_t grid[2] = {rows->height, rows->width};
  out.write(reinterpret_cast<const char*>(grid), sizeof grid);
  out.write(reinterpret_cast<const char*>(rows->values.data()),
            static_cast<std::streamsize>(rows->values.size() * sizeof(float)));
  return out.good() ? 0 : 1;
}
