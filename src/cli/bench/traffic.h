#pragma once
// Bytes that a step must read and products that a row must take, by a model's compiled plans. Arithmetic alone.
#include <cstdint>
#include <vector>

#include "engine/models/model.h"

namespace llorch::cli::bench {

struct Traffic {
  // The experts of one layer, of which every row takes some.
  struct Experts {
    std::uint64_t bytes = 0;  // of all
    std::uint32_t experts = 0, experts_used = 0;
  };
  // Cache rows of all layers that see equally far.
  struct Cache {
    std::uint64_t bytes_per_token = 0;
    std::uint32_t window_tokens = 0;  // 0: sees every position
  };
  std::uint64_t weights_bytes = 0;  // read once in a step, whatever its rows; without experts and embedding rows
  std::vector<Experts> experts;
  std::vector<Cache> caches;
  std::uint64_t embedding_row_bytes = 0;  // of a row of a step
  std::uint64_t state_bytes = 0;          // of a slot: recurrent states
  // Products with matrices that a prefilled row takes. Not counted: attention, and the head, which runs for the last row.
  std::uint64_t row_multiply_adds = 0;
  bool multiplies_integers = false;  // of blocks of scaled integers; else floats
};

Traffic traffic_of(const engine::models::CompiledModel& model);

// Bytes that a decode step over `batch` sequences reads, each of which holds `positions` then, its new one included.
// Of the experts of a layer it counts those that independent, even choices would touch.
double decode_step_bytes(const Traffic& traffic, std::uint32_t batch, double positions);

}  // namespace llorch::cli::bench
