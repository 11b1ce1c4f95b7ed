#include "engine/models/weights/slice.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "engine/plan/quant_blocks.h"

namespace llorch::engine::models {
namespace {

using base::ErrorCode;
using plan::DType;
using SliceValues = std::vector<float>;

// A tensor in memory, of which BoundTensors are made.
struct Stored {
  explicit Stored(std::uint64_t count) : values(count) {
    std::iota(values.begin(), values.end(), 0.0F);
    memory = io::StoredFile::of_memory(std::as_bytes(std::span(values)));
    file = {.name = "t",
            .type = io::StoredType::kF32,
            .rank = 1,
            .dims = {count},
            .data = io::FileRange(*memory, 0, count * sizeof(float))};
  }
  SliceValues values;
  std::unique_ptr<io::StoredFile> memory;
  io::FileTensor file;
};

struct Layout {
  const char* name;
  std::vector<std::uint32_t> shape;
  std::vector<TensorPart> parts;
};

BoundTensor bound(const Layout& layout, const io::FileTensor& file) {
  BoundTensor tensor;
  tensor.name = layout.name;
  tensor.parts = layout.parts;
  tensor.stored.rank = static_cast<std::uint8_t>(layout.shape.size());
  std::ranges::copy(layout.shape, tensor.stored.shape.begin());
  for (TensorPart& part : tensor.parts) part.source = &file;
  return tensor;
}

SliceValues fetched(const BoundTensor& tensor) {
  SliceValues values(tensor.elements_count());
  EXPECT_TRUE(tensor.read(0, std::as_writable_bytes(std::span(values))));
  return values;
}

// [begin, begin + count) of one axis, element by element.
SliceValues sliced(const SliceValues& whole, const std::vector<std::uint32_t>& shape, const TensorShare& share) {
  std::size_t inner = 1;
  for (std::size_t d = share.axis + std::size_t{1}; d < shape.size(); ++d) inner *= shape[d];
  SliceValues result;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::size_t x = i / inner % shape[share.axis];
    if (x >= share.begin && x < share.begin + share.count) result.push_back(whole[i]);
  }
  return result;
}

// Every way in which recipes describe tensors, cut along every axis into two and three.
TEST(Slice, HoldsTheSameElementsHoweverTheyAreStored) {
  const std::vector<Layout> layouts{
      {"rows", {6, 12}, {{.counts = {1, 6, 12}, .strides = {0, 12, 1}}}},
      {"rows of a fused matrix", {6, 12}, {{.offset = 24, .counts = {1, 6, 12}, .strides = {216, 12, 1}}}},
      {"a transposed matrix", {6, 12}, {{.offset = 3, .counts = {1, 6, 12}, .strides = {120, 1, 10}}}},
      {"every second row", {6, 12}, {{.offset = 12, .counts = {1, 6, 12}, .strides = {144, 24, 1}}}},
      {"matrices behind each other", {6, 6, 12}, {{.counts = {1, 36, 12}, .strides = {0, 12, 1}}}},
      {"matrices in one run", {6, 6, 12}, {{.counts = {1, 1, 432}, .strides = {0, 0, 1}}}},
      {"rows of fused matrices", {6, 6, 12}, {{.offset = 12, .counts = {6, 6, 12}, .strides = {144, 12, 1}}}},
      {"transposed matrices", {6, 6, 12}, {{.counts = {6, 6, 12}, .strides = {72, 1, 6}}}},
      {"a vector", {12}, {{.counts = {1, 1, 12}, .strides = {0, 12, 1}}}},
      {"every second element", {12}, {{.offset = 1, .counts = {1, 12, 1}, .strides = {24, 2, 1}}}},
      {"vectors behind each other", {6, 12}, {{.counts = {6, 12, 1}, .strides = {12, 1, 1}}}},
  };
  const Stored stored(1 << 12);
  for (const Layout& layout : layouts) {
    const SliceValues whole = fetched(bound(layout, stored.file));
    for (std::uint8_t axis = 0; axis < layout.shape.size(); ++axis) {
      for (std::uint32_t ranks : {1U, 2U, 3U}) {
        const std::uint32_t count = layout.shape[axis] / ranks;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          const TensorShare share{
              .kind = TensorShare::Kind::kSlice, .axis = axis, .begin = rank * count, .count = count};
          BoundTensor tensor = bound(layout, stored.file);
          ASSERT_TRUE(cut(share, tensor));
          EXPECT_EQ(fetched(tensor), sliced(whole, layout.shape, share)) << layout.name << ", axis " << int{axis};
          EXPECT_EQ(tensor.stored.shape[axis], count);
          EXPECT_EQ(tensor.elements_whole_count, whole.size());
        }
      }
    }
  }
}

