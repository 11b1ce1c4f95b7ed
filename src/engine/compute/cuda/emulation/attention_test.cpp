// Attention over pages: within rounding of a double oracle, and one set of bits however rows are cut into splits.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/cuda/adapters/attention/attend.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/oracle.h"

namespace llorch::engine::compute::cuda::emulation {
namespace {

using cpu::testing::Random;
using cpu::testing::same_bits;
using kernels::kPage;
using plan::DType;

struct Case {
  std::uint32_t heads = 6, kv_heads = 2, d_qk = 24, d_v = 20, window = 0;
  float softcap = 0;
  bool sinks = false;
};

// One sequence in pages filled by FinishHeads, and the plain keys and values they hold.
template <DType kKv>
class Cache {
 public:
  Cache(const Case& shape, std::uint32_t positions, Random& random) : shape_(shape) {
    const plan::KvLayout layout{.dtype = kKv, .kv_heads = shape.kv_heads, .d_qk = shape.d_qk, .d_v = shape.d_v};
    const std::uint32_t pages_count = (positions + kPage - 1) / kPage;
    // What a recycled page holds is no number.
    memory_.assign(pages_count * layout.page_bytes(), std::byte{0xFF});
    for (std::uint32_t i = 0; i < pages_count; ++i)
      pages_.push_back(memory_.data() + (pages_count - 1 - i) * layout.page_bytes());
    const std::uint32_t width = (shape.heads + shape.kv_heads) * shape.d_qk + shape.kv_heads * shape.d_v;
    sequence_.assign(positions, 0);
    for (std::uint32_t p = 0; p < positions; ++p) positions_.push_back(p);
    rows_ = random.normals(std::size_t{positions} * width);
    auto driver = make_driver({});
    CudaStream(*driver).launch<kernels::FinishHeads<kKv>>({shape.heads + 2 * shape.kv_heads, positions},
                                                          {.rows = rows_.data(),
                                                           .stride = width,
                                                           .heads = shape.heads,
                                                           .kv_heads = shape.kv_heads,
                                                           .d_qk = shape.d_qk,
                                                           .d_v = shape.d_v,
                                                           .cache = pages(0)});
    width_ = width;
  }
  kernels::KvPages pages(std::uint32_t first_row) const {
    return {.pages = pages_.data(),
            .pages_stride = pages_.size(),
            .sequence_of_row = sequence_.data() + first_row,
            .positions = positions_.data() + first_row};
  }
  // Of one head, [positions, dims], as the cache returns them.
  std::vector<float> column(std::uint32_t begin, std::uint32_t dims) const {
    std::vector<float> out;
    for (std::size_t p = 0; p < positions_.size(); ++p)
      for (std::uint32_t i = 0; i < dims; ++i)
        out.push_back(kernels::Element<kKv>::value(kernels::Element<kKv>::stored(rows_[p * width_ + begin + i])));
    return out;
  }
  std::vector<float> keys(std::uint32_t kv_head) const {
    return column((shape_.heads + kv_head) * shape_.d_qk, shape_.d_qk);
  }
  std::vector<float> values(std::uint32_t kv_head) const {
    return column((shape_.heads + shape_.kv_heads) * shape_.d_qk + kv_head * shape_.d_v, shape_.d_v);
  }

