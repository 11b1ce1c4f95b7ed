#include "images/image_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "images/header.h"

namespace llorch::images {

base::Result<std::vector<base::TokenId>> expand_image_tokens(std::span<const base::TokenId> prompt,
                                                             base::TokenId image_token,
                                                             std::span<const std::uint64_t> rows) {
  const auto places = static_cast<std::size_t>(std::ranges::count(prompt, image_token));
  if (places != rows.size()) {
    return image_error("image_count",
                       fmt::format("the prompt has places for {} images and {} came with it; the model's "
                                   "chat template may not show every image it is given",
                                   places, rows.size()));
  }
  std::vector<base::TokenId> out;
  out.reserve(prompt.size() + std::accumulate(rows.begin(), rows.end(), std::uint64_t{0}));
  std::size_t image = 0;
  for (const base::TokenId token : prompt) out.insert(out.end(), token == image_token ? rows[image++] : 1, token);
  return out;
}

}  // namespace llorch::images
