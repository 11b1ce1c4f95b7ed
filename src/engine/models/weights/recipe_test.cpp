#include "engine/models/weights/recipe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/io/quant/half.h"
#include "engine/models/families/standard.h"
#include "engine/models/testing/tiny_tensors.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::models {
namespace {

using namespace plan;
using namespace families;
using base::ErrorCode;
using testing::tiny_files;
using testing::TinyTensor;

constexpr std::array<std::string_view, 1> kNoPrefix{""};

// One slot filled from one file, by the first of the family's rows.
class Recipe {
 public:
  Recipe(WeightRow row, const std::map<std::string, TinyTensor>& tensors, const std::string& config = "{}")
      : Recipe(std::vector{row}, tensors, config) {}
  Recipe(std::vector<WeightRow> rows, const std::map<std::string, TinyTensor>& tensors,
         const std::string& config = "{}")
      : rows_(std::move(rows)), files_(tiny_files(tensors, storage_, config)) {}

  template <class P>
  base::Result<std::uint32_t> describe(P params) {
    params.kind_version = kind_version(P::kOpcode);
    const ParamBlock block{kParamBlockVersion, P::kOpcode, std::as_bytes(std::span(&params, 1))};
    const WeightKey key{.layer = 0, .opcode = rows_[0].opcode, .slot = rows_[0].slot, .variant = rows_[0].variant};
    const Family family{.name = "test", .weights = rows_, .hf_prefixes = kNoPrefix};
    const WeightNames names(files_, family);
    const auto found = names.find(key);
    if (!found) return base::fail(ErrorCode::kMissingWeight, "not found");
    return table_.add(names, *found, key, block, share_);
  }
  // For a device that holds a share of it, with kernels for FP8 or without.
  Recipe& on_device(const TensorShare& share, bool keeps_f8) {
    share_ = share;
    table_ = TensorTable(keeps_f8);
    return *this;
  }
  template <class P>
  ErrorCode error(P params) {
    const auto result = describe(params);
    EXPECT_FALSE(result);
    return result ? ErrorCode::kInternal : result.error().code;
  }
  template <class P>
  StoredTensor fetch(P params) {
    const auto result = describe(params);
    EXPECT_TRUE(result) << result.error().message;
    const BoundTensor& bound = table_.tensors()[*result];
    bytes_.resize(bound.bytes_count());
    EXPECT_TRUE(bound.read(0, bytes_));
    expect_any_piece(bound);
    StoredTensor tensor = bound.stored;
    tensor.bytes = bytes_;
    return tensor;
  }
  template <class P>
  std::vector<float> floats(P params) {
    const StoredTensor tensor = fetch(params);
    EXPECT_EQ(tensor.dtype, DType::kF32);
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  std::span<const BoundTensor> tensors() const { return table_.tensors(); }

 private:
  // Pieces made by themselves are pieces of the whole; not all of them where there are thousands.
  void expect_any_piece(const BoundTensor& bound) const {
    const std::size_t block = dtype_info(bound.stored.dtype).block_bytes;
    const std::size_t step = block * (1 + bytes_.size() / block / 50);
    for (std::size_t begin = 0; begin <= bytes_.size(); begin += step) {
      for (std::size_t end = begin; end <= bytes_.size(); end += step) {
        std::vector<std::byte> piece(end - begin);
        EXPECT_TRUE(bound.read(begin, piece));
        EXPECT_TRUE(std::ranges::equal(piece, std::span(bytes_).subspan(begin, end - begin))) << begin << " to " << end;
      }
    }
  }

  std::vector<WeightRow> rows_;
  std::vector<std::byte> storage_;
  io::ModelFiles files_;
  TensorTable table_;
  TensorShare share_;
  std::vector<std::byte> bytes_;
};

AttentionParams attention() {
  AttentionParams p{};
  p.width = 3;
  p.heads = 2;
  p.kv_heads = 1;
  p.d_qk = p.d_v = 2;
  return p;
}
MoeParams moe(std::uint32_t width = 2, std::uint32_t ffn = 3) {
  MoeParams p{};
  p.width = width;
  p.experts = 2;
  p.ffn_expert = ffn;
  return p;
}
MlaAttentionParams mla() {
  MlaAttentionParams p{};
  p.heads = 2;
  p.d_nope = 1;
  p.d_v = 2;
  p.kv_lora = 3;
  return p;
}
using Values = std::vector<float>;

TEST(Recipe, RowsOfAFusedMatrix) {
  const Source source("qkv", Load::kRows, AttentionSlot::kQ, AttentionSlot::kV);
  const std::map<std::string, TinyTensor> tensors{{"qkv", TinyTensor::counting({8, 3})}};  // 4 + 2 + 2 rows
  for (const auto& [slot, first, count] :
       {std::tuple{AttentionSlot::kQ, 0, 12}, {AttentionSlot::kK, 12, 6}, {AttentionSlot::kV, 18, 6}}) {
    Recipe recipe(row(slot, "", source), tensors);
    const Values values = recipe.floats(attention());
    EXPECT_EQ(recipe.tensors()[0].name, slot == AttentionSlot::kQ   ? "qkv:q"
                                        : slot == AttentionSlot::kK ? "qkv:k"
                                                                    : "qkv:v");
    ASSERT_EQ(values.size(), static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(first + i));
  }
}

// Two key heads, each read by two of four query heads: its group is 2 + 1 + 1 heads of two rows.
TEST(Recipe, RowsInGroupsOfAKeyHead) {
  AttentionParams params = attention();
  params.heads = 4;
  params.kv_heads = 2;
  const auto of = [&](AttentionSlot slot, const Source& source, TinyTensor tensor) {
    const std::map<std::string, TinyTensor> tensors{{"qkv", std::move(tensor)}};
    return Recipe(row(slot, "", source), tensors).floats(params);
  };
  const Source biases("qkv", Load::kKeyGroups, AttentionSlot::kQBias, AttentionSlot::kVBias);
  EXPECT_EQ(of(AttentionSlot::kQBias, biases, TinyTensor::counting({16})), (Values{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(of(AttentionSlot::kKBias, biases, TinyTensor::counting({16})), (Values{4, 5, 12, 13}));
  EXPECT_EQ(of(AttentionSlot::kVBias, biases, TinyTensor::counting({16})), (Values{6, 7, 14, 15}));
  const Source matrix("qkv", Load::kKeyGroups, AttentionSlot::kQ, AttentionSlot::kV);
  EXPECT_EQ(of(AttentionSlot::kV, matrix, TinyTensor::counting({16, 3})),
            (Values{18, 19, 20, 21, 22, 23, 42, 43, 44, 45, 46, 47}));
}

TEST(Recipe, RowsOfAStackOfFusedMatrices) {
  const Source source("gu", Load::kRows, MoeSlot::kGate, MoeSlot::kUp);
  const std::map<std::string, TinyTensor> tensors{{"gu", TinyTensor::counting({2, 6, 2})}};
  EXPECT_EQ(Recipe(row(MoeSlot::kGate, "", source), tensors).floats(moe()),
            (Values{0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(Recipe(row(MoeSlot::kUp, "", source), tensors).floats(moe()),
            (Values{6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23}));
}

TEST(Recipe, RowsThatTakeTurns) {
  const Source biases("b", Load::kInterleavedRows, MoeSlot::kGateBias, MoeSlot::kUpBias);
  const std::map<std::string, TinyTensor> tensors{{"b", TinyTensor::counting({2, 6})}};
  EXPECT_EQ(Recipe(row(MoeSlot::kGateBias, "", biases), tensors).floats(moe()), (Values{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(Recipe(row(MoeSlot::kUpBias, "", biases), tensors).floats(moe()), (Values{1, 3, 5, 7, 9, 11}));
}

TEST(Recipe, InputMajorRowsThatTakeTurns) {
  const Source source("gu", Load::kTransposedInterleaved, MoeSlot::kGate, MoeSlot::kUp);
  const std::map<std::string, TinyTensor> tensors{{"gu", TinyTensor::counting({2, 2, 6})}};  // [E, D, 2F]
  EXPECT_EQ(Recipe(row(MoeSlot::kUp, "", source), tensors).floats(moe()),
            (Values{1, 7, 3, 9, 5, 11, 13, 19, 15, 21, 17, 23}));
}

TEST(Recipe, InputMajorRowsOneSlotAfterTheOther) {
  const Source source("gu", Load::kTransposedRows, MoeSlot::kGate, MoeSlot::kUp);
  const std::map<std::string, TinyTensor> tensors{{"gu", TinyTensor::counting({2, 2, 6})}};
  EXPECT_EQ(Recipe(row(MoeSlot::kUp, "", source), tensors).floats(moe()),
            (Values{3, 9, 4, 10, 5, 11, 15, 21, 16, 22, 17, 23}));
}

// The same tensors as in the two tests above, told apart by their shapes; a square one by the other of the pair.
TEST(Recipe, RowsThatMayLieEitherWay) {
  const auto gate_up = [](MoeSlot slot) {
    return row(slot, "", Source("gu", Load::kRowsEitherWay, MoeSlot::kGate, MoeSlot::kUp));
  };
  const WeightRow down = row(MoeSlot::kDown, "", Source("d", Load::kRowsEitherWay, MoeSlot::kDown, MoeSlot::kDown));
  EXPECT_EQ(Recipe(gate_up(MoeSlot::kUp), {{"gu", TinyTensor::counting({2, 2, 6})}}).floats(moe()),
            (Values{3, 9, 4, 10, 5, 11, 15, 21, 16, 22, 17, 23}));
  EXPECT_EQ(Recipe(gate_up(MoeSlot::kUp), {{"gu", TinyTensor::counting({2, 6, 2})}}).floats(moe()),
            (Values{6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(Recipe(down, {{"d", TinyTensor::counting({2, 3, 2})}}).floats(moe()),
            (Values{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
  EXPECT_EQ(Recipe(gate_up(MoeSlot::kUp), {{"gu", TinyTensor::counting({2, 5, 2})}}).error(moe()),
            ErrorCode::kWeightShapeMismatch);

  const std::vector<WeightRow> rows{gate_up(MoeSlot::kUp), down};
  const TinyTensor square = TinyTensor::counting({2, 4, 4});
  const std::map<std::string, TinyTensor> as_used{{"gu", square}, {"d", TinyTensor::counting({2, 4, 2})}};
  const std::map<std::string, TinyTensor> turned{{"gu", square}, {"d", TinyTensor::counting({2, 2, 4})}};
  EXPECT_EQ(Recipe(rows, as_used).floats(moe(4, 2)),
            (Values{8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31}));
  EXPECT_EQ(Recipe(rows, turned).floats(moe(4, 2)),
            (Values{2, 6, 10, 14, 3, 7, 11, 15, 18, 22, 26, 30, 19, 23, 27, 31}));
  const WeightRow gate = gate_up(MoeSlot::kGate);
  EXPECT_EQ(Recipe({down, gate}, {{"d", square}, {"gu", TinyTensor::counting({2, 4, 8})}}).floats(moe(4, 4))[1], 4);
  EXPECT_EQ(Recipe({down, gate}, {{"d", square}, {"gu", TinyTensor::counting({2, 8, 4})}}).floats(moe(4, 4))[1], 1);
}

TEST(Recipe, AStackOfExperts) {
  const Source source("layers.{}.e.{}.down", Load::kStack);
  const auto tensor = [](float first) {
    Values values(6);
    for (std::size_t i = 0; i < 6; ++i) values[i] = first + static_cast<float>(i);
    return TinyTensor::f32({2, 3}, values);
  };
  Recipe both(row(MoeSlot::kDown, "", source), {{"layers.0.e.0.down", tensor(0)}, {"layers.0.e.1.down", tensor(10)}});
  EXPECT_EQ(both.floats(moe()), (Values{0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(both.tensors()[0].name, "layers.0.e.*.down");
  Recipe one(row(MoeSlot::kDown, "", source), {{"layers.0.e.0.down", tensor(0)}});
  EXPECT_EQ(one.error(moe()), ErrorCode::kMissingWeight);
  Recipe mixed(row(MoeSlot::kDown, "", source),
               {{"layers.0.e.0.down", tensor(0)},
                {"layers.0.e.1.down", TinyTensor::raw("BF16", {2, 3}, std::vector<std::uint8_t>(12))}});
  EXPECT_EQ(mixed.error(moe()), ErrorCode::kWeightDTypeUnsupported);
}

TEST(Recipe, KeysAndValuesOfLatentAttention) {
  const std::map<std::string, TinyTensor> tensors{{"kv_b", TinyTensor::counting({6, 3})}};  // per head 1 + 2 rows
  EXPECT_EQ(Recipe(row(MlaSlot::kKB, "", Source("kv_b", Load::kHeadKeys)), tensors).floats(mla()),
            (Values{0, 1, 2, 9, 10, 11}));
  EXPECT_EQ(Recipe(row(MlaSlot::kVB, "", Source("kv_b", Load::kHeadValues)), tensors).floats(mla()),
            (Values{3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 16, 17}));
  MlaAttentionParams wide = mla();
  wide.d_nope = 2;
  wide.d_v = 1;
  EXPECT_EQ(Recipe(row(MlaSlot::kKB, "", Source("kv_b", Load::kHeadKeys)), tensors).floats(wide),
            (Values{0, 3, 1, 4, 2, 5, 9, 12, 10, 13, 11, 14}));
}

// Blocks cannot be turned: they are widened, whatever part of them a piece needs.
TEST(Recipe, KeysOfLatentAttentionInBlocks) {
  constexpr std::uint64_t kRank = 32;
  std::vector<std::byte> stored(6 * sizeof(BlockQ8_0));
  for (unsigned row = 0; row < 6; ++row) {
    BlockQ8_0 block{.d = 0x3C00, .qs = {}};
    for (unsigned i = 0; i < kRank; ++i) block.qs[i] = static_cast<std::int8_t>(20 * row + i);
    std::memcpy(stored.data() + row * sizeof block, &block, sizeof block);
  }
  const auto memory = io::StoredFile::of_memory(stored);
  const io::FileTensor source{.name = "kv_b",
                              .type = io::StoredType::kQ8_0,
                              .rank = 2,
                              .dims = {6, kRank},
                              .data = io::FileRange(*memory, 0, stored.size())};
  BoundTensor keys;  // of two heads with two rows of keys and one of values
  keys.stored = {.dtype = DType::kF32, .rank = 3, .shape = {2, kRank, 2}};
  keys.step = TensorStep::kWiden;
  keys.parts = {{.source = &source, .counts = {2, kRank, 2}, .strides = {3 * kRank, 1, kRank}}};
  for (std::uint64_t begin = 0; begin < 128; begin += 7) {
    Values piece(std::min<std::uint64_t>(23, 128 - begin));
    ASSERT_TRUE(keys.read(begin * sizeof(float), std::as_writable_bytes(std::span(piece))));
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const std::uint64_t at = begin + i, head = at / 64, element = at % 64 / 2, row = at % 2;
      EXPECT_EQ(piece[i], static_cast<float>(20 * (3 * head + row) + element));
    }
  }
}

TEST(Recipe, ReshapedAndNegativeExponentials) {
  MambaMixerParams p{};
  p.d_inner = 2;
  p.groups = 1;
  p.d_state = 1;
  p.heads = 2;
  p.d_conv = 2;
  Recipe conv(row(MambaSlot::kConvWeight, "", Source("conv", Load::kReshaped)),
              {{"conv", TinyTensor::counting({4, 1, 2})}});
  const StoredTensor tensor = conv.fetch(p);
  EXPECT_EQ(tensor.rank, 2);
  EXPECT_EQ(tensor.shape[0], 4U);
  Recipe a(row(MambaSlot::kA, "", Source("a", Load::kNegExp)), {{"a", TinyTensor::f32({2}, Values{0, 1.5F})}});
  EXPECT_EQ(a.floats(p), (Values{-1, static_cast<float>(-std::exp(1.5))}));
  Recipe wrong(row(MambaSlot::kA, "", Source("a", Load::kNegExp)), {{"a", TinyTensor::counting({3})}});
  EXPECT_EQ(wrong.error(p), ErrorCode::kWeightShapeMismatch);
}

TEST(Recipe, WholeNumbersAndRoots) {
  const plan::MoeParams p{.experts = 4, .experts_used = 2, .table_rows = 2};
  const auto table = [](std::string type, const std::vector<std::uint8_t>& bytes) {
    return Recipe(row(MoeSlot::kExpertTable, "", Source("t", Load::kNumbers)),
                  {{"t", TinyTensor::raw(std::move(type), {2, 2}, bytes)}});
  };
  std::vector<std::uint8_t> wide(32);
  wide[0] = 3, wide[8] = 1, wide[16] = 2;
  EXPECT_EQ(table("I64", wide).floats(p), (Values{3, 1, 2, 0}));
  wide[16] = 4;  // the layer has four experts
  Recipe beyond = table("I64", wide);
  ASSERT_TRUE(beyond.describe(p));
  std::vector<std::byte> out(beyond.tensors()[0].bytes_count());
  const auto read = beyond.tensors()[0].read(0, out);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kCorruptFile);
  EXPECT_NE(read.error().message.find("expert 4"), std::string::npos) << read.error().message;
  EXPECT_EQ(table("F32", std::vector<std::uint8_t>(16)).error(p), ErrorCode::kWeightDTypeUnsupported);
  const plan::RmsNormParams norm{.width = 4};
  Recipe scale(row(NormVariant::kRouter, "", Source("s", Load::kOverRoot)),
               {{"s", TinyTensor::f32({4}, Values{1, 2, 3, 5})}});
  EXPECT_EQ(scale.floats(norm), (Values{0.5F, 1, 1.5F, 2.5F}));
}

// Values are counted off 0..15; each block's exponent is its number. Rows of gate and up take turns.
TEST(Recipe, Mxfp4InTheOrderOfBlocks) {
  std::vector<std::uint8_t> nibbles, exponents;
  for (std::uint8_t block = 0; block < 8; ++block) {  // 2 experts of 2 rows of gate and 2 of up, one block each
    for (std::uint8_t j = 0; j < 16; ++j)
      nibbles.push_back(static_cast<std::uint8_t>((2 * j + block) % 16 | (2 * j + 1 + block) % 16 << 4));
    exponents.push_back(static_cast<std::uint8_t>(100 + block));
  }
  const std::map<std::string, TinyTensor> tensors{{"gu_blocks", TinyTensor::raw("U8", {2, 4, 1, 16}, nibbles)},
                                                  {"gu_scales", TinyTensor::raw("U8", {2, 4, 1}, exponents)}};
  const Source source("gu", Load::kMxfp4Rows, MoeSlot::kGate, MoeSlot::kUp);
  Recipe recipe(row(MoeSlot::kUp, "", source), tensors);
  const StoredTensor tensor = recipe.fetch(moe(32, 2));
  EXPECT_EQ(tensor.dtype, DType::kMXFP4);
  ASSERT_EQ(tensor.bytes.size(), 4 * sizeof(BlockMXFP4));
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned stored = 2 * i + 1;
    BlockMXFP4 block;
    std::memcpy(&block, tensor.bytes.data() + i * sizeof block, sizeof block);
    EXPECT_EQ(block.e, 100 + stored);
    for (unsigned j = 0; j < 16; ++j) {
      EXPECT_EQ(block.qs[j] & 15, (j + stored) % 16);
      EXPECT_EQ(block.qs[j] >> 4, (j + 16 + stored) % 16);
    }
  }
  Recipe no_scales(row(MoeSlot::kUp, "", source), {{"gu_blocks", TinyTensor::raw("U8", {2, 4, 1, 16}, nibbles)}});
  EXPECT_EQ(no_scales.error(moe(32, 2)), ErrorCode::kMissingWeight);
  EXPECT_EQ(Recipe(row(MoeSlot::kUp, "", source), tensors).error(moe(48, 2)), ErrorCode::kWeightShapeMismatch);
}

// 0x38 is 1, 0x40 is 2 in E4M3; scales are per 1 x 2 block.
TEST(Recipe, Fp8BecomesBFloat16) {
  const std::vector<std::uint8_t> weights{0x38, 0x40, 0x38, 0x38, 0x38, 0xB8};
  const std::map<std::string, TinyTensor> tensors{{"w", TinyTensor::raw("F8_E4M3", {2, 3}, weights)},
                                                  {"w_scale_inv", TinyTensor::f32({2, 2}, Values{3, 5, 0.5F, 7})}};
  SwigluParams p{};
  p.width = 3;
  p.ffn = 2;
  const std::string config = R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[1,2]}})";
  Recipe recipe(row(FfnSlot::kUp, "", "w"), tensors, config);
  const StoredTensor tensor = recipe.fetch(p);
  EXPECT_EQ(tensor.dtype, DType::kBF16);
  Values values;
  for (std::size_t i = 0; i < 6; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, tensor.bytes.data() + 2 * i, 2);
    values.push_back(io::bf16_to_f32(half));
  }
  EXPECT_EQ(values, (Values{3, 6, 5, 0.5F, 0.5F, -7}));
  EXPECT_EQ(Recipe(row(FfnSlot::kUp, "", "w"), tensors).error(p), ErrorCode::kWeightShapeMismatch);  // blocks of 128
  const std::string odd = R"({"quantization_config":{"weight_block_size":[0]}})";
  EXPECT_EQ(Recipe(row(FfnSlot::kUp, "", "w"), tensors, odd).error(p), ErrorCode::kConfigKeyInvalid);
  Recipe bare(row(FfnSlot::kUp, "", "w"), {{"w", TinyTensor::raw("F8_E4M3", {2, 3}, weights)}});
  EXPECT_EQ(bare.error(p), ErrorCode::kMissingWeight);
}

// FP8 matrices with scales that are powers of two, so that BF16 holds every product exactly.
struct Fp8File {
  Fp8File(std::uint64_t rows, std::uint64_t cols, std::uint64_t block_rows, std::uint64_t block_cols,
          const std::string& type = "F8_E4M3")
      : config(fmt::format(R"({{"quantization_config":{{"weight_block_size":[{},{}]}}}})", block_rows, block_cols)) {
    add("w", rows, cols, (rows + block_rows - 1) / block_rows, (cols + block_cols - 1) / block_cols, type);
  }
  void add(const std::string& name, std::uint64_t rows, std::uint64_t cols, std::uint64_t scale_rows,
           std::uint64_t scale_cols, const std::string& type = "F8_E4M3") {
    std::vector<std::uint8_t> codes(rows * cols);
    for (std::uint8_t& code : codes)
      code = static_cast<std::uint8_t>((state_ = state_ * 1103515245U + 12345U) >> 16 & 0xF7U);
    Values scales(scale_rows * scale_cols);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = std::ldexp(1.0F, static_cast<int>(i % 40) - 20);
    tensors.insert_or_assign(name, TinyTensor::raw(type, {rows, cols}, codes));
    tensors.insert_or_assign(name + "_scale_inv", TinyTensor::f32({scale_rows, scale_cols}, scales));
  }
  std::map<std::string, TinyTensor> tensors;
  std::string config;

 private:
  std::uint32_t state_ = 7;
};

// As numbers, whichever of the two types it has.
Values values_of(const StoredTensor& tensor) {
  Values values;
  const std::size_t row = tensor.shape[tensor.rank - 1U], row_size = row_bytes(tensor.dtype, row);
  for (std::size_t at = 0; at < tensor.bytes.size(); at += row_size)
    for (std::size_t k = 0; k < row; ++k) {
      if (tensor.dtype == DType::kBF16) {
        std::uint16_t half = 0;
        std::memcpy(&half, tensor.bytes.data() + at + 2 * k, 2);
        values.push_back(io::bf16_to_f32(half));
      } else {
        BlockF8_E4M3 block;
        std::memcpy(&block, tensor.bytes.data() + at + k / 128 * sizeof block, sizeof block);
        values.push_back(block.d * io::f8_e4m3_to_f32(block.qs[k % 128]));
      }
    }
  return values;
}

// The values a device without kernels for FP8 gets, in the type that `share` of them can have.
template <class Slot, class P>
void expect_f8(Slot slot, const Source& source, const Fp8File& file, const P& params, DType type,
               const TensorShare& share = {}) {
  const WeightRow weight = row(slot, "", source);
  Recipe widened(weight, file.tensors, file.config), kept(weight, file.tensors, file.config);
  const StoredTensor expected = widened.on_device(share, false).fetch(params);
  const StoredTensor tensor = kept.on_device(share, true).fetch(params);
  EXPECT_EQ(expected.dtype, DType::kBF16);
  EXPECT_EQ(tensor.dtype, type);
  EXPECT_EQ(tensor.shape, expected.shape);
  EXPECT_EQ(values_of(tensor), values_of(expected));
}

SwigluParams ffn(std::uint32_t width, std::uint32_t rows) {
  SwigluParams p{};
  p.width = width;
  p.ffn = rows;
  return p;
}

// Where a device has kernels for it, and 128 columns of a row have one scale; whatever is left of the last ones.
TEST(Recipe, Fp8StaysWhereItsScalesLetIt) {
  for (const std::uint32_t width : {5U, 128U, 300U})
    expect_f8(FfnSlot::kUp, "w", Fp8File(7, width, 128, 128), ffn(width, 7), DType::kF8_E4M3);
  expect_f8(FfnSlot::kUp, "w", Fp8File(7, 300, 3, 256), ffn(300, 7), DType::kF8_E4M3);
  expect_f8(FfnSlot::kUp, "w", Fp8File(7, 300, 1, 300), ffn(300, 7), DType::kF8_E4M3);  // one a row
  expect_f8(FfnSlot::kUp, "w", Fp8File(7, 300, 7, 300), ffn(300, 7), DType::kF8_E4M3);  // one
  expect_f8(FfnSlot::kUp, "w", Fp8File(7, 300, 128, 64), ffn(300, 7), DType::kBF16);
  expect_f8(FfnSlot::kUp, "w", Fp8File(7, 300, 128, 192), ffn(300, 7), DType::kBF16);
  expect_f8(FfnSlot::kUp, "w", Fp8File(7, 300, 128, 128, "F8_E5M2"), ffn(300, 7), DType::kBF16);
}

TEST(Recipe, Fp8SharesOfSeveralDevices) {
  const Fp8File file(40, 600, 128, 128);
  const auto columns = [](std::uint32_t begin, std::uint32_t count) {
    return TensorShare{.kind = TensorShare::Kind::kSlice, .axis = 1, .begin = begin, .count = count};
  };
  expect_f8(FfnSlot::kUp, "w", file, ffn(600, 40), DType::kF8_E4M3, columns(256, 128));
  expect_f8(FfnSlot::kUp, "w", file, ffn(600, 40), DType::kF8_E4M3, columns(384, 216));
  expect_f8(FfnSlot::kUp, "w", file, ffn(600, 40), DType::kBF16, columns(64, 128));
  expect_f8(FfnSlot::kUp, "w", file, ffn(600, 40), DType::kF8_E4M3,
            {.kind = TensorShare::Kind::kSlice, .axis = 0, .begin = 13, .count = 20});
}

TEST(Recipe, Fp8InPartsAndStacks) {
  const Source fused("w", Load::kRows, AttentionSlot::kQ, AttentionSlot::kV);
  AttentionParams p{};
  p.width = 150;
  p.heads = 3;
  p.kv_heads = 1;
  p.d_qk = p.d_v = 10;
  expect_f8(AttentionSlot::kV, fused, Fp8File(50, 150, 16, 128), p, DType::kF8_E4M3);
  Fp8File experts(12, 140, 128, 128);
  for (const char* name : {"layers.0.e.0.down", "layers.0.e.1.down"}) experts.add(name, 12, 140, 1, 2);
  expect_f8(MoeSlot::kDown, Source("layers.{}.e.{}.down", Load::kStack), experts, moe(12, 140), DType::kF8_E4M3);
  expect_f8(MoeSlot::kDown, Source("layers.{}.e.{}.down", Load::kStack), experts, moe(12, 140), DType::kF8_E4M3,
            {.kind = TensorShare::Kind::kSlice, .axis = 2, .begin = 0, .count = 70});
}

// Four key heads of three rows and values of two in two pieces of 12 + 6 + 4 rows. Blocks of five rows begin anew with the
// second piece: each has five of them, the last of two rows.
constexpr std::uint32_t kPieces = 2, kPieceRows = 22, kPieceBlock = 5, kPieceBlocks = 5, kPieceWidth = 150;
AttentionParams pieces() {
  AttentionParams p{};
  p.width = kPieceWidth;
  p.heads = 8;
  p.kv_heads = 4;
  p.d_qk = 3;
  p.d_v = 2;
  return p;
}
struct PiecesFile : Fp8File {
  explicit PiecesFile(std::uint32_t scale_rows = kPieces * kPieceBlocks, std::uint32_t key_heads = kPieces)
      : Fp8File(1, 1, kPieceBlock, 128) {
    add("qkv", kPieces * kPieceRows, kPieceWidth, scale_rows, 2);
    config.insert(1, fmt::format(R"("num_key_value_heads":{},)", key_heads));
  }
  // What rows [first, first + count) of every piece stand for.
  Values rows(std::uint32_t first, std::uint32_t count) const {
    Values values;
    const auto scales = reinterpret_cast<const float*>(tensors.at("qkv_scale_inv").bytes.data());
    for (std::uint32_t piece = 0; piece < kPieces; ++piece)
      for (std::uint32_t row = first; row < first + count; ++row)
        for (std::uint32_t k = 0; k < kPieceWidth; ++k) {
          const auto code = tensors.at("qkv").bytes[(piece * kPieceRows + row) * kPieceWidth + k];
          const float scale = scales[(piece * kPieceBlocks + row / kPieceBlock) * 2 + k / 128];
          values.push_back(io::f8_e4m3_to_f32(static_cast<std::uint8_t>(code)) * scale);
        }
    return values;
  }
};

TEST(Recipe, Fp8InPiecesWithBlocksOfTheirOwn) {
  const Source source("qkv", Load::kPieces, AttentionSlot::kQ, AttentionSlot::kV);
  const PiecesFile file;
  for (const auto& [slot, first, count] :
       {std::tuple{AttentionSlot::kQ, 0U, 12U}, {AttentionSlot::kK, 12U, 6U}, {AttentionSlot::kV, 18U, 4U}}) {
    Recipe recipe(row(slot, "", source), file.tensors, file.config);
    EXPECT_EQ(values_of(recipe.fetch(pieces())), file.rows(first, count));
    expect_f8(slot, source, file, pieces(), DType::kF8_E4M3);
  }
  // Of two devices each has a piece, of four half of one.
  for (const std::uint32_t begin : {0U, 3U, 6U, 9U})
    expect_f8(AttentionSlot::kK, source, file, pieces(), DType::kF8_E4M3,
              {.kind = TensorShare::Kind::kSlice, .axis = 0, .begin = begin, .count = 3});
  // In floats nobody cut it.
  const std::map<std::string, TinyTensor> floats{{"qkv", TinyTensor::counting({44, kPieceWidth})}};
  EXPECT_EQ(Recipe(row(AttentionSlot::kV, "", source), floats, file.config).floats(pieces()).front(), 36 * kPieceWidth);
}

TEST(Recipe, RefusesPiecesThatTheScalesContradict) {
  const Source source("qkv", Load::kPieces, AttentionSlot::kQ, AttentionSlot::kV);
  const auto error = [&](const PiecesFile& file) {
    return Recipe(row(AttentionSlot::kQ, "", source), file.tensors, file.config).error(pieces());
  };
  EXPECT_EQ(error(PiecesFile(9)), ErrorCode::kWeightShapeMismatch);  // blocks as of one piece
  EXPECT_EQ(error(PiecesFile(10, 1)), ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(error(PiecesFile(10, 3)), ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(error(PiecesFile(10, 0)), ErrorCode::kConfigKeyInvalid);
}

// A stack that is stored as one matrix, and the same elements in rows of another length.
TEST(Recipe, Fp8ReshapedKeepsItsRows) {
  const Source reshaped("w", Load::kReshaped);
  expect_f8(MoeSlot::kDown, reshaped, Fp8File(24, 140, 16, 128), moe(12, 140), DType::kF8_E4M3);
  expect_f8(MoeSlot::kDown, reshaped, Fp8File(24, 140, 128, 64), moe(12, 140), DType::kBF16);
  const Fp8File longer(12, 280, 128, 128);
  EXPECT_EQ(Recipe(row(MoeSlot::kDown, "", reshaped), longer.tensors, longer.config).error(moe(12, 140)),
            ErrorCode::kWeightDTypeUnsupported);
}

// Keys are turned: their rows run down the stored columns, and blocks of scales with them.
TEST(Recipe, Fp8OfLatentAttention) {
  const auto heads = [](std::uint32_t keys, std::uint32_t values) {
    MlaAttentionParams p = mla();
    p.d_nope = keys, p.d_v = values, p.kv_lora = 40;
    return p;
  };
  const Source keys("w", Load::kHeadKeys), values("w", Load::kHeadValues);
  expect_f8(MlaSlot::kKB, keys, Fp8File(256, 40, 64, 16), heads(64, 64), DType::kF8_E4M3);
  expect_f8(MlaSlot::kKB, keys, Fp8File(200, 40, 128, 128), heads(64, 36), DType::kBF16);  // 100 .. 163 have two
  expect_f8(MlaSlot::kVB, values, Fp8File(256, 40, 64, 128), heads(64, 64), DType::kF8_E4M3);
}

TEST(Recipe, RefusesTypesThatAreNoWeights) {
  SwigluParams p{};
  p.width = 2;
  p.ffn = 1;
  for (const char* type : {"I64", "U64", "F64"}) {
    Recipe recipe(row(FfnSlot::kUp, "", "w"), {{"w", TinyTensor::raw(type, {1, 2}, std::vector<std::uint8_t>(16))}});
    EXPECT_EQ(recipe.error(p), ErrorCode::kWeightDTypeUnsupported) << type;
  }
}

TEST(Recipe, RefusesTensorsWithoutElements) {
  SwigluParams p{};
  p.width = 2;
  p.ffn = 0;
  const std::map<std::string, TinyTensor> tensors{{"w", TinyTensor::counting({2, 0})},
                                                  {"v", TinyTensor::counting({0})}};
  EXPECT_EQ(Recipe(row(FfnSlot::kDown, "", "w"), tensors).error(p), ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(Recipe(row(FfnSlot::kDown, "", Source("w", Load::kReshaped)), tensors).error(p),
            ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(Recipe(row(FfnSlot::kUpBias, "", "v"), tensors).error(p), ErrorCode::kWeightShapeMismatch);
}

TEST(Recipe, TensorsThatAreJoined) {
  GatedDeltaParams p{};
  p.width = 1;
  p.key_heads = p.value_heads = 1;
  p.d_k = p.d_v = 2;
  p.d_conv = 3;
  const auto row_of = [](GatedDeltaSlot slot) { return row(slot, "", Source("[q|k|v].w", Load::kJoined)); };
  // A convolution's weights are stored with an axis of one element between, in GGUF with another one before.
  const std::map<std::string, TinyTensor> tensors{{"q.w", TinyTensor::f32({1, 2, 1, 3}, Values{0, 1, 2, 3, 4, 5})},
                                                  {"k.w", TinyTensor::f32({2, 3}, Values{6, 7, 8, 9, 10, 11})},
                                                  {"v.w", TinyTensor::f32({2, 1, 3}, Values{12, 13, 14, 15, 16, 17})}};
  EXPECT_EQ(Recipe(row_of(GatedDeltaSlot::kConvWeight), tensors).floats(p),
            (Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}));
  auto wrong = tensors;
  wrong["k.w"] = TinyTensor::counting({3, 2});
  EXPECT_EQ(Recipe(row_of(GatedDeltaSlot::kConvWeight), wrong).error(p), ErrorCode::kWeightShapeMismatch);
  wrong["k.w"] = TinyTensor::raw("BF16", {2, 3}, std::vector<std::uint8_t>(12));
  EXPECT_EQ(Recipe(row_of(GatedDeltaSlot::kConvWeight), wrong).error(p), ErrorCode::kWeightDTypeUnsupported);
  wrong.erase("k.w");
  EXPECT_EQ(Recipe(row_of(GatedDeltaSlot::kConvWeight), wrong).error(p), ErrorCode::kMissingWeight);
}

TEST(Recipe, AVectorForEachHead) {
  AttentionParams p = attention();
  p.qk_norm = plan::QkNorm::kCenteredPerHead;
  const WeightRow norms = row(AttentionSlot::kQNorm, "", Source("layers.{}.n.{}.w", Load::kHeads));
  std::map<std::string, TinyTensor> tensors{{"layers.0.n.0.w", TinyTensor::f32({2}, Values{1, 2})},
                                            {"layers.0.n.1.w", TinyTensor::f32({2}, Values{3, 4})}};
  EXPECT_EQ(Recipe(norms, tensors).floats(p), (Values{1, 2, 3, 4}));
  const TensorShare second{.kind = TensorShare::Kind::kSlice, .axis = 0, .begin = 2, .count = 2};
  EXPECT_EQ(Recipe(norms, tensors).on_device(second, false).floats(p), (Values{3, 4}));
  tensors["layers.0.n.1.w"] = TinyTensor::f32({3}, Values{3, 4, 5});
  EXPECT_EQ(Recipe(norms, tensors).error(p), ErrorCode::kWeightShapeMismatch);
  tensors.erase("layers.0.n.1.w");
  EXPECT_EQ(Recipe(norms, tensors).error(p), ErrorCode::kMissingWeight);
}

TEST(Recipe, RowsOfALayerOfThoseOfAll) {
  LayerInputParams p{};
  p.width = 2;
  p.inner = 3;
  p.layers = 2;
  const std::map<std::string, TinyTensor> tensors{{"w", TinyTensor::counting({6, 2})}};
  Recipe recipe(row(LayerInputSlot::kContext, "", Source("w", Load::kLayerRows)), tensors);
  EXPECT_EQ(recipe.floats(p), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(recipe.tensors()[0].name, "w:0");
  p.layers = 3;
  EXPECT_EQ(recipe.error(p), ErrorCode::kWeightShapeMismatch);
}

TEST(Recipe, OneTensorForTwoSlotsOfTheSameShape) {
  Recipe recipe(row(FfnSlot::kUp, "", "w"), {{"w", TinyTensor::counting({2, 3})}});
  SwigluParams p{};
  p.width = 3;
  p.ffn = 2;
  EXPECT_EQ(recipe.describe(p).value(), 0U);
  EXPECT_EQ(recipe.describe(p).value(), 0U);
  EXPECT_EQ(recipe.tensors().size(), 1U);
}

TEST(Names, PatternsMatchNumbersAndRests) {
  EXPECT_TRUE(matches("layers.{}.x", "layers.12.x"));
  EXPECT_FALSE(matches("layers.{}.x", "layers..x"));
  EXPECT_FALSE(matches("layers.{}.x", "layers.1a.x"));
  EXPECT_TRUE(matches("tower.*", "tower.anything.at.all"));
  EXPECT_FALSE(matches("tower.*", "towers"));
  EXPECT_FALSE(matches("a", "ab"));
  EXPECT_EQ(tensor_name("layers.{}.e.{}.w", 3, 7), "layers.3.e.7.w");
  EXPECT_EQ(joined_names("a.[q|k].w"), (std::vector<std::string>{"a.q.w", "a.k.w"}));
  EXPECT_EQ(joined_names("a.w"), std::vector<std::string>{"a.w"});
}

}  // namespace
}  // namespace llorch::engine::models
