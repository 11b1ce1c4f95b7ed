#include "images/decode/resize.h"

#include <algorithm>

namespace llorch::images::decode {
namespace {

constexpr int kFractionBits = 22;
constexpr double kSupport = 2.0;  // of the kernel, at scale 1

double cubic(double x) {
  constexpr double kA = -0.5;
  x = x < 0 ? -x : x;
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
  return 0.0;
}

// One output pixel of a line: `count` input pixels from `begin`, times weights from `weights`.
struct Tap {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  std::size_t weights = 0;
};
struct Taps {
  std::vector<Tap> taps;  // [to]
  std::vector<std::int32_t> weights;
};

std::int32_t fixed(double weight) {
  const double scaled = weight * (1 << kFractionBits);
  return static_cast<std::int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5);
}

Taps taps_of(std::uint32_t from, std::uint32_t to) {
  Taps out;
  const double step = static_cast<double>(from) / to;
  const double widening = std::max(step, 1.0);
  const double support = kSupport * widening;
  const double narrowing = 1.0 / widening;
  std::vector<double> weights;
  for (std::uint32_t i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * step;
    const double first = centre - support + 0.5;
    const auto begin = first < 0 ? 0U : static_cast<std::uint32_t>(first);
    const auto end = std::min(from, static_cast<std::uint32_t>(centre + support + 0.5));
    weights.clear();
    double sum = 0;
    for (std::uint32_t x = begin; x < end; ++x) {
      weights.push_back(cubic((static_cast<double>(x) - centre + 0.5) * narrowing));
      sum += weights.back();
    }
    out.taps.push_back({.begin = begin, .count = end - begin, .weights = out.weights.size()});
    for (const double weight : weights) out.weights.push_back(fixed(sum != 0 ? weight / sum : weight));
  }
  return out;
}

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp((sum + (1 << (kFractionBits - 1))) >> kFractionBits, 0, 255));
}

RgbImage resize_rows(const RgbImage& image, std::uint32_t width) {
  const Taps line = taps_of(image.size.width, width);
  RgbImage out{.size = {width, image.size.height}, .pixels = {}};
  out.pixels.resize(3 * out.size.area());
  std::uint8_t* to = out.pixels.data();
  for (std::uint32_t y = 0; y < image.size.height; ++y) {
    const std::uint8_t* row = image.pixels.data() + std::size_t{3} * image.size.width * y;
    for (const Tap& tap : line.taps) {
      std::int32_t sums[3] = {};
      for (std::uint32_t k = 0; k < tap.count; ++k) {
        const std::uint8_t* pixel = row + std::size_t{3} * (tap.begin + k);
        for (int c = 0; c < 3; ++c) sums[c] += line.weights[tap.weights + k] * pixel[c];
      }
      for (const std::int32_t sum : sums) *to++ = rounded(sum);
    }
  }
  return out;
}

RgbImage resize_columns(const RgbImage& image, std::uint32_t height) {
  const Taps line = taps_of(image.size.height, height);
  const std::size_t stride = std::size_t{3} * image.size.width;
  RgbImage out{.size = {image.size.width, height}, .pixels = {}};
  out.pixels.resize(3 * out.size.area());
  std::vector<std::int32_t> sums(stride);
  std::uint8_t* to = out.pixels.data();
  for (const Tap& tap : line.taps) {
    std::ranges::fill(sums, 0);
    for (std::uint32_t k = 0; k < tap.count; ++k) {
      const std::uint8_t* row = image.pixels.data() + stride * (tap.begin + k);
      const std::int32_t weight = line.weights[tap.weights + k];
      for (std::size_t x = 0; x < stride; ++x) sums[x] += weight * row[x];
    }
    for (const std::int32_t sum : sums) *to++ = rounded(sum);
  }
  return out;
}

}  // namespace

RgbImage resize(RgbImage image, const Size& target) {
  if (image.size.width != target.width) image = resize_rows(image, target.width);
  if (image.size.height != target.height) image = resize_columns(image, target.height);
  return image;
}

}  // namespace llorch::images::decode
