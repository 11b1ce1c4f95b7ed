#pragma once
// Which layers attend to entries of windows, and how they rotate, as config.json says it in the spellings of today and of the
// first files.
#include <cstdint>

#include "engine/models/config/hf_keys.h"

namespace llorch::engine::models::families {

// Of every layer: rate, index, heads, window; template and rotation 1 where it has entries, else 0.
base::Result<> read_hf_compressed_layers(const HfKeys& keys, ModelConfig& config);
// Of every layer: whether a table by token says which experts its rows go to.
base::Result<> read_hf_hashed_layers(const HfKeys& keys, ModelConfig& config);
// Rotations 0 and 1, each of the last part of heads of `d_head` elements.
base::Result<> read_hf_compressed_ropes(const HfKeys& keys, std::uint32_t d_head, ModelConfig& config);
// Groups that divide heads, and rows that are not too wide.
base::Result<> check_compressed(const KeyNames& names, const ModelConfig& config);

}  // namespace llorch::engine::models::families
