#pragma once
// Images of a request as the vision tower takes them.
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "contract/worker.h"
#include "engine/inference/vision/image_encoder.h"
#include "engine/models/config/model_config.h"

namespace llorch::worker::images {

struct PromptImages {
  std::vector<engine::inference::vision::Image> grids;
  std::vector<float> patch_rows;
};

// Decodes and cuts the images at the sizes that the request names. First of all, nothing decoded: the prompt holds as many
// image tokens as the images have rows, and not more than the model's. Errors: INVALID_PARAMS with details reason =
// image_count, image_size, image_base64, image_format, image_corrupt. Any thread; up to a second per image.
// REQUIRES: `request` has images.
base::Result<std::shared_ptr<const PromptImages>> prepare_images(const contract::ExecuteRequest& request,
                                                                 std::span<const base::TokenId> prompt,
                                                                 const engine::models::VisionConfig& vision);

}  // namespace llorch::worker::images
