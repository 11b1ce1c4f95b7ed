#include "images/target_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/assert.h"

namespace llorch::images {
namespace {

constexpr std::uint32_t kAspectMax = 200;

// In units of `unit`, ties to even.
std::uint32_t nearest(std::uint32_t length, std::uint32_t unit) {
  const std::uint32_t whole = length / unit;
  const std::uint32_t twice_rest = 2 * (length % unit);
  const bool up = twice_rest > unit || (twice_rest == unit && whole % 2 == 1);
  return whole + (up ? 1 : 0);
}

}  // namespace

std::uint64_t rows_of(const Size& target, const SizeRules& rules) {
  return std::uint64_t{target.width / rules.unit} * (target.height / rules.unit);
}

base::Result<Size> target_size(const Size& image, const SizeRules& rules) {
  ASSERT(image.area() > 0 && rules.unit > 0 && rules.pixels_max > 0 && rules.rows_max > 0);
  const auto [shorter, longer] = std::minmax(image.width, image.height);
  if (longer > std::uint64_t{kAspectMax} * shorter) {
    return image_error("image_size",
                       fmt::format("the image has {} x {} pixels; no side may be longer than {} times the "
                                   "other: cut it",
                                   image.width, image.height, kAspectMax));
  }
  const double unit = rules.unit;
  const std::uint64_t unit_area = std::uint64_t{rules.unit} * rules.unit;
  const std::uint64_t pixels_max = std::min(rules.pixels_max, rules.rows_max * unit_area);
  Size units{nearest(image.width, rules.unit), nearest(image.height, rules.unit)};
  if (units.area() * unit_area > pixels_max) {
    const double shrink = std::sqrt(static_cast<double>(image.area()) / static_cast<double>(pixels_max));
    const auto side = [&](std::uint32_t length) {
      return std::max(1U, static_cast<std::uint32_t>(std::floor(length / shrink / unit)));
    };
    units = {side(image.width), side(image.height)};
  } else if (units.area() * unit_area < rules.pixels_min) {
    const double grow = std::sqrt(static_cast<double>(rules.pixels_min) / static_cast<double>(image.area()));
    const auto side = [&](std::uint32_t length) { return static_cast<std::uint32_t>(std::ceil(length * grow / unit)); };
    units = {side(image.width), side(image.height)};
  }
  if (units.area() == 0) units = {std::max(1U, units.width), std::max(1U, units.height)};
  if (units.area() > rules.rows_max) {
    return image_error("image_size", fmt::format("the image takes {} tokens; an image may take {}: cut it or raise "
                                                 "orchestratord.worker_image_tokens_max",
                                                 units.area(), rules.rows_max));
  }
  return Size{units.width * rules.unit, units.height * rules.unit};
}

}  // namespace llorch::images
