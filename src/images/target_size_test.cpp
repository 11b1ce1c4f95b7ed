#include "images/target_size.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace llorch::images {
namespace {

constexpr SizeRules kRules{.unit = 32, .pixels_min = 65536, .pixels_max = 16777216, .rows_max = 16384};

// What PyPI transformers' smart_resize gives for (height, width, 32, 65536, 16777216).
TEST(TargetSize, KnownSizes) {
  const std::pair<Size, Size> known[] = {{{640, 480}, {640, 480}},       {{500, 375}, {512, 384}},
                                         {{1, 1}, {256, 256}},           {{10, 1000}, {32, 2560}},
                                         {{48, 80}, {224, 352}},         {{1920, 1080}, {1920, 1088}},
                                         {{16384, 2048}, {11584, 1440}}, {{272, 304}, {256, 320}},
                                         {{5000, 4000}, {4576, 3648}},   {{200, 1}, {3648, 32}}};
  for (const auto& [image, wanted] : known)
    EXPECT_EQ(target_size(image, kRules).value(), wanted) << image.width << " x " << image.height;
}

TEST(TargetSize, RefusesWhatCannotBe) {
  EXPECT_FALSE(target_size({201, 1}, kRules));
  EXPECT_FALSE(target_size({1, 201}, kRules));
  SizeRules narrow = kRules;
  narrow.rows_max = 4;
  EXPECT_EQ(target_size({400, 400}, narrow).value(), (Size{64, 64}));
  EXPECT_FALSE(target_size({32 * 150, 32}, narrow));
}

RC_GTEST_PROP(TargetSize, ObeysItsBounds, ()) {
  const Size image{*rc::gen::inRange(1U, 9000U), *rc::gen::inRange(1U, 9000U)};
  SizeRules rules = kRules;
  rules.unit = *rc::gen::element(4U, 28U, 32U);
  rules.rows_max = *rc::gen::inRange<std::uint64_t>(1, 20000);
  const auto size = target_size(image, rules);
  if (!size) return;
  RC_ASSERT(size->width % rules.unit == 0U && size->height % rules.unit == 0U);
  RC_ASSERT(size->area() > 0U);
  RC_ASSERT(rows_of(*size, rules) <= rules.rows_max);
}

}  // namespace
}  // namespace llorch::images
