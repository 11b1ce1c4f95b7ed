#pragma once
// What this worker does for the next one of its model: keeps the weights as it packed them.
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "engine/inference/engine.h"
#include "engine/inference/repack_cache/repack_cache.h"

namespace llorch::worker::loading {

// None when `directory` is empty or `bytes_max` is 0.
std::optional<engine::inference::repack_cache::RepackCache> repack_cache_of(const std::string& directory,
                                                                            std::int64_t bytes_max);

// Writes beside the steps, behind them in line for the processor, and says in the log what came of it. Its end ends the
// writing soon. Engine and cache outlive it.
class WeightKeeper {
 public:
  // `model_digest`: of the files that were loaded, confirmed behind the load.
  WeightKeeper(const engine::inference::Engine& engine,
               const std::optional<engine::inference::repack_cache::RepackCache>& cache, std::string model_digest);

 private:
  std::jthread thread_;
};

}  // namespace llorch::worker::loading