 private:
  Case shape_;
  std::uint32_t width_ = 0;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> pages_;
  std::vector<std::uint32_t> sequence_, positions_;
  std::vector<float> rows_;
};

struct Blocks {
  Blocks(std::uint32_t count, std::uint32_t width)
      : q(count * width),
        scales(q.size() / kernels::kBlockElements),
        sums(scales.size()),
        rows{.q = q.data(), .scales = scales.data(), .sums = sums.data(), .width = width} {}
  bool operator==(const Blocks& other) const {
    return q == other.q && same_bits(scales, other.scales) && sums == other.sums;
  }
  std::vector<std::int8_t> q;
  std::vector<float> scales;
  std::vector<std::uint32_t> sums;
  kernels::ByteRows rows;
};

struct Halves {
  Halves(std::uint32_t count, std::uint32_t width)
      : values(count * kernels::padded_columns(width)),
        scales(count),
        rows{.values = values.data(),
             .scales = scales.data(),
             .width = width,
             .stride = kernels::padded_columns(width)} {}
  bool operator==(const Halves& other) const { return values == other.values && same_bits(scales, other.scales); }
  std::vector<std::uint16_t> values;
  std::vector<float> scales;
  kernels::HalfRows rows;
};

template <DType kKv>
void check(const Case& shape, std::uint32_t positions, Random& random) {
  const Cache<kKv> cache(shape, positions, random);
  const auto sinks = random.normals(shape.heads);
  // The last row alone, so that it is cut into splits, and the last twelve together.
  for (const std::uint32_t rows : {1u, 12u}) {
    const std::uint32_t first = positions - rows;
    const auto q = random.normals(std::size_t{rows} * shape.heads * shape.d_qk);
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape.d_qk));
    std::vector<float> whole(std::size_t{rows} * shape.heads * shape.d_v), split = whole;
    kernels::AttentionArgs<kernels::KvPages> args{.q = q.data(),
                                                  .q_stride = std::uint64_t{shape.heads} * shape.d_qk,
                                                  .out = whole.data(),
                                                  .heads = shape.heads,
                                                  .kv_heads = shape.kv_heads,
                                                  .d_qk = shape.d_qk,
                                                  .d_v = shape.d_v,
                                                  .scale = scale,
                                                  .softcap = shape.softcap,
                                                  .window = shape.window,
                                                  .sinks = shape.sinks ? sinks.data() : nullptr,
                                                  .from = cache.pages(first)};
    // Whoever comes last joins the splits and leaves the row: any of several that run at once.
    auto driver = make_driver({}), at_once = make_driver({.seed = positions + rows, .host_threads = 3});
    CudaStream stream(*driver), other(*at_once);
    adapters::attend<kernels::PagedKeys<kKv>>(stream, args, rows, positions, {});
    args.out = split.data();
    const adapters::AttentionShape sizes{
        .heads = shape.heads, .kv_heads = shape.kv_heads, .d_v = shape.d_v, .window = shape.window};
    std::vector<std::byte> parts(sizes.part_bytes(rows, std::bit_ceil(sizes.parts(positions))), std::byte{0xFF});
    LaunchCounters counters;
    other.count(&counters);
    adapters::attend<kernels::PagedKeys<kKv>>(other, args, rows, positions, {parts.data(), parts.size()});
    constexpr auto kParts = kernels::kernel_id<kernels::AttentionParts<kernels::PagedKeys<kKv>>>();
    EXPECT_EQ(counters.total, 1U);
    EXPECT_EQ(counters.per_kernel[static_cast<std::size_t>(kParts)], sizes.parts(positions) > 1 ? 1U : 0U);
    EXPECT_TRUE(same_bits(split, whole)) << positions << " positions, " << rows << " rows";
    if (shape.d_v % kernels::kBlockElements == 0) {
      // Either way the int8 blocks left are those of what was attended.
      const std::uint32_t width = shape.heads * shape.d_v;
      Blocks apart(rows, width), of_whole(rows, width), of_split(rows, width);
      stream.launch<kernels::Quantize>(
          {adapters::blocks_of(width / kernels::kBlockElements, kernels::Quantize::kThreads), rows},
          {.from = {.x = whole.data(), .x_stride = width}, .out = apart.rows});
      args.narrowed = {.bytes = of_whole.rows, .halves = {}};
      adapters::attend<kernels::PagedKeys<kKv>>(stream, args, rows, positions, {});
      args.narrowed = {.bytes = of_split.rows, .halves = {}};
      adapters::attend<kernels::PagedKeys<kKv>>(other, args, rows, positions, {parts.data(), parts.size()});
      EXPECT_EQ(of_whole, apart);
      EXPECT_EQ(of_split, apart);
    }
    {
      // And so are the F16 rows.
      const std::uint32_t width = shape.heads * shape.d_v;
      Halves apart(rows, width), of_whole(rows, width), of_split(rows, width);
      stream.launch<kernels::Narrow>({rows}, {.from = {.x = whole.data(), .x_stride = width}, .out = apart.rows});
      args.narrowed = {.bytes = {}, .halves = of_whole.rows};
      adapters::attend<kernels::PagedKeys<kKv>>(other, args, rows, positions, {});
      args.narrowed = {.bytes = {}, .halves = of_split.rows};
      adapters::attend<kernels::PagedKeys<kKv>>(other, args, rows, positions, {parts.data(), parts.size()});
      EXPECT_EQ(of_whole, apart);
      EXPECT_EQ(of_split, apart);
    }
    for (std::uint32_t r = 0; r < rows; ++r)
      for (std::uint32_t h = 0; h < shape.heads; ++h) {
        const std::uint32_t kv_head = h / (shape.heads / shape.kv_heads);
        const auto expected =
            reference::attention_reference(std::span(q).subspan((r * shape.heads + h) * shape.d_qk, shape.d_qk),
                                           cache.keys(kv_head), cache.values(kv_head),
                                           {.position = first + r,
                                            .window = shape.window,
                                            .scale = scale,
                                            .softcap = shape.softcap,
                                            .sink = shape.sinks ? std::optional<double>(sinks[h]) : std::nullopt});
        // Scores err by d_qk roundings of values below ~6, the sums by a rounding per position and join.
        for (std::uint32_t i = 0; i < shape.d_v; ++i)
          EXPECT_NEAR(whole[(r * shape.heads + h) * shape.d_v + i], expected[i], 2e-5) << h << ' ' << i;
      }
  }
}

