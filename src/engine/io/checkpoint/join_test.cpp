#include "engine/io/checkpoint/join.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <span>

#include "engine/io/model_files.h"
#include "engine/io/quant/dequant.h"
#include "engine/io/quant/fp8.h"
#include "engine/io/quant/half.h"

namespace llorch::engine::io {
namespace {

using base::ErrorCode;
using ::testing::HasSubstr;

// A checkpoint of a few tensors, in memory.
struct Checkpoint {
  template <class T>
  void add(const std::string& name, const std::string& dtype, std::vector<std::uint64_t> shape,
           const std::vector<T>& data) {
    const auto bytes = std::as_bytes(std::span(data));
    tensors[name] = {dtype, std::move(shape), {bytes.begin(), bytes.end()}};
  }
  base::Result<ModelFiles> open() {
    std::string header;
    std::size_t at = 0;
    std::vector<std::byte> data;
    for (const auto& [name, tensor] : tensors) {
      header +=
          fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.empty() ? "{" : ",",
                      name, tensor.type, fmt::join(tensor.shape, ","), at, at + tensor.bytes.size());
      at += tensor.bytes.size();
      data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
    }
    header += "}";
    storage.resize(8 + header.size());
    const std::uint64_t length = header.size();
    std::memcpy(storage.data(), &length, sizeof length);
    std::memcpy(storage.data() + 8, header.data(), header.size());
    storage.insert(storage.end(), data.begin(), data.end());
    std::vector<SafetensorsFile> shards;
    shards.push_back(SafetensorsFile::parse(storage).value());
    return ModelFiles::from_hugging_face(HfConfig::parse(config).value(), std::move(shards));
  }
  // Elements of the tensor "m.weight", read in `pieces` of whole blocks.
  std::vector<float> values(std::size_t pieces = 1) {
    const auto files = open();
    EXPECT_TRUE(files) << files.error().message;
    if (!files) return {};
    const FileTensor* tensor = files->find_tensor("m.weight");
    EXPECT_NE(tensor, nullptr);
    if (tensor == nullptr) return {};
    type = tensor->type;
    const plan::DType dtype = *dtype_of(type);
    std::vector<std::byte> bytes(tensor->data.size());
    const std::size_t block = plan::dtype_info(dtype).block_bytes, blocks = bytes.size() / block;
    for (std::size_t i = 0; i < pieces; ++i) {
      const std::size_t from = blocks * i / pieces * block, to = blocks * (i + 1) / pieces * block;
      const auto read = tensor->data.read(from, std::span(bytes).subspan(from, to - from));
      EXPECT_TRUE(read) << read.error().message;
    }
    std::vector<float> out(tensor->elements_count());
    dequantize_row(dtype, bytes, out);
    return out;
  }
  // Of the first read, or of opening.
  base::Error error() {
    const auto files = open();
    if (!files) return files.error();
    const FileTensor* tensor = files->find_tensor("m.weight");
    if (tensor == nullptr) return {ErrorCode::kMissingWeight, "no tensor m.weight"};
    const auto read = tensor->data.read_all();
    return read ? base::Error{ErrorCode::kInternal, "nothing is wrong"} : read.error();
  }

