#pragma once
// What a slot keeps between steps, how it lives, and how cache pages are laid out.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/plan/dtype.h"
#include "engine/plan/kv_page_size.h"

namespace llorch::engine::plan {

enum class StateKind : std::uint8_t {
  kNone = 0,
  kKv = 1,
  kConv = 2,
  kSsm = 3,
  kDelta = 4,
  kVision = 5,
  kCompressor = 6
};
enum class StateLifecycle : std::uint8_t { kSlotPersistent = 0, kRequestScoped = 1, kStepScoped = 2 };
enum class LifecycleAction : std::uint8_t {
  kAlloc = 0,
  kReset = 1,
  kReuse = 2,
  kEvict = 3,
  kCloneForFork = 4,
  kDeinit = 5
};
inline constexpr std::size_t kLifecycleCount = 3;
inline constexpr std::size_t kLifecycleActionCount = 6;

// Well-known descriptor ids. Layers are told apart by the ordinal in their param block, so one byte is enough at any depth.
inline constexpr std::uint8_t kKvStateId = 0;
inline constexpr std::uint8_t kConvStateId = 1;
inline constexpr std::uint8_t kSsmStateId = 2;  // mamba: convolution and recurrent state
inline constexpr std::uint8_t kDeltaStateId = 3;
inline constexpr std::uint8_t kVisionStateId = 4;      // request-scoped: what the images of one request became
inline constexpr std::uint8_t kWindowKvStateId = 5;    // the cache of layers that see only the last positions
inline constexpr std::uint8_t kCompressorStateId = 6;  // windows that are not whole yet

struct StateDescriptor {
  std::uint8_t id = 0;
  StateKind kind = StateKind::kNone;
  StateLifecycle lifecycle = StateLifecycle::kSlotPersistent;
  bool zero_init = false;
  bool forkable = false;
  std::uint16_t align_bytes = 64;     // power of two
  std::uint32_t bytes_per_token = 0;  // 0 = fixed size
  std::uint64_t size_bytes = 0;       // fixed: bytes per slot; growing (bytes_per_token > 0): bytes of one page
  std::uint32_t window_tokens = 0;    // growing: a row at position p reads positions > p - window_tokens; 0 = all
  constexpr bool operator==(const StateDescriptor&) const = default;
};

// One state as an adapter gets it. Fixed-size state: slot s begins at ptr + s * size. Paged state (KV): `ptr` is null, page i
// of slot s is at pages[s * pages_stride + i], and `size` is the bytes of one page. `pages` is device memory whose entries
// change between steps; those of pages that no row of the step sees or writes mean nothing and may be null.
struct StateBlockHandle {
  std::uint8_t id = 0;
  std::uint16_t align_bytes = 0;
  std::byte* ptr = nullptr;  // 64-byte aligned
  std::uint64_t size = 0;
  std::byte* const* pages = nullptr;
  std::uint32_t pages_stride = 0;
};

struct LifecyclePolicy {
  bool allowed = false;
  bool zeroes = false;  // zero even when the descriptor does not ask for it
};

// The matrix. A forbidden pair is INVALID_STATE_LIFECYCLE_ACTION.
// alloc, reset and evict zero iff the descriptor says zero_init or the policy zeroes; reuse, clone and deinit never do.
inline constexpr std::array<std::array<LifecyclePolicy, kLifecycleActionCount>, kLifecycleCount> kLifecycleMatrix = {{
    // alloc          reset          reuse          evict          clone          deinit
    {{{true, false}, {true, false}, {true, false}, {true, false}, {true, false}, {true, false}}},   // slot-persistent
    {{{true, true}, {false, false}, {false, false}, {true, true}, {false, false}, {true, false}}},  // request-scoped
    {{{true, true}, {true, true}, {false, false}, {true, true}, {false, false}, {true, false}}},    // step-scoped
}};

constexpr LifecyclePolicy policy(StateLifecycle lifecycle, LifecycleAction action) {
  return kLifecycleMatrix[static_cast<std::size_t>(lifecycle)][static_cast<std::size_t>(action)];
}

// One mamba layer's part of a slot's state: the last d_conv - 1 columns before the convolution, oldest first, then the
// recurrent state per head. f32.
struct MambaStateLayout {
  std::uint32_t conv_rows = 0;  // d_inner + 2 * groups * d_state
  std::uint32_t d_conv = 0;
  std::uint32_t heads = 0;
  std::uint32_t d_head = 0;
  std::uint32_t d_state = 0;

  static constexpr std::uint64_t padded(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }
  // [d_conv - 1][conv_rows]
  constexpr std::uint64_t conv_bytes() const { return padded(std::uint64_t{d_conv - 1} * conv_rows * sizeof(float)); }
  // [heads][d_head][d_state]
  constexpr std::uint64_t ssm_bytes() const { return padded(std::uint64_t{heads} * d_head * d_state * sizeof(float)); }
  constexpr std::uint64_t ssm_offset_bytes() const { return conv_bytes(); }
  constexpr std::uint64_t bytes() const { return conv_bytes() + ssm_bytes(); }
};

// One gated-delta layer's part: the last d_conv - 1 columns before the convolution, oldest first, then S of every value head. f32.
struct GatedDeltaStateLayout {
  std::uint32_t conv_rows = 0;  // 2 * key_heads * d_k + value_heads * d_v
  std::uint32_t d_conv = 0;
  std::uint32_t value_heads = 0;
  std::uint32_t d_k = 0;
  std::uint32_t d_v = 0;

