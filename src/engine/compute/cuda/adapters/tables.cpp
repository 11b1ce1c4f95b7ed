#include "engine/compute/cuda/adapters/tables.h"

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/support.h"

namespace llorch::engine::compute::cuda::adapters {
namespace {

using plan::AdapterTables;
using plan::DType;
using plan::dtype_bit;
using plan::Opcode;

constexpr std::uint64_t kVectorTypes = dtype_bit(DType::kF32) | dtype_bit(DType::kF16) | dtype_bit(DType::kBF16);

template <class Adapter>
plan::Status run(plan::ExecutionContext& ctx, const plan::PreparedInsn& insn) noexcept {
  stream_of(ctx).begin_instruction();
  return Adapter::run(ctx, insn);
}

template <class Adapter>
constexpr void put(AdapterTables& tables, Opcode opcode, const plan::AdapterCapability& capability) {
  const auto i = static_cast<std::size_t>(opcode);
  tables.run[i] = run<Adapter>;
  tables.prepare[i] = prepare;
  tables.workspace_bytes[i] = Adapter::workspace_bytes;
  tables.capabilities[i] = capability;
}

constexpr AdapterTables make_tables() {
  constexpr plan::AdapterCapability kMatrices{.supports_batch = true, .dtype_mask_weights = kMatrixTypes};
  constexpr plan::AdapterCapability kInPlace{.supports_batch = true, .may_alias_output = true};
  AdapterTables tables;
  put<RmsNormAdapter>(tables, Opcode::kRmsNorm, {.supports_batch = true, .dtype_mask_weights = kVectorTypes});
  put<attention::AttentionAdapter>(tables, Opcode::kMultiheadAttention, kMatrices);
  put<SwigluAdapter>(tables, Opcode::kSwiglu, kMatrices);
  put<moe::MoeAdapter>(tables, Opcode::kMoe, kMatrices);
  put<mla::MlaAdapter>(tables, Opcode::kMlaAttention, kMatrices);
  put<MambaAdapter>(tables, Opcode::kMambaMixer, kMatrices);
  put<GatedDeltaAdapter>(tables, Opcode::kGatedDelta, kMatrices);
  put<ShortconvAdapter>(tables, Opcode::kShortconv, kMatrices);
  put<EmbeddingAdapter>(tables, Opcode::kEmbedding, kMatrices);
  put<ResidualAddAdapter>(tables, Opcode::kResidualAdd, kInPlace);
  put<PatchEmbedAdapter>(tables, Opcode::kVisionPatchEmbed, kMatrices);
  put<SpatialMergeAdapter>(tables, Opcode::kVisionSpatialMerge, kMatrices);
  put<DeepstackExtractAdapter>(tables, Opcode::kVisionDeepstackExtract, kMatrices);
  put<ScatterAdapter>(tables, Opcode::kVisionScatter, kInPlace);
  put<LmHeadAdapter>(tables, Opcode::kLmHead, kMatrices);
  put<PositionEmbeddingAdapter>(tables, Opcode::kPositionEmbedding,
                                {.supports_batch = true, .may_alias_output = true, .dtype_mask_weights = kVectorTypes});
  put<DenseAdapter>(tables, Opcode::kDense, kMatrices);
  put<PoolAdapter>(tables, Opcode::kPool, {.supports_batch = true});
  put<lightning_index::LightningIndexAdapter>(tables, Opcode::kLightningIndex, kMatrices);
  put<hyper_connections::HyperCollapseAdapter>(tables, Opcode::kHyperCollapse, kMatrices);
  put<hyper_connections::HyperAddAdapter>(tables, Opcode::kHyperAdd, kMatrices);
  put<compressor::CompressorAdapter>(tables, Opcode::kCompressor, kMatrices);
  put<compressed::CompressedAttentionAdapter>(tables, Opcode::kCompressedAttention, kMatrices);
  put<LayerInputAdapter>(tables, Opcode::kLayerInput, kMatrices);
  put<PredictorInputAdapter>(tables, Opcode::kPredictorInput, kMatrices);
  return tables;
}

// All of them: a new opcode does not compile until it is here.
constexpr auto kCudaOpcodes = [] {
  std::array<Opcode, plan::kOpcodes.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = plan::kOpcodes[i].opcode;
  return all;
}();

}  // namespace

constexpr AdapterTables kCudaTables = make_tables();
#ifndef __SANITIZE_ADDRESS__  // under -fsanitize=null g++ does not fold an external function's address against null
static_assert(plan::assert_coverage(kCudaTables, kCudaOpcodes));
#endif

}  // namespace llorch::engine::compute::cuda::adapters
