#pragma once
// Every kernel there is, and its number. Whoever can launch kernels has a table with one entry for each.
#include <array>
#include <cstdint>
#include <type_traits>

#include "engine/compute/cuda/kernels/attention.h"
#include "engine/compute/cuda/kernels/compressed.h"
#include "engine/compute/cuda/kernels/draw.h"
#include "engine/compute/cuda/kernels/hyper.h"
#include "engine/compute/cuda/kernels/index.h"
#include "engine/compute/cuda/kernels/matmul/half.h"
#include "engine/compute/cuda/kernels/matmul/plain.h"
#include "engine/compute/cuda/kernels/matmul/quantized.h"
#include "engine/compute/cuda/kernels/moe.h"
#include "engine/compute/cuda/kernels/packing/pack.h"
#include "engine/compute/cuda/kernels/sequences.h"
#include "engine/compute/cuda/kernels/vision.h"

namespace llorch::engine::compute::cuda::kernels {

enum class KernelId : std::uint16_t {};

template <class... Kernels>
struct KernelList {
  static constexpr std::size_t kCount = sizeof...(Kernels);

  template <class Kernel>
  static constexpr KernelId id() {
    constexpr std::array<bool, kCount> same{std::is_same_v<Kernel, Kernels>...};
    for (std::size_t i = 0; i < kCount; ++i)
      if (same[i]) return static_cast<KernelId>(i);
    return static_cast<KernelId>(kCount);
  }
  // One entry per kernel, in order.
  template <class Entry, class Visitor>
  static std::array<Entry, kCount> table(const Visitor& visitor) {
    return {visitor.template operator()<Kernels>()...};
  }
};

template <class... Lists>
struct Joined;
template <class... A>
struct Joined<KernelList<A...>> {
  using List = KernelList<A...>;
};
template <class... A, class... B, class... Rest>
struct Joined<KernelList<A...>, KernelList<B...>, Rest...> {
  using List = typename Joined<KernelList<A..., B...>, Rest...>::List;
};

// Kernels by stored type, for few rows of x and for many.
inline constexpr std::uint32_t kPlainTile = 8;
using PlainMatmuls = KernelList<PlainMatmul<1>, PlainMatmul<kPlainTile>>;
template <DType kType>
using HalfKernels = KernelList<Gather<kType>, HalfMatmul<kType, StreamShape>, HalfMatmul<kType, BatchShape>,
                               HalfMatmul<kType, PrefillShape>>;
template <DType kType>
using QuantKernels = KernelList<Gather<kType>, QuantStream<kType, 1>, QuantStream<kType, 8>, QuantTiled<kType>>;
template <class Keys>
using AttentionKernels = KernelList<AttentionWhole<Keys>, AttentionParts<Keys>>;

using PlainKernels =
    KernelList<RmsNorm, LayerNorm, Swiglu, SwigluBytes, SwigluHalves, Gate, ResidualAdd, ScaleSoftcap, CopyRows,
               PoolRows, Quantize, Narrow, Route, GroupPairs, WeighPairs, Combine, Gather<DType::kF32>, CausalConv,
               SsmScan, DeltaScan, LatentQuery, IndexChoose, SpreadRows, HyperCollapse, HyperAdd, CompressScan,
               FinishTails, AddPositions, EmbedPositions, KeepRows, Scatter>;
using CacheKernels =
    KernelList<FinishHeads<DType::kF32>, FinishHeads<DType::kF16>, FinishLatent<DType::kF32>, FinishLatent<DType::kF16>,
               IndexScores<DType::kF32>, IndexScores<DType::kF16>, CompressedAppend<DType::kF32>,
               CompressedAppend<DType::kF16>, CompressedScores<DType::kF32>, CompressedScores<DType::kF16>,
               CompressedAttend<DType::kF32>, CompressedAttend<DType::kF16>, AttentionWhole<SpanKeys>>;
template <DType... kTypes>
using QuantPackers = KernelList<PackQuant<kTypes>...>;
using PackKernels = Joined<
    KernelList<PackFloats<DType::kF32>, PackFloats<DType::kF16>, PackFloats<DType::kBF16>, PackHalf<DType::kF16>,
               PackHalf<DType::kBF16>, PackF8>,
    QuantPackers<DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ2_K, DType::kQ3_K,
                 DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4>>::List;
using DrawKernels = KernelList<DrawEdit, DrawSort, DrawMerge, DrawWalk>;
using AllKernels =
    Joined<PlainKernels, CacheKernels, DrawKernels, AttentionKernels<PagedKeys<DType::kF32>>,
           AttentionKernels<PagedKeys<DType::kF16>>, AttentionKernels<LatentKeys<DType::kF32>>,
           AttentionKernels<LatentKeys<DType::kF16>>, PlainMatmuls, HalfKernels<DType::kF16>, HalfKernels<DType::kBF16>,
           HalfKernels<DType::kF8_E4M3>, QuantKernels<DType::kQ8_0>, QuantKernels<DType::kQ4_0>,
           QuantKernels<DType::kQ4_1>, QuantKernels<DType::kQ5_0>, QuantKernels<DType::kQ5_1>,
           QuantKernels<DType::kQ2_K>, QuantKernels<DType::kQ3_K>, QuantKernels<DType::kQ4_K>,
           QuantKernels<DType::kQ5_K>, QuantKernels<DType::kQ6_K>, QuantKernels<DType::kIQ4_NL>,
           QuantKernels<DType::kIQ4_XS>, QuantKernels<DType::kMXFP4>, PackKernels>::List;

inline constexpr std::size_t kSharedBytesMax =
    99 * 1024;  // of a block, on the architecture that has the least (8.9, 12.0)

template <class Kernel>
constexpr KernelId kernel_id() {
  constexpr KernelId id = AllKernels::id<Kernel>();
  static_assert(static_cast<std::size_t>(id) < AllKernels::kCount, "a kernel that no table has");
  static_assert(std::is_trivially_copyable_v<typename Kernel::Args> && sizeof(typename Kernel::Args) <= 4096);
  static_assert(sizeof(typename Kernel::Shared) <= kSharedBytesMax);
  return id;
}

}  // namespace llorch::engine::compute::cuda::kernels
