#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace llorch::images {

// Every `image_token` in a rendered prompt stands for one image, in order; it is repeated to as many as the image has rows.
// Errors: INVALID_PARAMS with details reason = image_count: not as many as `rows` has images.
base::Result<std::vector<base::TokenId>> expand_image_tokens(std::span<const base::TokenId> prompt,
                                                             base::TokenId image_token,
                                                             std::span<const std::uint64_t> rows);

}  // namespace llorch::images