  struct Tensor {
    std::string type;
    std::vector<std::uint64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::string config = "{}";
  std::map<std::string, Tensor> tensors;
  std::vector<std::byte> storage;
  StoredType type = StoredType::kF32;
};

// A quantized matrix before anybody packs it.
struct Plain {
  Plain(std::uint64_t n, std::uint64_t k, std::uint64_t per_group, std::uint32_t bit_count = 4,
        bool is_symmetric = false)
      : rows(n), columns(k), group(per_group), groups((k + per_group - 1) / per_group), bits(bit_count), codes(n * k) {
    std::mt19937 random(static_cast<unsigned>(n * 131 + k * 7 + per_group + bits));
    const std::uint32_t mask = (1U << bits) - 1;
    for (auto& code : codes) code = random() & mask;
    for (std::uint64_t i = 0; i < n * groups; ++i) {
      zeros.push_back(is_symmetric ? 1U << (bits - 1) : random() % mask);
      scales.push_back(f32_to_f16(0.001F + static_cast<float>(random() % 1000) * 1e-5F));
    }
    for (std::uint64_t column = 0; column < k; ++column) group_of.push_back(static_cast<std::int32_t>(column / group));
  }
  std::uint32_t code(std::uint64_t n, std::uint64_t k) const { return codes[n * columns + k]; }
  float scale(std::uint64_t n, std::uint64_t k) const {
    return f16_to_f32(scales[n * groups + static_cast<std::uint64_t>(group_of[k])]);
  }
  std::vector<float> values() const {
    std::vector<float> out;
    for (std::uint64_t n = 0; n < rows; ++n) {
      for (std::uint64_t k = 0; k < columns; ++k) {
        const auto zero = static_cast<float>(zeros[n * groups + static_cast<std::uint64_t>(group_of[k])]);
        out.push_back((static_cast<float>(code(n, k)) - zero) * scale(n, k));
      }
    }
    return out;
  }
  template <class T>
  std::vector<T> transposed(const std::vector<T>& matrix) const {
    std::vector<T> out;
    for (std::uint64_t g = 0; g < groups; ++g)
      for (std::uint64_t n = 0; n < rows; ++n) out.push_back(matrix[n * groups + g]);
    return out;
  }
  std::uint64_t rows, columns, group, groups;
  std::uint32_t bits;
  std::vector<std::uint32_t> codes, zeros;  // [rows, columns], [rows, groups]
  std::vector<std::uint16_t> scales;        // F16 [rows, groups]
  std::vector<std::int32_t> group_of;
};

// `count` fields from `at(i)`, 32 / bits to a word, the first lowest.
template <class At>
void pack(std::vector<std::uint32_t>& words, std::uint64_t count, std::uint32_t bits, At&& at) {
  const std::uint64_t per_word = 32 / bits;
  for (std::uint64_t i = 0; i < count; i += per_word) {
    std::uint32_t word = 0;
    for (std::uint64_t j = 0; j < per_word && i + j < count; ++j) word |= at(i + j) << (j * bits);
    words.push_back(word);
  }
}

Checkpoint gptq(const Plain& m, const std::string& more = "", bool less_one = true) {
  Checkpoint file;
  file.config = fmt::format(R"({{"quantization_config":{{"quant_method":"gptq","bits":{},"group_size":{}{}}}}})",
                            m.bits, m.group, more);
  const std::uint64_t per_word = 32 / m.bits;
  std::vector<std::uint32_t> codes, zeros;
  for (std::uint64_t k = 0; k < m.columns; k += per_word) {
    for (std::uint64_t n = 0; n < m.rows; ++n) {
      std::uint32_t word = 0;
      for (std::uint64_t j = 0; j < per_word; ++j) word |= m.code(n, k + j) << (j * m.bits);
      codes.push_back(word);
    }
  }
  for (std::uint64_t g = 0; g < m.groups; ++g) {
    pack(zeros, m.rows, m.bits, [&](std::uint64_t n) { return m.zeros[n * m.groups + g]; });
  }
  if (less_one)
    for (std::uint32_t& word : zeros) word -= ~0U / ((1U << m.bits) - 1);
  file.add("m.qweight", "I32", {m.columns / per_word, m.rows}, codes);
  file.add("m.qzeros", "I32", {m.groups, (m.rows + per_word - 1) / per_word}, zeros);
  file.add("m.scales", "F16", {m.groups, m.rows}, m.transposed(m.scales));
  file.add("m.g_idx", "I32", {m.columns}, m.group_of);
  return file;
}

TEST(JoinQuantized, SymmetricGptqIsQ4_0Exactly) {
  const Plain m(24, 256, 128, 4, true);
  for (const std::size_t pieces : {1, 5, 64}) {
    Checkpoint file = gptq(m, R"(,"sym":true,"desc_act":false)");
    EXPECT_EQ(file.values(pieces), m.values());
    EXPECT_EQ(file.type, StoredType::kQ4_0);
  }
}

TEST(JoinQuantized, ZerosOfTheirOwnNeedAFifthBit) {
  const Plain m(40, 192, 64);
  Checkpoint file = gptq(m, R"(,"sym":false)");
  EXPECT_EQ(file.values(3), m.values());
  EXPECT_EQ(file.type, StoredType::kQ5_0);
  Checkpoint second = gptq(m, R"(,"sym":false,"checkpoint_format":"gptq_v2")", false);
  EXPECT_EQ(second.values(), m.values());
}

TEST(JoinQuantized, OtherWidthsOfCodes) {
  const Plain two(16, 64, 32, 2), eight(16, 64, 64, 8, true), ragged(8, 96, 64, 4);
  EXPECT_EQ(gptq(two, R"(,"sym":false)").values(), two.values());
  Checkpoint file = gptq(eight);
  EXPECT_EQ(file.values(), eight.values());
  EXPECT_EQ(file.type, StoredType::kQ8_0);
  EXPECT_EQ(gptq(ragged, R"(,"sym":false)").values(), ragged.values());  // the last group has 32 columns
}

std::vector<float> rounded_to_f16(std::vector<float> values) {
  for (float& value : values) value = f16_to_f32(f32_to_f16(value));
  return values;
}

// Activations order: a group's columns lie anywhere.
TEST(JoinQuantized, ColumnsInAnyOrderBecomeHalves) {
  Plain m(16, 128, 32);
  std::shuffle(m.group_of.begin(), m.group_of.end(), std::mt19937(7));
  Checkpoint file = gptq(m, R"(,"sym":false,"desc_act":true)");
  EXPECT_EQ(file.values(4), rounded_to_f16(m.values()));
  EXPECT_EQ(file.type, StoredType::kF16);
  m.group_of[3] = 4;
  EXPECT_EQ(gptq(m, R"(,"sym":false)").error().code, ErrorCode::kCorruptFile);
}

TEST(JoinQuantized, AwqTakesTurnsInAWord) {
  const Plain m(32, 128, 64);
  Checkpoint file;
  file.config =
      R"({"quantization_config":{"quant_method":"awq","bits":4,"group_size":64,"version":"GEMM","zero_point":true}})";
  constexpr std::uint64_t kOrder[]{0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<std::uint32_t> codes, zeros;
  for (std::uint64_t k = 0; k < m.columns; ++k)
    pack(codes, m.rows, 4, [&](std::uint64_t i) { return m.code(i / 8 * 8 + kOrder[i % 8], k); });
  for (std::uint64_t g = 0; g < m.groups; ++g)
    pack(zeros, m.rows, 4, [&](std::uint64_t i) { return m.zeros[(i / 8 * 8 + kOrder[i % 8]) * m.groups + g]; });
  file.add("m.qweight", "I32", {m.columns, m.rows / 8}, codes);
  file.add("m.qzeros", "I32", {m.groups, m.rows / 8}, zeros);
  file.add("m.scales", "F16", {m.groups, m.rows}, m.transposed(m.scales));
  for (const std::size_t pieces : {1, 7}) EXPECT_EQ(file.values(pieces), m.values());
  EXPECT_EQ(file.type, StoredType::kQ5_0);
  file.config = R"({"quantization_config":{"quant_method":"awq","bits":4,"group_size":64,"version":"gemv"}})";
  EXPECT_EQ(file.error().code, ErrorCode::kUnsupportedQuantType);
}

Checkpoint packed_rows(const Plain& m, bool with_zeros) {
  Checkpoint file;
  file.config = R"({"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized"}})";
  const std::uint64_t per_word = 32 / m.bits;
  std::vector<std::uint32_t> codes, zeros((m.rows + per_word - 1) / per_word * m.groups);
  for (std::uint64_t n = 0; n < m.rows; ++n) {
    pack(codes, m.columns, m.bits, [&](std::uint64_t k) { return m.code(n, k); });
    for (std::uint64_t g = 0; g < m.groups; ++g)
      zeros[n / per_word * m.groups + g] |= m.zeros[n * m.groups + g] << (n % per_word * m.bits);
  }
  file.add("m.weight_packed", "I32", {m.rows, (m.columns + per_word - 1) / per_word}, codes);
  file.add("m.weight_scale", "F16", {m.rows, m.groups}, m.scales);
  file.add("m.weight_shape", "I64", {2}, std::vector<std::uint64_t>{m.rows, m.columns});
  if (with_zeros) file.add("m.weight_zero_point", "I32", {zeros.size() / m.groups, m.groups}, zeros);
  return file;
}

TEST(JoinQuantized, CompressedTensorsPackRows) {
  const Plain symmetric(20, 256, 128, 4, true), zeros(20, 128, 32), bytes(12, 64, 64, 8, true), odd(6, 40, 40, 4, true);
  Checkpoint file = packed_rows(symmetric, false);
  for (const std::size_t pieces : {1, 9}) EXPECT_EQ(file.values(pieces), symmetric.values());
  EXPECT_EQ(file.type, StoredType::kQ4_0);
  EXPECT_EQ(packed_rows(zeros, true).values(2), zeros.values());
  EXPECT_EQ(packed_rows(bytes, false).values(), bytes.values());
  Checkpoint no_blocks = packed_rows(odd, false);  // 40 columns are no blocks of 32
  EXPECT_EQ(no_blocks.values(), rounded_to_f16(odd.values()));
  EXPECT_EQ(no_blocks.type, StoredType::kF16);
}

TEST(JoinQuantized, BytesWithAScaleARow) {
  Checkpoint file;
  file.config = R"({"quantization_config":{"quant_method":"compressed-tensors","format":"int-quantized"}})";
  std::vector<std::int8_t> codes(2 * 64);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::int8_t>(i * 37 % 255 - 127);
  file.add("m.weight", "I8", {2, 64}, codes);
  file.add("m.weight_scale", "BF16", {2, 1}, std::vector<std::uint16_t>{f32_to_bf16(0.5F), f32_to_bf16(0.01171875F)});
  file.add("m.input_scale", "F32", {1}, std::vector<float>{1});
  const std::vector<float> values = file.values();
  EXPECT_EQ(file.type, StoredType::kQ8_0);
  for (std::size_t i = 0; i < codes.size(); ++i)
    ASSERT_EQ(values[i], static_cast<float>(codes[i]) * (i < 64 ? 0.5F : 0.01171875F)) << i;
}

TEST(JoinQuantized, Nvfp4OfBothKindsIsBf16) {
  constexpr float kE2m1[]{0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  std::vector<std::uint8_t> codes(2 * 16), scales{0x38, 0x41, 0x52, 0x07};
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 29 + 5);
  for (const bool divides : {true, false}) {
    Checkpoint file;
    file.config = fmt::format(R"({{"quantization_config":{{"quant_method":"{}"}}}})",
                              divides ? "compressed-tensors" : "modelopt");
    file.add(divides ? "m.weight_packed" : "m.weight", "U8", {2, 16}, codes);
    file.add("m.weight_scale", "F8_E4M3", {2, 2}, scales);
    file.add(divides ? "m.weight_global_scale" : "m.weight_scale_2", "F32", {1}, std::vector<float>{0.37F});
    const std::vector<float> values = file.values(3);
    ASSERT_EQ(values.size(), 64U);
    EXPECT_EQ(file.type, StoredType::kBF16);
    for (std::size_t i = 0; i < 64; ++i) {
      const unsigned code = codes[i / 2] >> i % 2 * 4 & 15U;
      const double exact = static_cast<double>((code & 8U) != 0 ? -kE2m1[code & 7U] : kE2m1[code & 7U]) *
                           static_cast<double>(f8_e4m3_to_f32(scales[i / 16]));
      const double global = static_cast<double>(0.37F);
      ASSERT_EQ(values[i], bf16_to_f32(f64_to_bf16(divides ? exact / global : exact * global))) << i;
    }
  }
}

TEST(JoinQuantized, Fp8ScalesGoByOneName) {
  Checkpoint file;
  file.config = R"({"quantization_config":{"quant_method":"compressed-tensors","format":"float-quantized"}})";
  file.add("m.weight", "F8_E4M3", {3, 2}, std::vector<std::uint8_t>(6, 0x38));
  file.add("m.weight_scale", "BF16", {3}, std::vector<std::uint16_t>(3, f32_to_bf16(2)));
  const auto files = file.open();
  ASSERT_TRUE(files) << files.error().message;
  const FileTensor* scales = files->find_tensor("m.weight_scale_inv");
  ASSERT_NE(scales, nullptr);
  EXPECT_EQ(describe(*scales), "BF16 [3, 1]");
  EXPECT_EQ(files->find_tensor("m.weight_scale"), nullptr);
}

TEST(JoinQuantized, DeepseekNamesAllScalesAlike) {
  Checkpoint file;
  file.config = R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128],"scale_fmt":"ue8m0"}})";
  file.add("m.weight", "F8_E4M3", {3, 2}, std::vector<std::uint8_t>(6, 0x38));
  file.add("m.scale", "F8_E8M0", {1, 1}, std::vector<std::uint8_t>{128});
  file.add("hc.scale", "F32", {1}, std::vector<float>{1});  // of no weight
  const auto files = file.open();
  ASSERT_TRUE(files) << files.error().message;
  ASSERT_NE(files->find_tensor("m.weight_scale_inv"), nullptr);
  EXPECT_EQ(describe(*files->find_tensor("m.weight_scale_inv")), "F8_E8M0 [1, 1]");
  EXPECT_EQ(files->find_tensor("m.scale"), nullptr);
  EXPECT_NE(files->find_tensor("hc.scale"), nullptr);
}

