#pragma once
// Decodes a request's images and cuts them into the patches that the vision tower takes.
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "engine/inference/vision/image_encoder.h"
#include "engine/models/config/model_config.h"
#include "wire/worker.h"

namespace llorch::worker::images {

struct PromptImages {
  std::vector<engine::inference::vision::Image> grids;
  std::vector<float> patch_rows;
};

// Decodes and cuts the images at the sizes that the request names. Before it decodes any, it checks that the prompt
// holds as many image tokens as the images have rows, and not more than the model's. Errors: INVALID_PARAMS with
// details reason = image_count, image_size, image_base64, image_format, image_corrupt. Any thread; up to a second per
// image. REQUIRES: `request` has images.
base::Result<std::shared_ptr<const PromptImages>> prepare_images(const wire::ExecuteRequest& request,
                                                                 std::span<const base::TokenId> prompt,
                                                                 const engine::models::VisionConfig& vision);

}  // namespace llorch::worker::images
