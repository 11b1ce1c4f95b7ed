#include "cli/model/image_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "images/decode/patch_rows.h"
#include "images/image_tokens.h"

namespace llorch::cli::model {

namespace {

constexpr std::uint64_t kRowsMax = 1U << 14;  // of one image

base::Result<images::decode::PatchRows> cut(const std::string& path, const engine::models::VisionConfig& vision) {
  const base::MappedFile file = TRY(base::MappedFile::open(path));
  return images::decode::patch_rows_of(file.bytes(), vision.image_rules(), kRowsMax).map_error([&](base::Error error) {
    error.message = fmt::format("{}: {}", path, error.message);
    return error;
  });
}

}  // namespace

base::Result<PlacedFiles> place_files(const std::vector<std::string>& paths, std::vector<base::TokenId> tokens,
                                      const engine::models::VisionConfig& vision) {
  PlacedFiles out;
  std::vector<std::uint64_t> rows;
  for (const std::string& path : paths) {
    const images::decode::PatchRows rows_of_file = TRY(cut(path, vision));
    const std::uint32_t patches = rows_of_file.height * rows_of_file.width;
    rows.push_back(patches / vision.patches_per_row());
    out.pixels.images.push_back({.frames = 1, .height = rows_of_file.height, .width = rows_of_file.width});
    out.pixels.frame_patches_max = std::max(out.pixels.frame_patches_max, patches);
    out.pixels.patches_count += patches;
    out.pixels.patch_rows.insert(out.pixels.patch_rows.end(), rows_of_file.values.begin(), rows_of_file.values.end());
  }
  out.tokens = TRY(images::expand_image_tokens(tokens, base::TokenId{vision.image_row_ids[0]}, rows));
  return out;
}

}  // namespace llorch::cli::model