TEST(JoinQuantized, DeepseeksFourBitsAreMxfp4Exactly) {
  constexpr float kE2m1[]{0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  std::vector<std::uint8_t> codes(3 * 32), scales{0, 1, 97, 127, 128, 254};
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 29 + 5);
  Checkpoint file;
  file.config = R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128],"scale_fmt":"ue8m0"}})";
  file.add("m.weight", "I8", {3, 32}, codes);
  file.add("m.scale", "F8_E8M0", {3, 2}, scales);
  for (const std::size_t pieces : {1, 4}) {
    const std::vector<float> values = file.values(pieces);
    ASSERT_EQ(values.size(), 192U);
    EXPECT_EQ(file.type, StoredType::kMXFP4);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const unsigned code = codes[i / 2] >> i % 2 * 4 & 15U;
      const float exact = ((code & 8U) != 0 ? -kE2m1[code & 7U] : kE2m1[code & 7U]) * f8_e8m0_to_f32(scales[i / 32]);
      // Zero has no sign, as in DeepSeek's own table.
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(exact + 0.0F)) << i;
    }
  }
  scales[3] = 0xFF;
  file.add("m.scale", "F8_E8M0", {3, 2}, scales);
  EXPECT_EQ(file.error().code, ErrorCode::kWeightValueUnsupported);
  for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{2, 3}, {6}, {3, 2, 1}}) {
    file.add("m.scale", "F8_E8M0", shape, scales);
    EXPECT_EQ(file.error().code, ErrorCode::kWeightShapeMismatch);
    EXPECT_THAT(file.error().message, HasSubstr("m.scale"));
  }
  file.add("m.weight", "I8", {0, 32}, std::vector<std::uint8_t>());
  file.add("m.scale", "F8_E8M0", {0, 2}, std::vector<std::uint8_t>());
  EXPECT_EQ(file.error().code, ErrorCode::kWeightShapeMismatch);
}

