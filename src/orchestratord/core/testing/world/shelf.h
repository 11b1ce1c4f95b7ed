#pragma once
// The models that a simulated world has.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/pool.h"

namespace llorch::orchestratord::core {

struct ModelOnShelf {
  std::string name;
  std::int64_t bytes;  // of each device
  std::int64_t devices = 1;
  bool replayable = true;
};
inline const std::vector<ModelOnShelf> kShelf = {{"a", 3'000'000'000},       {"b", 4'000'000'000, 1, false},
                                                 {"c", 7'000'000'000},       {"huge", 90'000'000'000},
                                                 {"pair", 2'500'000'000, 2}, {"trio", 2'000'000'000, 3}};
inline constexpr std::size_t kOfOneDevice = 3, kHuge = 3, kShared = 4;  // where on the shelf

inline wire::ModelFacts facts(const ModelOnShelf& m) {
  return {.model_ref = "file:/" + m.name,
          .digest = "sha256:" + m.name,
          .context_length = 1000,
          .memory_bytes = m.bytes,
          .devices = m.devices,
          .replayable = m.replayable};
}
// The model of a digest, "sha256:" and its name.
inline const ModelOnShelf& model_on_shelf(const std::string& digest) {
  return *std::find_if(kShelf.begin(), kShelf.end(), [&](const auto& m) { return facts(m).digest == digest; });
}

}  // namespace llorch::orchestratord::core
