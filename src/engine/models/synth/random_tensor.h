#pragma once
#include <cstdint>
#include <string_view>

#include "engine/models/gguf_export/slabs.h"

namespace llorch::engine::models {

// Values around `mean` with deviation `spread`, nearly normal; or evenly spread over mean +- spread.
struct Distribution {
  float mean = 0;
  float spread = 1;
  bool even = false;
};

// `elements` values in F32. Value i is a function of seed, name and i.
SlabReader random_tensor(std::uint64_t seed, std::string_view name, std::uint64_t elements,
                         const Distribution& distribution);

}  // namespace llorch::engine::models
