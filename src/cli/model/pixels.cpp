#include "cli/model/pixels.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"

namespace llorch::cli::model {
namespace {

constexpr std::uint32_t kImagesMax = 4096;
constexpr std::uint32_t kPatchesMax = 1U << 20;

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  tl::unexpected<base::Error> corrupt(std::string_view what) const {
    return base::fail(base::ErrorCode::kCorruptFile, fmt::format("{}: {} at byte {}", source_, what, at_));
  }
  base::Result<std::uint32_t> number() {
    std::uint32_t value = 0;
    TRY(copy(std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }
  base::Result<> copy(std::span<std::byte> out) {
    if (bytes_.size() - at_ < out.size()) return corrupt("the file ends");
    std::memcpy(out.data(), bytes_.data() + at_, out.size());
    at_ += out.size();
    return {};
  }
  std::size_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const std::byte> bytes_;
  const std::string& source_;
  std::size_t at_ = 0;
};

}  // namespace

base::Result<Pixels> parse_pixels(std::span<const std::byte> bytes, const std::string& source) {
  Reader reader(bytes, source);
  if (TRY(reader.number()) != 0x31564C47) return reader.corrupt("no GLV1 file");
  const std::uint32_t images = TRY(reader.number());
  if (images > kImagesMax) return reader.corrupt(fmt::format("{} images, at most {} are read", images, kImagesMax));
  Pixels pixels;
  std::uint64_t patches = 0;
  for (std::uint32_t i = 0; i < images; ++i) {
    const std::uint32_t frames = TRY(reader.number());
    const std::uint32_t height = TRY(reader.number());
    const std::uint32_t width = TRY(reader.number());
    if (std::max({frames, height, width}) > kPatchesMax || std::uint64_t{height} * width > kPatchesMax)
      return reader.corrupt(fmt::format("an image of {} x {} x {} patches", frames, height, width));
    pixels.images.push_back({.frames = frames, .height = height, .width = width});
    pixels.frame_patches_max = std::max(pixels.frame_patches_max, height * width);
    patches += std::uint64_t{frames} * height * width;
  }
  const std::uint32_t rows = TRY(reader.number());
  const std::uint32_t values = TRY(reader.number());
  if (rows != patches || rows > kPatchesMax || reader.left() / sizeof(float) < std::uint64_t{rows} * values)
    return reader.corrupt(fmt::format("{} patches of {} values for grids of {}", rows, values, patches));
  pixels.patches_count = rows;
  pixels.patch_rows.resize(std::size_t{rows} * values);
  TRY(reader.copy(std::as_writable_bytes(std::span(pixels.patch_rows))));
  return pixels;
}

base::Result<Pixels> read_pixels(const std::string& path) {
  const base::MappedFile file = TRY(base::MappedFile::open(path));
  return parse_pixels(file.bytes(), path);
}

}  // namespace llorch::cli::model
