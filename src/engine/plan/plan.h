#pragma once
// A compiled plan: the whole model, unrolled, one SSA instruction list per execution mode.
// All of it is immutable after compile and lives in one arena (the owner is whoever compiled it); these are views.
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/plan/opcode.h"
#include "engine/plan/params.h"
#include "engine/plan/state.h"
#include "engine/plan/tensor.h"

namespace llorch::engine::plan {

inline constexpr std::uint32_t kAbsentWeightIndex = 0xFFFFFFFF;
inline constexpr std::uint16_t kNoParamBlock = 0xFFFF;
inline constexpr std::uint8_t kNoStateBlock = 0xFF;
inline constexpr std::uint32_t kNeverRead = 0xFFFFFFFF;
inline constexpr std::uint16_t kNoLayer = 0xFFFF;

// Index into CompiledPlan::weight_bindings, kAbsentWeightIndex for an optional slot without a tensor.
struct WeightRef {
  std::uint32_t index = kAbsentWeightIndex;
  constexpr bool present() const { return index != kAbsentWeightIndex; }
};

// Which weight is meant, without a name. `variant` tells apart the uses of one opcode in one layer (the two norms of a block).
struct WeightKey {
  std::uint16_t layer = kNoLayer;
  Opcode opcode{};
  std::uint8_t slot = 0;
  std::uint8_t variant = 0;
  auto operator<=>(const WeightKey&) const = default;
};

struct WeightBinding {
  std::uint32_t index = 0;  // own position in the list
  WeightKey key;
  std::uint32_t tensor = 0;  // number of the stored tensor; two bindings may share one (a tied head)
};

struct Instruction {
  Opcode opcode{};
  std::span<const RegisterRef> inputs;
  std::span<const RegisterRef> outputs;
  std::span<const WeightRef> weights;  // one per slot of the opcode (slots.h)
  std::uint16_t param_block_id = kNoParamBlock;
  std::uint8_t state_block_id = kNoStateBlock;
  // The output is this device's addend of a sum over all that share the model (collective.h): whoever runs the plan takes
  // the sum before the next instruction. Adapters know nothing of it.
  bool partial_sum = false;
};

struct ExecutionPlan {
  std::span<const Instruction> instructions;
  std::uint16_t register_count = 0;
  std::span<const StateDescriptor> state_descs;
};

struct LivenessMap {
  std::span<const std::uint32_t> register_last_read;  // [register_count] last reading instruction, or kNeverRead
  // [instructions][ceil(register_count/64)] bits of the registers dead after each instruction. A register that is never
  // read dies at its producer; the plan's final outputs at the last instruction.
  std::span<const std::span<const std::uint64_t>> kill_after_instruction;
};

// Which rows a register has: those of the step's batch, or only the rows whose outputs are wanted.
enum class RowDomain : std::uint8_t { kBatchRows = 0, kOutputRows = 1 };

struct RegisterSpec {
  std::uint32_t width = 0;  // elements per row
  DType dtype = DType::kF32;
  RowDomain rows = RowDomain::kBatchRows;
  std::uint16_t align_bytes = 64;
  constexpr bool operator==(const RegisterSpec&) const = default;
};

struct PlanDiagnostic {
  enum class Level : std::uint8_t { kInfo, kWarn };
  Level level = Level::kInfo;
  std::string_view message;
};

using Hash128 = std::array<std::uint8_t, 16>;

struct CompiledPlan {
  ExecutionPlan plan;
  LivenessMap liveness;
  std::uint16_t peak_registers = 0;  // most registers alive at once
  std::span<const PlanDiagnostic> diagnostics;
  std::span<const ParamBlock> param_blocks;
  std::span<const WeightBinding> weight_bindings;
  std::span<const RegisterSpec> register_specs;  // [register_count]
  Hash128 plan_hash{};                           // of everything above but the diagnostics
};

enum class ExecutionMode : std::uint8_t { kDecode = 0, kPrefill = 1, kVisionEncode = 2, kPredict = 3 };

// A model that takes images has a vision_encode plan, which fills the vision state, and vision_scatter instructions in its
// prefill plan, which read it (docs/internals/engine.md, Vision). Images never come with decode.
// The predict plan is that of a layer that predicts a further token. It has the states of the decoder's, and its cache is
// part of the same pages.
struct ModelPlans {
  std::optional<CompiledPlan> vision_encode;
  CompiledPlan decoder_prefill;
  CompiledPlan decoder_decode;
  std::optional<CompiledPlan> predict;
};

struct PhysicalSpec {
  std::uint64_t size_bytes = 0;
  std::uint16_t align_bytes = 64;
  RowDomain rows = RowDomain::kBatchRows;
};

// Where registers lie. Buffers of batch rows come from a linear scan and are at most peak_registers; registers of output
// rows leave the plan, so each has a buffer of its own.
struct PhysicalMapping {
  std::span<const std::uint16_t> register_to_physical;  // [register_count]
  std::uint16_t physical_count = 0;
  std::span<const PhysicalSpec> physical_specs;  // [physical_count]
};

}  // namespace llorch::engine::plan