class Attention : public testing::TestWithParam<Case> {};

TEST_P(Attention, OneSetOfBitsNearTheOracle) {
  Random random(20);
  SCOPED_TRACE(random.note());
  for (const std::uint32_t positions : {12u, 64u, 65u, 256u, 257u, 700u})
    check<DType::kF32>(GetParam(), positions, random);
  check<DType::kF16>(GetParam(), 600, random);
}
INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(Case{}, Case{.window = 100}, Case{.window = 300, .sinks = true},
                                         Case{.softcap = 5.0f, .sinks = true},
                                         Case{.heads = 22, .kv_heads = 2, .d_v = 70},
                                         Case{.d_v = 64, .window = 300, .sinks = true}));

// Contexts of one split and a bit, of four and a position, of sixteen.
TEST(LongContexts, HaveOneSetOfBits) {
  Random random(23);
  SCOPED_TRACE(random.note());
  const Case shape{.heads = 4, .kv_heads = 1, .d_qk = 16, .d_v = 32};
  for (const std::uint32_t positions : {300u, 1025u, 4096u}) check<DType::kF16>(shape, positions, random);
  check<DType::kF32>(shape, 4096, random);
}

// Splits are joined in turns of so many.
TEST(ManySplits, AreJoinedInTurns) {
  Random random(22);
  SCOPED_TRACE(random.note());
  check<DType::kF16>({.heads = 3, .kv_heads = 1, .d_qk = 8, .d_v = 32}, (kernels::kHeadLanes + 1) * kernels::kSplit + 9,
                     random);
}

// Inside one page the order is the CPU device's.
TEST(OnePage, HasTheCpuDevicesBits) {
  Random random(21);
  SCOPED_TRACE(random.note());
  const Case shape{.window = 40};
  for (const std::uint32_t positions : {1u, 33u, 64u}) {
    const Cache<DType::kF16> cache(shape, positions, random);
    const auto q = random.normals(shape.heads * shape.d_qk);
    std::vector<float> out(shape.heads * shape.d_v), expected;
    auto driver = make_driver({});
    CudaStream stream(*driver);
    adapters::attend<kernels::PagedKeys<DType::kF16>>(stream,
                                                      {.q = q.data(),
                                                       .out = out.data(),
                                                       .heads = shape.heads,
                                                       .kv_heads = shape.kv_heads,
                                                       .d_qk = shape.d_qk,
                                                       .d_v = shape.d_v,
                                                       .scale = 0.3f,
                                                       .window = shape.window,
                                                       .from = cache.pages(positions - 1)},
                                                      1, positions, {});
    for (std::uint32_t h = 0; h < shape.heads; ++h) {
      const auto row = reference::attention_exact(std::span(q).subspan(h * shape.d_qk, shape.d_qk), cache.keys(h / 3),
                                                  cache.values(h / 3),
                                                  {.position = positions - 1, .window = shape.window, .scale = 0.3f});
      expected.insert(expected.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(same_bits(out, expected)) << positions;
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cuda::emulation
