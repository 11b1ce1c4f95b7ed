#pragma once
// What a caller asks of a load.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/token_id.h"
#include "engine/inference/memory/oom_ladder.h"
#include "engine/inference/repack_cache/repack_cache.h"
#include "engine/plan/dtype.h"

namespace llorch::engine::inference {

// Edits of one row that a device draws from. Penalties of a long text name a few thousand ids; with more the row is read back.
inline constexpr std::uint32_t kDrawEditsMax = 4096;

// Rows of prompts whose logits a worker can have in a step, beside one of each slot: they share a pass over the weights, and of a
// vocabulary of 2^17 they are 8 MiB.
inline constexpr std::uint32_t kPromptOutputRows = 15;
// Rows of a step whose logits a worker of so many slots can have.
constexpr std::uint32_t output_rows_of(std::uint32_t slots, std::uint32_t proposal_rows) {
  return slots + (proposal_rows > kPromptOutputRows ? proposal_rows : kPromptOutputRows);
}

struct EngineOptions {
  // Positions per slot, at most what the model was made for; 0 = that, or 2^20, which is how far positions go.
  std::uint32_t context_tokens = 0;
  std::uint32_t slots = 1;
  plan::DType kv_dtype = plan::DType::kF16;  // F16 or F32; part of a request's identity
  std::uint32_t prefill_chunk = 512;         // rows per step; past a few hundred a pass over the weights is well shared
  std::uint32_t output_rows_max = 0;  // rows of a step whose logits can be had; 0 = one per slot, and all proposals
  // Rows of a step that may be proposals (SlotRows::proposals). With some, recurrent state has a copy in every slot.
  std::uint32_t proposal_rows_max = 0;
  // Loads the model's own layer that predicts a further token, too (Engine::foresee). On one device. A model of embeddings has none.
  bool predicts = false;
  // Positions the cache holds over all slots, and may grow to while it runs (kv_cache/kv_plan.h). 0: every slot's context;
  // what is there at load. Never less than one context.
  std::uint64_t kv_tokens = 0;
  std::uint64_t kv_tokens_max = 0;
  // How much smaller the load may be when the device has too little memory, instead of refusing it.
  memory::LoadFloors floors;
  // Of models that take images. The defaults are one image of 1024 x 1024 pixels and four such images per request.
  std::filesystem::path projector;         // file of a GGUF model's tower; none: a text model
  std::uint32_t frame_patches_max = 4096;  // of the largest image; 0: what image_rows_max rows are made of
  std::uint32_t image_rows_max = 4096;  // of a request, at most the context; each costs memory in every slot. 0: none
  std::optional<base::TokenId> image_token;  // stands for a row of an image, instead of what the files say
  bool draws = false;  // steps may draw on the device (StepHooks::draw), which takes some of its memory
  // Where weights that were packed before are looked for; null: nowhere. `model_digest`: of the files as they are now, 64
  // hex digits; empty: not known, so nothing is looked for.
  const repack_cache::RepackCache* repack_cache = nullptr;
  std::string model_digest;
};

}  // namespace llorch::engine::inference