TEST(Slice, CutsEveryTensorOfAStack) {
  const Stored stored(1 << 10);
  const Layout stack{"stack",
                     {3, 4, 6},
                     {{.offset = 100, .counts = {1, 4, 6}, .strides = {0, 6, 1}},
                      {.offset = 0, .counts = {1, 4, 6}, .strides = {0, 6, 1}},
                      {.offset = 300, .counts = {1, 4, 6}, .strides = {0, 6, 1}}}};
  const SliceValues whole = fetched(bound(stack, stored.file));
  for (std::uint8_t axis : {1, 2}) {
    const TensorShare share{.kind = TensorShare::Kind::kSlice,
                            .axis = axis,
                            .begin = stack.shape[axis] / 2,
                            .count = stack.shape[axis] / 2};
    BoundTensor tensor = bound(stack, stored.file);
    ASSERT_TRUE(cut(share, tensor));
    EXPECT_EQ(fetched(tensor), sliced(whole, stack.shape, share)) << "axis " << int{axis};
  }
}

// Rows of two blocks of Q8_0.
struct Blocks {
  std::vector<plan::BlockQ8_0> blocks = std::vector<plan::BlockQ8_0>(8);
  std::unique_ptr<io::StoredFile> memory = io::StoredFile::of_memory(std::as_bytes(std::span(blocks)));
  io::FileTensor file{.name = "q",
                      .type = io::StoredType::kQ8_0,
                      .rank = 2,
                      .dims = {4, 64},
                      .data = io::FileRange(*memory, 0, memory->size())};
  BoundTensor tensor() const {
    BoundTensor result = bound({"q", {4, 64}, {{.counts = {1, 4, 64}, .strides = {0, 64, 1}}}}, file);
    result.stored.dtype = DType::kQ8_0;
    return result;
  }
};

TEST(Slice, BlocksAreMovedWhole) {
  Blocks stored;
  for (std::size_t i = 0; i < stored.blocks.size(); ++i)
    std::memset(static_cast<void*>(&stored.blocks[i]), static_cast<int>(i), sizeof stored.blocks[i]);
  BoundTensor tensor = stored.tensor();
  ASSERT_TRUE(cut({.kind = TensorShare::Kind::kSlice, .axis = 1, .begin = 32, .count = 32}, tensor));
  std::vector<std::byte> second(tensor.bytes_count());
  ASSERT_EQ(second.size(), 4 * sizeof(plan::BlockQ8_0));
  ASSERT_TRUE(tensor.read(0, second));
  for (std::size_t row = 0; row < 4; ++row) EXPECT_EQ(second[row * sizeof(plan::BlockQ8_0)], std::byte(2 * row + 1));
}

TEST(Slice, ABlockIsNeverCut) {
  const Blocks stored{};
  BoundTensor tensor = stored.tensor();
  const auto refused = cut({.kind = TensorShare::Kind::kSlice, .axis = 1, .begin = 16, .count = 16}, tensor);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kModelIncompatible);
  for (const char* number : {"16 of 64", "Q8_0", "32"})
    EXPECT_NE(refused.error().message.find(number), std::string::npos) << refused.error().message;
  EXPECT_TRUE(cut({.kind = TensorShare::Kind::kSlice, .axis = 0, .begin = 1, .count = 1}, tensor));
}

// Three groups of two rows, of which two devices would have one and a half each.
TEST(Slice, AShareIsWholeGroupsOrAPartOfOne) {
  const Stored stored(24);
  const auto refusal = [&](std::uint32_t begin, std::uint32_t count) {
    BoundTensor tensor = bound({"k", {6, 2}, {{.offset = 4, .counts = {3, 2, 2}, .strides = {8, 2, 1}}}}, stored.file);
    const auto done = cut({.kind = TensorShare::Kind::kSlice, .axis = 0, .begin = begin, .count = count}, tensor);
    return done ? "" : done.error().message;
  };
  EXPECT_EQ(refusal(2, 4), "");
  EXPECT_EQ(refusal(3, 1), "");
  EXPECT_NE(refusal(0, 3).find("the 3 rows of a device from 0 on are parts of several groups of 2"), std::string::npos);
}

TEST(Slice, WhatAnotherDeviceAddsIsZeros) {
  const Stored stored(12);
  BoundTensor tensor = bound({"b", {12}, {{.counts = {1, 1, 12}, .strides = {0, 12, 1}}}}, stored.file);
  ASSERT_TRUE(cut({.kind = TensorShare::Kind::kZeros}, tensor));
  EXPECT_EQ(fetched(tensor), SliceValues(12, 0.0F));
}

}  // namespace
}  // namespace llorch::engine::models
