#include "engine/inference/vision/image_encoder.h"

#include <fmt/format.h>

namespace llorch::engine::inference::vision {

using plan::DeviceBuffer;
using plan::MemoryPurpose;
using plan::StepLimits;
using plan::VisionGrid;

namespace {

std::uint64_t places_bytes(const StepLimits& limits) { return 3ULL * limits.rows_max * sizeof(std::uint32_t); }
std::uint64_t patches_bytes(const models::VisionConfig& vision, const StepLimits& limits) {
  return std::uint64_t{limits.rows_max} * vision.patch_row_width() * sizeof(float);
}

tl::unexpected<base::Error> refuse(std::string message) {
  return base::fail(base::ErrorCode::kInvalidParams, std::move(message));
}

}  // namespace

std::uint64_t ImageEncoder::device_bytes(const models::VisionConfig& vision, const StepLimits& limits) {
  return places_bytes(limits) + patches_bytes(vision, limits);
}

base::Result<ImageEncoder> ImageEncoder::make(const models::VisionConfig& vision, const StepLimits& limits,
                                              plan::Backend& backend) {
  ImageEncoder encoder;
  encoder.vision_ = vision;
  encoder.backend_ = &backend;
  encoder.limits_ = limits;
  encoder.places_memory_ = TRY(DeviceBuffer::allocate(backend, places_bytes(limits), MemoryPurpose::kTables));
  encoder.patches_memory_ = TRY(DeviceBuffer::allocate(backend, patches_bytes(vision, limits), MemoryPurpose::kTables));
  return encoder;
}

base::Result<Frames> ImageEncoder::frames_of(std::span<const Image> images, std::span<const float> patch_rows) const {
  Frames frames;
  std::uint64_t patches = 0;
  std::uint64_t rows = 0;
  for (const Image& image : images) {
    const std::uint64_t area = std::uint64_t{image.height} * image.width;
    if (image.frames == 0 || area == 0 || image.height % vision_.merge != 0 || image.width % vision_.merge != 0) {
      return refuse(fmt::format("an image of {} x {} x {} patches; height and width must be multiples of {}",
                                image.frames, image.height, image.width, vision_.merge));
    }
    if (area > limits_.rows_max)
      return refuse(fmt::format("a frame of {} patches; at most {} were planned", area, limits_.rows_max));
    patches += image.frames * area;
    rows += image.frames * (area / vision_.patches_per_row());
    if (rows > vision_.image_rows_max)
      return refuse(fmt::format("the images take more than the {} rows of a request", vision_.image_rows_max));
    const VisionGrid merged{.height = image.height / vision_.merge, .width = image.width / vision_.merge};
    frames.patches.insert(frames.patches.end(), image.frames, {.height = image.height, .width = image.width});
    frames.rows.insert(frames.rows.end(), image.frames, merged);
  }
  if (patches == 0 || patch_rows.size() != patches * vision_.patch_row_width()) {
    return refuse(fmt::format("{} values for {} patches of {}", patch_rows.size(), patches, vision_.patch_row_width()));
  }
  frames.rows_count = static_cast<std::uint32_t>(rows);
  return frames;
}

// Patches follow each other by blocks of merge x merge (VisionGrid).
void ImageEncoder::place_patches(const VisionGrid& grid, std::uint32_t first, std::uint32_t total) {
  const std::uint32_t merge = vision_.merge;
  const std::uint32_t blocks_wide = grid.width / merge;
  for (std::uint32_t i = 0; i < grid.height * grid.width; ++i) {
    const std::uint32_t block = i / (merge * merge);
    const std::uint32_t within = i % (merge * merge);
    places_[total + first + i] = block / blocks_wide * merge + within / merge;
    places_[2 * total + first + i] = block % blocks_wide * merge + within % merge;
  }
}

void ImageEncoder::fill(Progress& progress, const Frames& frames, std::span<const float> patch_rows,
                        plan::ExecutionContext& ctx) {
  active_slots_.clear();
  grids_.clear();
  image_rows_.clear();
  row_offsets_.assign(1, 0);
  for (; progress.frame < frames.patches.size(); ++progress.frame) {
    const VisionGrid& grid = frames.patches[progress.frame];
    const std::uint32_t end = row_offsets_.back() + grid.height * grid.width;
    if (end > limits_.rows_max) break;
    const std::uint32_t rows = grid.height * grid.width / vision_.patches_per_row();
    active_slots_.push_back(progress.slot);
    grids_.push_back(grid);
    image_rows_.push_back({.begin = progress.row, .end = progress.row + rows});
    row_offsets_.push_back(end);
    progress.row += rows;
  }
  const std::uint32_t total = row_offsets_.back();
  ASSERT(total != 0, "no frame is left, or one of more than {} patches", limits_.rows_max);
  places_.assign(std::size_t{3} * total, 0);
  for (std::size_t b = 0; b < grids_.size(); ++b) place_patches(grids_[b], row_offsets_[b], total);
  backend_->copy_to_device(places_memory_.data(), std::as_bytes(std::span(places_)));
  const std::size_t width = vision_.patch_row_width();
  backend_->copy_to_device(patches_memory_.data(),
                           std::as_bytes(patch_rows.subspan(progress.patch_rows * width, total * width)));
  progress.patch_rows += total;
  ctx.mode = plan::ExecutionMode::kVisionEncode;
  ctx.batch_size = static_cast<std::uint32_t>(grids_.size());
  ctx.total_rows = total;
  ctx.active_slots = active_slots_;
  ctx.row_offsets = row_offsets_;
  ctx.grids = grids_;
  ctx.image_rows = image_rows_;
  ctx.positions3 = reinterpret_cast<const std::uint32_t*>(places_memory_.data());
  ctx.patch_rows = reinterpret_cast<const float*>(patches_memory_.data());
}

}  // namespace llorch::engine::inference::vision
