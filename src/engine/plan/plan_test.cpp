#include <gtest/gtest.h>

#include <cstddef>
#include <set>

#include "engine/plan/adapter.h"
#include "engine/plan/backend.h"
#include "engine/plan/state.h"

namespace llorch::engine::plan {
namespace {

// Opcode numbers are part of plans and hashes: pinned one by one.
static_assert(static_cast<int>(Opcode::kRmsNorm) == 0 && static_cast<int>(Opcode::kMultiheadAttention) == 1 &&
              static_cast<int>(Opcode::kSwiglu) == 2 && static_cast<int>(Opcode::kMoe) == 3 &&
              static_cast<int>(Opcode::kMambaMixer) == 4 && static_cast<int>(Opcode::kShortconv) == 5 &&
              static_cast<int>(Opcode::kMlaAttention) == 6 && static_cast<int>(Opcode::kEmbedding) == 7 &&
              static_cast<int>(Opcode::kResidualAdd) == 8 && static_cast<int>(Opcode::kVisionPatchEmbed) == 16 &&
              static_cast<int>(Opcode::kVisionSpatialMerge) == 17 &&
              static_cast<int>(Opcode::kVisionDeepstackExtract) == 18 &&
              static_cast<int>(Opcode::kVisionScatter) == 19 && static_cast<int>(Opcode::kLmHead) == 33);

// ParamBlock v1: moving a field is a new version.
static_assert(offsetof(RmsNormParams, eps) == 8 && offsetof(RmsNormParams, kind) == 24);
static_assert(offsetof(AttentionParams, rope_table_id) == 28 && offsetof(AttentionParams, scale) == 60 &&
              offsetof(AttentionParams, kv_page_offset_bytes) == 80 && offsetof(AttentionParams, rope_layout) == 88 &&
              offsetof(AttentionParams, kv_dtype) == 95);
static_assert(offsetof(MlaAttentionParams, kv_page_offset_bytes) == 56);
static_assert(offsetof(SwigluParams, ffn) == 8 && offsetof(SwigluParams, act) == 20);
static_assert(offsetof(EmbeddingParams, scale) == 12 && offsetof(ResidualAddParams, scale) == 8);
static_assert(offsetof(LmHeadParams, softcap) == 16 && offsetof(LmHeadParams, tied) == 20);
static_assert(offsetof(MoeParams, gate) == 48);

consteval bool every_opcode_has_params_and_slots() {
  for (std::size_t i = 0; i < kOpcodeTableSize; ++i) {
    const auto opcode = static_cast<Opcode>(i);
    const bool known = is_opcode(opcode);
    if ((param_struct_bytes(opcode) != 0) != known || weight_slots(opcode).has_value() != known) return false;
  }
  return true;
}
static_assert(every_opcode_has_params_and_slots());

// What talks about one slot agrees on the forbidden pairs.
static_assert(!policy(StateLifecycle::kRequestScoped, LifecycleAction::kReset).allowed);
static_assert(!policy(StateLifecycle::kRequestScoped, LifecycleAction::kReuse).allowed);
static_assert(!policy(StateLifecycle::kStepScoped, LifecycleAction::kReuse).allowed);
static_assert(!policy(StateLifecycle::kStepScoped, LifecycleAction::kCloneForFork).allowed);
static_assert(policy(StateLifecycle::kSlotPersistent, LifecycleAction::kCloneForFork).allowed);
static_assert(policy(StateLifecycle::kStepScoped, LifecycleAction::kAlloc).zeroes);
static_assert(!policy(StateLifecycle::kSlotPersistent, LifecycleAction::kAlloc).zeroes);

Status do_nothing(ExecutionContext&, const PreparedInsn&) noexcept { return Status::ok(); }
base::Result<> accept_all(const PrepareArgs&) { return {}; }
std::uint64_t no_workspace(const ParamBlock&, const StepLimits&, const Backend&) noexcept { return 0; }

consteval AdapterTables tables_of(Opcode opcode, std::uint64_t types) {
  AdapterTables tables;
  const auto row = static_cast<std::size_t>(opcode);
  tables.run[row] = do_nothing;
  tables.prepare[row] = accept_all;
  tables.workspace_bytes[row] = no_workspace;
  tables.capabilities[row] = {.supports_batch = true, .dtype_mask_weights = types};
  return tables;
}
consteval AdapterTables without_prepare() {
  AdapterTables tables = tables_of(Opcode::kRmsNorm, dtype_bit(DType::kF32));
  tables.prepare[0] = nullptr;
  return tables;
}
constexpr std::array kOnlyNorm{Opcode::kRmsNorm};
constexpr std::array kOnlyAdd{Opcode::kResidualAdd};
static_assert(assert_coverage(tables_of(Opcode::kRmsNorm, dtype_bit(DType::kF32)), kOnlyNorm));
static_assert(assert_coverage(tables_of(Opcode::kResidualAdd, 0), kOnlyAdd));    // takes no weights
static_assert(!assert_coverage(tables_of(Opcode::kRmsNorm, 0), kOnlyNorm));      // takes weights of no type
static_assert(!assert_coverage(tables_of(Opcode::kResidualAdd, 0), kOnlyNorm));  // claimed but not there
static_assert(!assert_coverage(tables_of(Opcode::kResidualAdd, 0), std::array<Opcode, 0>{}));  // there but not claimed
static_assert(!assert_coverage(without_prepare(), kOnlyNorm));

TEST(Opcode, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const OpcodeInfo& row : kOpcodes) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(Slots, DimensionsComeFromTheParams) {
  AttentionParams p{};
  p.kind_version = kind_version(Opcode::kMultiheadAttention);
  p.width = 64;
  p.heads = 4;
  p.kv_heads = 2;
  p.d_qk = 16;
  p.d_v = 8;
  const ParamBlock block{kParamBlockVersion, Opcode::kMultiheadAttention, std::as_bytes(std::span(&p, 1))};
  EXPECT_EQ(dim_value(Dim::kModel, block), 64U);
  EXPECT_EQ(dim_value(Dim::kQRows, block), 64U);
  EXPECT_EQ(dim_value(Dim::kKRows, block), 32U);
  EXPECT_EQ(dim_value(Dim::kVRows, block), 16U);
  EXPECT_EQ(dim_value(Dim::kOCols, block), 32U);
  EXPECT_EQ(dim_value(Dim::kVocab, block), std::nullopt);
}

TEST(KvLayout, BlocksAreDisjointAndInsideThePage) {
  const KvLayout layout{DType::kF16, 2, 8, 4};
  std::set<std::uint64_t> seen;
  const auto claim = [&](std::uint64_t offset, std::uint32_t width) {
    const std::uint64_t bytes = kPageTokens * width * 2;
    for (std::uint64_t i = 0; i < bytes; ++i) EXPECT_TRUE(seen.insert(offset + i).second);
    EXPECT_LE(offset + bytes, layout.page_bytes());
  };
  for (std::uint32_t head = 0; head < 2; ++head) {
    claim(layout.k_block_offset_bytes(head), 8);
    claim(layout.v_block_offset_bytes(head), 4);
  }
  EXPECT_EQ(seen.size(), layout.bytes_per_token() * kPageTokens);
  EXPECT_EQ(layout.page_bytes() % 64, 0U);
}

TEST(Pages, CoverTheTokens) {
  EXPECT_EQ(pages_of(0), 0U);
  EXPECT_EQ(pages_of(1), 1U);
  EXPECT_EQ(pages_of(64), 1U);
  EXPECT_EQ(pages_of(65), 2U);
}

}  // namespace
}  // namespace llorch::engine::plan
