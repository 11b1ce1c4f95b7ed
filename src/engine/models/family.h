#pragma once
// What makes an architecture: pure data plus one function that reads its configuration.
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/contract/plan.h"
#include "engine/contract/slots.h"
#include "engine/io/gguf.h"
#include "engine/models/config.h"
#include "engine/models/plan/layer_program.h"

namespace llorch::engine::models {

// Where a weight slot's tensor is found. `{}` in a name stands for the layer number.
struct WeightName {
  contract::Opcode opcode{};
  std::uint8_t slot = 0;
  std::uint8_t variant = 0;
  std::string_view gguf;
  bool required = false;
  std::string_view gguf_fallback{};  // bound when the first is absent (a head tied to the embedding)
};

template <class Slot>
constexpr std::uint8_t slot_number(Slot slot) {
  return static_cast<std::uint8_t>(slot);
}

struct Family {
  std::string_view architecture;    // general.architecture
  std::span<const LayerOp> before;  // once, ahead of the layers
  std::span<const LayerOp> layer;   // per layer
  std::span<const LayerOp> after;   // once, behind the layers
  std::span<const WeightName> weights;
  std::span<const std::string_view> claimed;  // tensors read outside instructions; `{}` as above
  std::span<const std::string_view> ignored;  // tensors that may be in a file and are not used
  base::Result<ModelConfig> (*read_config)(const io::GgufFile& file) = nullptr;
};

}  // namespace llorch::engine::models