TEST(JoinQuantized, PartsStandForNothingByThemselves) {
  Checkpoint file = gptq(Plain(8, 64, 32, 4, true));
  const auto files = file.open();
  ASSERT_TRUE(files) << files.error().message;
  ASSERT_EQ(files->tensors().size(), 1U);
  EXPECT_EQ(describe(files->tensors()[0]), "Q4_0 [8, 64]");
}

TEST(JoinQuantized, RefusesWhatDoesNotGoTogether) {
  const Plain m(16, 64, 32, 4, true);
  Checkpoint no_zeros = gptq(m);
  no_zeros.tensors.erase("m.qzeros");
  EXPECT_EQ(no_zeros.error().code, ErrorCode::kMissingWeight);
  EXPECT_THAT(no_zeros.error().message, HasSubstr("m.qzeros"));
  Checkpoint other_groups = gptq(m);
  other_groups.config = R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":16}})";
  EXPECT_EQ(other_groups.error().code, ErrorCode::kWeightShapeMismatch);
  Checkpoint scales_of_integers = gptq(m);
  scales_of_integers.tensors["m.scales"].type = "I16";
  EXPECT_EQ(scales_of_integers.error().code, ErrorCode::kWeightDTypeUnsupported);
  Checkpoint three = gptq(m);
  three.config = R"({"quantization_config":{"quant_method":"gptq","bits":3,"group_size":32}})";
  EXPECT_EQ(three.error().code, ErrorCode::kUnsupportedQuantType);
  Checkpoint shape = packed_rows(m, false);
  shape.add("m.weight_shape", "I64", {2}, std::vector<std::uint64_t>{16, ~0ULL});
  EXPECT_EQ(shape.error().code, ErrorCode::kUnsupportedQuantType);
  shape.add("m.weight_shape", "I64", {2}, std::vector<std::uint64_t>{16, 0});
  EXPECT_EQ(shape.error().code, ErrorCode::kUnsupportedQuantType);
}

TEST(JoinQuantized, RefusesValuesThatTheTypeCannotHold) {
  Plain m(16, 64, 32, 4, true);
  m.zeros[5] = 7;
  EXPECT_EQ(gptq(m).error().code, ErrorCode::kWeightValueUnsupported);  // says nothing of sym, so it is
  EXPECT_THAT(gptq(m).error().message, HasSubstr("symmetric"));
  m = Plain(16, 64, 32, 4, true);
  m.scales[0] = 0x7C00;
  EXPECT_EQ(gptq(m).error().code, ErrorCode::kWeightValueUnsupported);
}

TEST(JoinQuantized, NamesAMethodThatItDoesNotKnow) {
  Checkpoint file;
  file.config = R"({"quantization_config":{"quant_method":"bitsandbytes"}})";
  file.add("m.weight", "U8", {4, 1}, std::vector<std::uint8_t>(4));
  EXPECT_EQ(file.error().code, ErrorCode::kUnsupportedQuantType);
  EXPECT_THAT(file.error().message, HasSubstr("bitsandbytes"));
  EXPECT_THAT(file.error().message, HasSubstr("gptq, awq"));
}

}  // namespace
}  // namespace llorch::engine::io
