#include "worker/images/prompt_images.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/base64.h"
#include "images/decode/patch_rows.h"

namespace llorch::worker::images {

namespace {

base::Result<std::uint64_t> rows_of(const wire::ExecuteImage& image, const engine::models::VisionConfig& vision) {
  const std::int64_t unit = vision.image_rules().unit();
  if (image.width % unit != 0 || image.height % unit != 0) {
    return llorch::images::image_error(
        "image_size", fmt::format("an image of {} x {} pixels; this model's sides are multiples of {}", image.width,
                                  image.height, unit));
  }
  return static_cast<std::uint64_t>(image.width / unit) * static_cast<std::uint64_t>(image.height / unit);
}

base::Result<> check_counts(const wire::ExecuteRequest& request, std::span<const base::TokenId> prompt,
                            const engine::models::VisionConfig& vision) {
  if (vision.image_rows_max == 0) return llorch::images::image_error("image_count", "this worker takes no images");
  std::uint64_t rows = 0;
  for (const wire::ExecuteImage& image : request.images) rows += TRY(rows_of(image, vision));
  if (rows > vision.image_rows_max) {
    return llorch::images::image_error(
        "image_size",
        fmt::format("the images take {} tokens; this worker was started for {}", rows, vision.image_rows_max));
  }
  const engine::plan::ImageRules rules = vision.image_rules();
  const std::uint64_t bytes_each = llorch::images::decode::patch_bytes({rules.unit(), rules.unit()}, rules);
  if (rows > llorch::images::decode::kPatchBytesMax / bytes_each) {
    return llorch::images::image_error(
        "image_size", fmt::format("the images take {} bytes as this model's patches for each of {} tokens; at most {} "
                                  "in all are made",
                                  bytes_each, rows, llorch::images::decode::kPatchBytesMax));
  }
  const auto places = static_cast<std::uint64_t>(std::ranges::count(prompt, base::TokenId{vision.image_row_ids[0]}));
  if (places != rows) {
    return llorch::images::image_error(
        "image_count", fmt::format("the prompt holds {} image tokens; its images need {}", places, rows));
  }
  return {};
}

}  // namespace

base::Result<std::shared_ptr<const PromptImages>> prepare_images(const wire::ExecuteRequest& request,
                                                                 std::span<const base::TokenId> prompt,
                                                                 const engine::models::VisionConfig& vision) {
  TRY(check_counts(request, prompt, vision));
  auto out = std::make_shared<PromptImages>();
  for (const wire::ExecuteImage& image : request.images) {
    const auto file = base::base64_decode(image.file);
    if (!file) return llorch::images::image_error("image_base64", "an image is not valid base64");
    const llorch::images::Size size{static_cast<std::uint32_t>(image.width), static_cast<std::uint32_t>(image.height)};
    const auto rows = TRY(llorch::images::decode::patch_rows_of(std::as_bytes(std::span(*file)), vision.image_rules(),
                                                                vision.image_rows_max, size));
    out->grids.push_back({.frames = 1, .height = rows.height, .width = rows.width});
    out->patch_rows.insert(out->patch_rows.end(), rows.values.begin(), rows.values.end());
  }
  return std::shared_ptr<const PromptImages>(std::move(out));
}

}  // namespace llorch::worker::images
