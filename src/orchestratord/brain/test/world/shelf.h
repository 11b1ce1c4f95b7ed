#pragma once
// The models that a simulated world has.
#include <cstdint>
#include <string>
#include <vector>

#include "contract/pool.h"

namespace llorch::orchestratord::brain {

struct ModelOnShelf {
  std::string name;
  std::int64_t bytes;
};
inline const std::vector<ModelOnShelf> kShelf = {
    {"a", 3'000'000'000}, {"b", 4'000'000'000}, {"c", 7'000'000'000}, {"huge", 90'000'000'000}};

inline contract::ModelFacts facts(const ModelOnShelf& m) {
  return {
      .model_ref = "file:/" + m.name, .digest = "sha256:" + m.name, .context_length = 1000, .memory_bytes = m.bytes};
}
inline std::int64_t bytes_of(const std::string& digest) {
  for (const ModelOnShelf& m : kShelf) {
    if (facts(m).digest == digest) return m.bytes;
  }
  return 0;
}

}  // namespace llorch::orchestratord::brain
