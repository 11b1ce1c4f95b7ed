#pragma once
// Models with random weights, for tests and benches: any architecture and shape, loadable and servable like a trained one.
#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/models/gguf_export/export_model.h"
#include "engine/models/synth/shape.h"

namespace llorch::engine::models {

struct SynthRequest {
  std::string architecture;  // general.architecture: "llama", "qwen3moe", ...
  SynthShape shape;
  std::uint64_t seed = 0;
  bool repeat_layers = false;  // layers of one shape have the weights of the first of them: written many times as fast
};

// Tokens of the made-up vocabulary that a text is spelled in: unknown, begin, end, and one per byte.
inline constexpr std::uint32_t kSynthVocabMin = 259;

// The GGUF of such a model: keys, a byte vocabulary filled up to the wanted size, and tensors that are made when they are
// written. A value is a function of seed, tensor name and place alone (Philox), so the same request gives the same model,
// whatever the type it is stored in. Scales keep activations near one, norms near one, and decays as Mamba-2 begins with.
// Errors: UNKNOWN_ARCHITECTURE; INVALID_PARAMS, and what the family's reader finds wrong with the numbers.
base::Result<ExportModel> synth_model(const SynthRequest& request);

}  // namespace llorch::engine::models