  // [d_conv - 1][conv_rows]
  constexpr std::uint64_t conv_bytes() const {
    return MambaStateLayout::padded(std::uint64_t{d_conv - 1} * conv_rows * sizeof(float));
  }
  // [value_heads][d_v][d_k]
  constexpr std::uint64_t delta_bytes() const {
    return MambaStateLayout::padded(std::uint64_t{value_heads} * d_v * d_k * sizeof(float));
  }
  constexpr std::uint64_t bytes() const { return conv_bytes() + delta_bytes(); }
};

// One shortconv layer's part: the last l_cache - 1 rows of b * x, oldest first. f32.
constexpr std::uint64_t shortconv_state_bytes(std::uint32_t width, std::uint32_t l_cache) {
  return MambaStateLayout::padded(std::uint64_t{l_cache - 1} * width * sizeof(float));
}

// The images of one request, f32 [image_rows_max][parts][width]: row i belongs to the i-th row of the request with an image
// row id. Written by vision_spatial_merge (part 0) and vision_deepstack_extract (part 1 + j), read by vision_scatter.
struct VisionStateLayout {
  std::uint32_t image_rows_max = 0;
  std::uint32_t parts = 0;  // 1 + deepstack extractions
  std::uint32_t width = 0;  // D of the decoder

  constexpr std::uint64_t row_elements() const { return std::uint64_t{parts} * width; }
  constexpr std::uint64_t bytes() const {
    return MambaStateLayout::padded(image_rows_max * row_elements() * sizeof(float));
  }
};

// One compressor layer's part, f32: of entries of d_head, then of those an index reads, the window at hand and, where windows overlap, the
// next one; each is three rows of the entry's width: largest logit, sum of weights, weighed sum. A sum of 0 is an empty window.
struct CompressorStateLayout {
  std::uint32_t d_head = 0;
  std::uint32_t d_index = 0;
  bool overlaps = false;

  constexpr std::uint64_t entry_bytes(std::uint32_t dim) const {
    return std::uint64_t{overlaps ? 2U : 1U} * 3 * dim * sizeof(float);
  }
  constexpr std::uint64_t index_offset_bytes() const { return MambaStateLayout::padded(entry_bytes(d_head)); }
  constexpr std::uint64_t bytes() const {
    return index_offset_bytes() + MambaStateLayout::padded(entry_bytes(d_index));
  }
};

// The part of a cache page that belongs to one layer of compressed attention: [kPageTokens][d_head] rows, then the entries whose windows
// end in the page, [entries][d_head], and those an index reads, [entries][d_index]. The entry of the window that ends at position p is number
// p % kPageTokens / rate.
struct CompressedKvLayout {
  DType dtype = DType::kF16;  // kF32 or kF16
  std::uint32_t d_head = 0;
  std::uint32_t d_index = 0;
  std::uint32_t rate = 0;  // 0 = no entries

  constexpr std::uint32_t entries() const { return rate == 0 ? 0 : (kPageTokens - 1) / rate + 1; }
  // Of elements, from the start of the layer's part.
  constexpr std::uint64_t entry_offset() const { return std::uint64_t{kPageTokens} * d_head; }
  constexpr std::uint64_t index_offset() const { return entry_offset() + std::uint64_t{entries()} * d_head; }
  constexpr std::uint64_t page_bytes() const {
    const std::uint64_t elements = index_offset() + std::uint64_t{entries()} * d_index;
    return (elements * dtype_info(dtype).block_bytes + 63) / 64 * 64;
  }
  constexpr std::uint64_t bytes_per_token() const { return (page_bytes() + kPageTokens - 1) / kPageTokens; }
};

// The part of a cache page that belongs to one attention layer: one block of kPageTokens * d_qk keys per kv head, then one
// block of kPageTokens * d_v values per kv head, elements of `dtype`. How a block is arranged inside is the backend's own
// (the CPU keeps keys dimension-major, so that SIMD lanes are positions); pages are moved whole or not at all.
// K is stored after normalisation and rotation. The part begins at AttentionParams::kv_page_offset_bytes of the page and
// is padded to 64 bytes; a page holds the parts of all layers of its state, in kv_ordinal order.
struct KvLayout {
  DType dtype = DType::kF16;  // kF32 or kF16
  std::uint32_t kv_heads = 0;
  std::uint32_t d_qk = 0;
  std::uint32_t d_v = 0;

  constexpr std::uint64_t element_bytes() const { return dtype_info(dtype).block_bytes; }
  // From the start of the layer's part to a head's block.
  constexpr std::uint64_t k_block_offset_bytes(std::uint32_t head) const {
    return std::uint64_t{head} * kPageTokens * d_qk * element_bytes();
  }
  constexpr std::uint64_t v_block_offset_bytes(std::uint32_t head) const {
    return (std::uint64_t{kv_heads} * d_qk + std::uint64_t{head} * d_v) * kPageTokens * element_bytes();
  }
  constexpr std::uint64_t bytes_per_token() const { return std::uint64_t{kv_heads} * (d_qk + d_v) * element_bytes(); }
  // Bytes of the layer's part of a page, a multiple of 64.
  constexpr std::uint64_t page_bytes() const { return (bytes_per_token() * kPageTokens + 63) / 64 * 64; }
};

}  // namespace llorch::engine::plan
