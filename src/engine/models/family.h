#pragma once
// What makes an architecture: pure data plus the two functions that read its configuration.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/io/model_files.h"
#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/config/model_config.h"
#include "engine/models/config/other_keys.h"
#include "engine/models/plan_compiler/layer_program.h"
#include "engine/plan/plan.h"
#include "engine/plan/slots.h"

namespace llorch::engine::models {

// How a slot's tensor comes out of what a file stores. "Rows" are output features: the second last dimension of a matrix,
// the last of a vector. A source that holds the rows of several slots names the first and the last of them; the number of
// rows of each is the slot's own.
enum class Load : std::uint8_t {
  kWhole,                  // as stored
  kReshaped,               // the same elements in the same order under the slot's shape
  kNegExp,                 // -exp(x), reshaped
  kNumbers,                // numbers of experts, as F32
  kOverRoot,               // divided by the root of how many there are
  kStack,                  // one tensor per expert; the second {} of the name is the expert's number
  kHeads,                  // one vector per head of attention, likewise
  kRows,                   // the rows of slots first..last, one slot after the other
  kInterleavedRows,        // the rows of slots first..last, taking turns
  kTransposedRows,         // kRows, stored with the last two dimensions exchanged
  kRowsEitherWay,          // kRows or kTransposedRows, told by the shapes of a mixture's tensors
  kTransposedInterleaved,  // kInterleavedRows, stored with the last two dimensions exchanged
  kHeadKeys,               // MLA's kv_b [H (d_nope + d_v), kv_lora]: the first rows of every head, transposed
  kHeadValues,             // the other rows of every head
  kHeadRows,               // two slots, the first and the last, take turns head by head
  kKeyGroups,              // per key head: rows of the query heads that read it, then its own of keys, then of values
  kPieces,  // in FP8 as many pieces as num_key_value_heads says, each with blocks of scales of its own and with its
            // share of the rows of slots first..last; else kRows
  kDeltaGroups,  // of a gated-delta mixer: per key head its rows of q, k, v and z, or of beta and decay
  kMxfp4Rows,    // kInterleavedRows in MXFP4 as NAME_blocks and NAME_scales
  kTokenRows,    // the rows of two tokens, or of one: those that say yes and no (io::ModelFiles::hf_answers)
  kJoined,       // several tensors of as many rows each, one behind the other: NAME has their parts as [a|b|c]
  kLayerRows,    // of what all layers store together, those of this one
  kFrames,       // one [out, 3, p, p] per frame of a patch, NAME and NAME.1: the slot's rows are channel, frame, pixel
};

// Where a slot's tensor is found: `{}` stands for the layer number. A Hugging Face name begins behind the family's prefix,
// unless it starts with `^`. Empty: not in this format.
struct Source {
  constexpr Source(const char* pattern) : name(pattern) {}  // NOLINT: tables read better so
  constexpr Source(const char* pattern, Load how) : name(pattern), load(how) {}
  template <class Slot>
  constexpr Source(const char* pattern, Load how, Slot first_slot, Slot last_slot)
      : name(pattern),
        load(how),
        first(static_cast<std::uint8_t>(first_slot)),
        last(static_cast<std::uint8_t>(last_slot)) {}

  std::string_view name;
  Load load = Load::kWhole;
  std::uint8_t first = 0;
  std::uint8_t last = 0;
};

// One way to fill a slot. Several rows may name the same slot: the first whose tensors exist is taken.
struct WeightRow {
  plan::Opcode opcode{};
  std::uint8_t slot = 0;
  std::uint8_t variant = 0;
  bool required = true;
  Source gguf;
  Source hf;
};

// The part of a model that turns images into rows: blocks between patches and merged rows. Its weights stand in the
// family's table under variants of their own.
struct Tower {
  std::span<const LayerOp> before;  // once, ahead of the blocks
  LayerTemplate block;              // each; the configuration says behind which an extraction follows
  std::span<const LayerOp> after;   // once, behind the blocks
};

// A layer that predicts a further token: one of the family's that attends, between predictor_input and a norm of its own, with
// rows in the family's table.
struct Predictor {
  // Beside the model, as layer 0 under this prefix; empty, and always in GGUF: the layer past the last.
  std::string_view hf_prefix;
  bool hands_on_unnormed = false;  // from its second row on it reads its states ahead of its norm, not behind
};

// Of linear layers over pooled rows, whose names are no family's: Sentence Transformers' modules, heads of classification. By number:
enum DenseNumber : std::uint8_t { kDense2, kDense3, kClassifierDense, kClassifierOut, kAnswers };
std::span<const WeightRow> dense_weights();

// What a family has that says nothing else.
inline constexpr std::array kBefore{embedding()};
inline constexpr std::array kAfter{norm(NormVariant::kOutput), lm_head()};
// Where a text model's tensors begin: alone, inside a model that also sees, saved by transformers 5 or 4, or without a head.
inline constexpr std::array<std::string_view, 4> kPrefixes{"model.", "model.language_model.", "language_model.model.",
                                                           ""};

struct Family {
  std::string_view name;                           // for messages
  std::span<const std::string_view> gguf;          // general.architecture
  std::span<const std::string_view> hf;            // model_type
  std::span<const LayerOp> before = kBefore;       // once, ahead of the layers
  std::span<const LayerTemplate> layer_templates;  // of a layer: LayerConfig::layer template
  std::span<const LayerOp> after = kAfter;         // once, behind the layers
  std::span<const WeightRow> weights;
  const Tower* tower = nullptr;                               // of models whose configuration has one
  const Predictor* predictor = nullptr;                       // of families that can run one
  std::span<const std::string_view> hf_prefixes = kPrefixes;  // tried in order; the first that has the embedding table
  std::span<const std::string_view> gguf_claimed;             // tensors the configuration reads; `{}` as above
  std::span<const std::string_view> hf_claimed;               // the same, named as Source names them
  std::span<const std::string_view> gguf_ignored;             // tensors that may be in a file and are not used
  bool ignores_layers_past_end = false;  // prediction heads stored as further layers, or beside the model
  OtherKeys gguf_others;                 // keys of the metadata that it does not read, by name without the prefix
  OtherKeys hf_others;                   // keys of config.json that it does not read
  // Null: the family is not found in this format. The result has `vocab` only where a key says it.
  base::Result<ModelConfig> (*read_gguf)(const GgufKeys& keys) = nullptr;
  base::Result<ModelConfig> (*read_hf)(const HfKeys& keys) = nullptr;
};

}  // namespace llorch::engine::models
