#pragma once
// How a model is shared out over several devices: a pure function of an instruction's numbers and the count of devices.
//
// Each device ("rank") computes its attention heads, with their part of the cache, and its part of every feed-forward width.
// With fewer key-value heads than devices each of these is on several: rank r of R has the (r K / R)-th of K. Of a head of its
// own a model's vocabulary is shared out too: a rank computes its part of every row of logits.
// It holds the rows of the matrices that make these and the columns of the one that takes them back to the model's width,
// whose output is a partial sum. Columns are stored in blocks (of a quantized type, of FP8 and its scales): a width is cut between
// them, so that where it does not divide the first ranks have a block more. Everything else every rank has whole and computes for itself, equally: embedding, norms,
// a head that is the embedding table, routers, recurrent mixers, the vision tower.
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "engine/models/weights/slice.h"
#include "engine/plan/params.h"
#include "engine/plan/slots.h"

namespace llorch::engine::models {

// More would be a typing error: no node has more GPUs in one domain of fast links.
inline constexpr std::uint32_t kRanksMax = 16;

struct Shard {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
};

// A rank's part of a width whose columns are stored in blocks of `block`: equal parts where these are whole blocks, otherwise
// whole blocks and the last one as short as it is, otherwise equal parts that cut blocks. None: neither is possible.
struct Part {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  bool operator==(const Part&) const = default;
};
std::optional<Part> part_of(std::uint32_t width, std::uint32_t block, const Shard& shard);

// Makes an instruction's numbers those of a rank; true: its output is a partial sum. `block`: of the columns that are summed over.
// Errors: MODEL_INCOMPATIBLE (what does not divide, with the numbers).
base::Result<bool> share_out(plan::AttentionParams& params, const Shard& shard, std::uint32_t block);
base::Result<bool> share_out(plan::MlaAttentionParams& params, const Shard& shard, std::uint32_t block);
base::Result<bool> share_out(plan::SwigluParams& params, const Shard& shard, std::uint32_t block);
base::Result<bool> share_out(plan::MoeParams& params, const Shard& shard, std::uint32_t block);
// False: its output is a part of the rows, which are whole where the parts lie behind each other. A vocabulary that does not divide
// stays whole.
base::Result<bool> share_out(plan::LmHeadParams& params, const Shard& shard, std::uint32_t block);
template <plan::ParamStruct P>
base::Result<bool> share_out(P&, const Shard&, std::uint32_t) {
  return false;
}

// Whether the columns of the tensor in `slot` are a width that is shared out.
bool is_summed_over(plan::Opcode opcode, std::uint8_t slot);

// What a rank holds of the tensor in `slot`, told by the one dimension that is another in its own numbers than in the whole's.
// What is added to the sum once is the first rank's.
TensorShare share_of(std::uint8_t slot, const plan::ParamBlock& whole, const plan::ParamBlock& own, const Shard& shard,
                     std::uint32_t block);

}  // namespace llorch::engine::models
