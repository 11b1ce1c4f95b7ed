#include "images/decode/patch_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "images/decode/resize.h"

namespace llorch::images::decode {
namespace {

using engine::plan::ImageRules;

using Levels = std::array<std::array<float, 256>, 3>;  // [channel][value]

Levels normalised_levels(const ImageRules& rules) {
  Levels levels;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const float mean = rules.mean[channel] * 255.0F;
    const float deviation = rules.deviation[channel] * 255.0F;
    for (std::size_t value = 0; value < 256; ++value)
      levels[channel][value] = (static_cast<float>(value) - mean) / deviation;
  }
  return levels;
}

// One patch, whose first pixel is `from`: [3][temporal][patch][patch].
float* write_patch(const RgbImage& image, std::size_t from, const ImageRules& rules, const Levels& levels, float* to) {
  const std::size_t stride = std::size_t{3} * image.size.width;
  const std::size_t frame = std::size_t{rules.patch} * rules.patch;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    float* const first = to;
    for (std::size_t y = 0; y < rules.patch; ++y) {
      for (std::size_t x = 0; x < rules.patch; ++x)
        *to++ = levels[channel][image.pixels[3 * from + y * stride + 3 * x + channel]];
    }
    for (std::uint32_t t = 1; t < rules.temporal; ++t) to = std::copy_n(first, frame, to);
  }
  return to;
}

}  // namespace

SizeRules size_rules(const ImageRules& rules, std::uint64_t rows_max) {
  return {.unit = rules.unit(), .pixels_min = rules.pixels_min, .pixels_max = rules.pixels_max, .rows_max = rows_max};
}

std::uint64_t patch_bytes(const Size& size, const ImageRules& rules) {
  const std::uint64_t patches = std::uint64_t{size.width / rules.patch} * (size.height / rules.patch);
  return patches * rules.patch_row_width() * sizeof(float);
}

PatchRows cut_into_patches(const RgbImage& image, const ImageRules& rules) {
  ASSERT(image.size.width % rules.unit() == 0 && image.size.height % rules.unit() == 0, "{} x {}, unit {}",
         image.size.width, image.size.height, rules.unit());
  PatchRows out{.height = image.size.height / rules.patch, .width = image.size.width / rules.patch, .values = {}};
  out.values.resize(std::size_t{out.height} * out.width * rules.patch_row_width());
  const Levels levels = normalised_levels(rules);
  const std::uint32_t merge = rules.merge;
  float* to = out.values.data();
  for (std::uint32_t block_y = 0; block_y < out.height; block_y += merge) {
    for (std::uint32_t block_x = 0; block_x < out.width; block_x += merge) {
      for (std::uint32_t i = 0; i < merge * merge; ++i) {
        const std::size_t y = std::size_t{block_y + i / merge} * rules.patch;
        const std::size_t x = std::size_t{block_x + i % merge} * rules.patch;
        to = write_patch(image, y * image.size.width + x, rules, levels, to);
      }
    }
  }
  return out;
}

base::Result<PatchRows> patch_rows_of(std::span<const std::byte> file, const ImageRules& rules, std::uint64_t rows_max,
                                      const std::optional<Size>& target) {
  const SizeRules sizes = size_rules(rules, rows_max);
  const Header header = TRY(read_header(file));
  const Size size = target ? *target : TRY(target_size(header.shown(), sizes));
  if (size.area() == 0 || size.width % sizes.unit != 0 || size.height % sizes.unit != 0 ||
      std::uint64_t{size.width / sizes.unit} * (size.height / sizes.unit) > rows_max) {
    return image_error("image_size",
                       fmt::format("an image of {} x {} pixels; sides must be multiples of {}, and at most "
                                   "{} tokens come of it",
                                   size.width, size.height, sizes.unit, rows_max));
  }
  if (const std::uint64_t bytes = patch_bytes(size, rules); bytes > kPatchBytesMax) {
    return image_error("image_size",
                       fmt::format("an image of {} x {} pixels takes {} bytes as this model's patches; at "
                                   "most {} are made",
                                   size.width, size.height, bytes, kPatchBytesMax));
  }
  return cut_into_patches(resize(TRY(decode_image(file)), size), rules);
}

}  // namespace llorch::images::decode
