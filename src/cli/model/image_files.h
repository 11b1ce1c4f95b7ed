#pragma once
#include <string>
#include <vector>

#include "base/token_id.h"
#include "cli/model/pixels.h"
#include "engine/models/config/model_config.h"

namespace llorch::cli::model {

struct PlacedFiles {
  Pixels pixels;
  std::vector<base::TokenId> tokens;  // every image token of the ids repeated to as many as its image has rows
};

// PNG and JPEG files as a model wants them, for ids that hold one image token for each. Errors: IO_ERROR, INVALID_PARAMS.
base::Result<PlacedFiles> place_files(const std::vector<std::string>& paths, std::vector<base::TokenId> tokens,
                                      const engine::models::VisionConfig& vision);

}  // namespace llorch::cli::model
