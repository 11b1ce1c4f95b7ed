#pragma once
// The images of a submission: counted, checked and put where the prompt has a place for them. No pixel is decoded here.
#include <cstdint>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "text/chat.h"
#include "wire/pool.h"
#include "wire/worker.h"

namespace llorch::orchestratord::http::tasks {

inline constexpr std::size_t kImagesMax = 64;  // of one submission

// Images that a model can take, each at the size it will see.
struct MeasuredImages {
  std::vector<wire::ExecuteImage> images;
  std::vector<std::uint64_t> rows;          // tokens of each
  std::vector<base::Sha256Digest> digests;  // of the files
};

// `base64`: the files. Errors: INVALID_PARAMS with details field = messages and reason = images_unsupported (the model, as it
// is served, takes none), image_base64, image_format, image_corrupt, image_size (one too large or long; together more than
// facts.images->tokens_max).
base::Result<MeasuredImages> measure_images(std::vector<std::string> base64, const wire::ModelFacts& facts);

// The prompt with as many image tokens at each image's place as the image has rows. `text` stays the template's. Errors:
// INVALID_PARAMS with details field = messages and reason = image_count: not as many places as images.
base::Result<text::ChatPrompt> place_images(const MeasuredImages& measured, const wire::ModelFacts& facts,
                                            text::ChatPrompt prompt);

// SHA-256 of the prompt's text, then of the SHA-256 (32 bytes) of each image file.
std::string prompt_digest(const text::ChatPrompt& prompt, const MeasuredImages& measured);

}  // namespace llorch::orchestratord::http::tasks
