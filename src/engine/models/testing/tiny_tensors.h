#pragma once
// Safetensors files of a few numbers, in memory, for tests of what is made of stored tensors.
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/io/model_files.h"

namespace llorch::engine::models::testing {

struct TinyTensor {
  std::string type = "F32";
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> bytes;

  static TinyTensor f32(std::vector<std::uint64_t> shape, std::span<const float> values);
  // 0, 1, 2, ...
  static TinyTensor counting(std::vector<std::uint64_t> shape);
  static TinyTensor raw(std::string type, std::vector<std::uint64_t> shape, std::span<const std::uint8_t> bytes);
};

// A directory's files from these tensors and a config.json. `storage` holds the bytes and outlives the result.
io::ModelFiles tiny_files(const std::map<std::string, TinyTensor>& tensors, std::vector<std::byte>& storage,
                          const std::string& config = "{}");

}  // namespace llorch::engine::models::testing
