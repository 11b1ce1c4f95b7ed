#include "engine/compute/cpu/adapters/tables.h"

#include "engine/compute/cpu/adapters/adapters.h"
#include "engine/compute/cpu/adapters/compressed/compressed.h"
#include "engine/compute/cpu/adapters/mixers/mixers.h"
#include "engine/compute/cpu/adapters/moe/moe.h"
#include "engine/compute/cpu/adapters/support.h"
#include "engine/compute/cpu/adapters/vision/vision.h"

namespace llorch::engine::compute::cpu::adapters {
namespace {

using plan::AdapterCapability;
using plan::AdapterTables;
using plan::DType;
using plan::dtype_bit;
using plan::Opcode;

constexpr std::uint64_t kVectorTypes = dtype_bit(DType::kF32) | dtype_bit(DType::kF16) | dtype_bit(DType::kBF16);

template <class Adapter>
constexpr void put(AdapterTables& tables, Opcode opcode, const AdapterCapability& capability) {
  const auto i = static_cast<std::size_t>(opcode);
  tables.run[i] = Adapter::run;
  tables.prepare[i] = prepare;
  tables.workspace_bytes[i] = Adapter::workspace_bytes;
  tables.capabilities[i] = capability;
}

constexpr AdapterTables make_tables() {
  AdapterTables tables;
  put<RmsNormAdapter>(tables, Opcode::kRmsNorm, {.supports_batch = true, .dtype_mask_weights = kVectorTypes});
  put<attention::AttentionAdapter>(tables, Opcode::kMultiheadAttention,
                                   {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<SwigluAdapter>(tables, Opcode::kSwiglu, {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<mixers::mla::MlaAdapter>(tables, Opcode::kMlaAttention,
                               {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<mixers::mamba::MambaAdapter>(tables, Opcode::kMambaMixer,
                                   {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<mixers::gated_delta::GatedDeltaAdapter>(tables, Opcode::kGatedDelta,
                                              {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<mixers::shortconv::ShortconvAdapter>(tables, Opcode::kShortconv,
                                           {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<moe::MoeAdapter>(tables, Opcode::kMoe, {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<EmbeddingAdapter>(tables, Opcode::kEmbedding, {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<ResidualAddAdapter>(tables, Opcode::kResidualAdd, {.supports_batch = true, .may_alias_output = true});
  put<vision::patch_embed::PatchEmbedAdapter>(tables, Opcode::kVisionPatchEmbed,
                                              {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<vision::merger::SpatialMergeAdapter>(tables, Opcode::kVisionSpatialMerge,
                                           {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<vision::merger::DeepstackExtractAdapter>(tables, Opcode::kVisionDeepstackExtract,
                                               {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<vision::ScatterAdapter>(tables, Opcode::kVisionScatter, {.supports_batch = true, .may_alias_output = true});
  put<LmHeadAdapter>(tables, Opcode::kLmHead, {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<PositionEmbeddingAdapter>(tables, Opcode::kPositionEmbedding,
                                {.supports_batch = true, .may_alias_output = true, .dtype_mask_weights = kVectorTypes});
  put<DenseAdapter>(tables, Opcode::kDense, {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<PoolAdapter>(tables, Opcode::kPool, {.supports_batch = true});
  put<mixers::lightning_index::LightningIndexAdapter>(tables, Opcode::kLightningIndex,
                                                      {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<compressed::hyper_connections::HyperCollapseAdapter>(
      tables, Opcode::kHyperCollapse, {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<compressed::hyper_connections::HyperAddAdapter>(tables, Opcode::kHyperAdd,
                                                      {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<compressed::compressor::CompressorAdapter>(tables, Opcode::kCompressor,
                                                 {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<compressed::attention::CompressedAttentionAdapter>(tables, Opcode::kCompressedAttention,
                                                         {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<layer_input::LayerInputAdapter>(tables, Opcode::kLayerInput,
                                      {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  put<predictor_input::PredictorInputAdapter>(tables, Opcode::kPredictorInput,
                                              {.supports_batch = true, .dtype_mask_weights = kMatrixTypes});
  return tables;
}

constexpr auto kCpuOpcodes = std::to_array<Opcode>({Opcode::kRmsNorm,
                                                    Opcode::kMultiheadAttention,
                                                    Opcode::kSwiglu,
                                                    Opcode::kMoe,
                                                    Opcode::kMlaAttention,
                                                    Opcode::kMambaMixer,
                                                    Opcode::kGatedDelta,
                                                    Opcode::kShortconv,
                                                    Opcode::kEmbedding,
                                                    Opcode::kResidualAdd,
                                                    Opcode::kVisionPatchEmbed,
                                                    Opcode::kVisionSpatialMerge,
                                                    Opcode::kVisionDeepstackExtract,
                                                    Opcode::kVisionScatter,
                                                    Opcode::kLmHead,
                                                    Opcode::kPool,
                                                    Opcode::kPositionEmbedding,
                                                    Opcode::kDense,
                                                    Opcode::kLayerInput,
                                                    Opcode::kLightningIndex,
                                                    Opcode::kHyperCollapse,
                                                    Opcode::kHyperAdd,
                                                    Opcode::kCompressor,
                                                    Opcode::kCompressedAttention,
                                                    Opcode::kPredictorInput});

}  // namespace

constexpr AdapterTables kCpuTables = make_tables();
#ifndef __SANITIZE_ADDRESS__  // under -fsanitize=null g++ does not fold an external function's address against null
static_assert(plan::assert_coverage(kCpuTables, kCpuOpcodes));
#endif

}  // namespace llorch::engine::compute::cpu::adapters
