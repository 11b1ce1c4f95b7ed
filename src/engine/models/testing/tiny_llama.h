#pragma once
// A llama file of a few kilobytes with made-up weights, for tests of everything between file and device.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/io/gguf.h"

namespace llorch::engine::models::testing {

struct TinyLlama {
  std::uint32_t layers = 2, width = 64, heads = 4, kv_heads = 2, ffn = 96, vocab = 40, context = 192;
  bool tied = true;
  bool biases = false;
  std::vector<float> rope_divisors;                          // [d/2] or empty
  std::map<std::string, io::GgufValue> overrides;            // keys set instead of, or beside, the usual ones
  std::set<std::string> without;                             // keys and tensors left out
  std::map<std::string, std::vector<std::uint64_t>> shapes;  // tensors with another shape (ne0 first), or extra ones
  std::map<std::string, plan::DType> types;  // tensors of another type than F32; their bytes mean nothing

  std::vector<std::byte> bytes() const;
};

}  // namespace llorch::engine::models::testing
