#pragma once
// The numbers of a model, read from a file's metadata and checked against each other. Symbols as in engine.md section 2.
#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/contract/params.h"
#include "engine/io/gguf.h"

namespace llorch::engine::models {

struct RopeConfig {
  contract::RopeLayout layout = contract::RopeLayout::kNone;
  std::uint32_t dims = 0;  // R, even, at most d_qk
  double base = 10000.0;   // theta
  double factor = 1.0;     // linear scaling: frequencies are divided by it
};

struct ModelConfig {
  std::string architecture;
  std::string name;                  // general.name, may be empty
  std::uint32_t context_tokens = 0;  // what the model was made for
  std::uint32_t width = 0;           // D
  std::uint32_t layers = 0;          // L
  std::uint32_t ffn = 0;             // F
  std::uint32_t heads = 0;           // H
  std::uint32_t kv_heads = 0;        // K
  std::uint32_t d_qk = 0;
  std::uint32_t d_v = 0;
  std::uint32_t vocab = 0;  // V, rows of the embedding table
  float norm_eps = 0;
  float attention_scale = 0;
  contract::Activation activation = contract::Activation::kSilu;
  RopeConfig rope;
};

// The keys every decoder-only family with plain attention shares. `rope_layout` depends on family and file format.
// Errors: CONFIG_KEY_MISSING, CONFIG_KEY_INVALID (naming key, value and the rule it breaks), MISSING_WEIGHT (no embedding table).
base::Result<ModelConfig> read_attention_config(const io::GgufFile& file, contract::RopeLayout rope_layout);

}  // namespace llorch::engine::models
