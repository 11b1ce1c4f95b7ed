#include "engine/models/gguf_export/slabs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace llorch::engine::models {
namespace {

using plan::DType;

// A stored F32 matrix (or vector, rows = 1) of 0, 1, 2, ...
struct StoredSlab {
  StoredSlab(std::uint64_t rows, std::uint64_t cols) : values(rows * cols) {
    std::iota(values.begin(), values.end(), 0.0F);
    memory = io::StoredFile::of_memory(std::as_bytes(std::span(values)));
    file = {.name = "w",
            .type = io::StoredType::kF32,
            .rank = 2,
            .dims = {rows, cols},
            .data = io::FileRange(*memory, 0, memory->size())};
    tensor.name = "w";
    tensor.stored.rank = 2;
    tensor.stored.shape = {static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(cols)};
    tensor.parts = {{.source = &file, .counts = {1, rows, cols}, .strides = {0, cols, 1}}};
  }
  std::vector<float> values;
  std::unique_ptr<io::StoredFile> memory;
  io::FileTensor file;
  BoundTensor tensor;
};

std::vector<float> read(const std::vector<BoundTensor>& pieces, std::size_t* slabs = nullptr) {
  std::vector<float> out;
  const auto result = read_slabs(pieces)([&](const Slab& slab) -> base::Result<> {
    if (slabs != nullptr) ++*slabs;
    EXPECT_LE(slab.bytes.size(), kSlabElements * sizeof(float));
    out.resize(out.size() + slab.bytes.size() / sizeof(float));
    std::memcpy(out.data() + out.size() - slab.bytes.size() / sizeof(float), slab.bytes.data(), slab.bytes.size());
    return {};
  });
  EXPECT_TRUE(result);
  return out;
}

TEST(Slabs, AreTheTensorInPieces) {
  const StoredSlab stored(3000, 1000);
  std::size_t slabs = 0;
  EXPECT_EQ(read({stored.tensor}, &slabs), stored.values);
  EXPECT_EQ(slabs, 3U);  // 1048 rows each
}

TEST(Slabs, GatherWhatIsScattered) {
  StoredSlab stored(4, 6);
  // The matrix transposed, its columns in two stacks.
  stored.tensor.parts = {{.source = &stored.file, .offset = 0, .counts = {2, 3, 4}, .strides = {3, 1, 6}}};
  const std::vector<float> expected{0, 6, 12, 18, 1, 7,  13, 19, 2, 8,  14, 20,
                                    3, 9, 15, 21, 4, 10, 16, 22, 5, 11, 17, 23};
  EXPECT_EQ(read({stored.tensor}), expected);
}

TEST(Slabs, PiecesFollowEachOther) {
  const StoredSlab a(2, 3), b(1, 3);
  EXPECT_EQ(read({a.tensor, b.tensor}), (std::vector<float>{0, 1, 2, 3, 4, 5, 0, 1, 2}));
}

// Two heads of 8 rows of which 4 rotate behind the first 2: 0 1 | 2 3 4 5 | 6 7 becomes 0 1 | 2 4 3 5 | 6 7.
TEST(Slabs, PairsBecomeNeighbours) {
  const HeadRows rows{.heads = 2, .head_rows = 8, .first = 2, .dims = 4};
  const StoredSlab vector(1, 16);
  const std::vector<float> expected{0, 1, 2, 4, 3, 5, 6, 7, 8, 9, 10, 12, 11, 13, 14, 15};
  EXPECT_EQ(read({with_pairs_as_neighbours(vector.tensor, rows)}), expected);

  const StoredSlab matrix(16, 3);
  std::vector<float> moved;
  for (const float row : expected) {
    for (int c = 0; c < 3; ++c) moved.push_back(row * 3 + static_cast<float>(c));
  }
  EXPECT_EQ(read({with_pairs_as_neighbours(matrix.tensor, rows)}), moved);
}

// Two groups of 6 rows of which the first 4 are a head: what stands between heads is not the tensor's.
TEST(Slabs, PairsOfHeadsInGroupsBecomeNeighbours) {
  const HeadRows rows{.heads = 2, .head_rows = 4, .first = 0, .dims = 4};
  for (const std::uint64_t cols : {1, 3}) {
    StoredSlab stored(12, cols);
    stored.tensor.stored.shape = {8, static_cast<std::uint32_t>(cols)};
    stored.tensor.parts = {{.source = &stored.file, .counts = {2, 4, cols}, .strides = {6 * cols, cols, 1}}};
    std::vector<float> expected;
    for (const std::uint64_t row : {0, 2, 1, 3, 6, 8, 7, 9})
      for (std::uint64_t c = 0; c < cols; ++c) expected.push_back(static_cast<float>(row * cols + c));
    EXPECT_EQ(read({with_pairs_as_neighbours(stored.tensor, rows)}), expected) << cols;
  }
}

}  // namespace
}  // namespace llorch::engine::models
