#include "engine/models/gguf_write/tensor_types.h"

#include <gtest/gtest.h>

namespace llorch::engine::models {
namespace {

using base::ErrorCode;
using plan::DType;

ExportTensor shaped_tensor(std::string name, TensorRole role, std::uint64_t cols = 256, DType stored = DType::kBF16) {
  return {.name = std::move(name), .dims = {cols, 8}, .role = role, .stored = stored, .read = {}};
}

ExportModel model() {
  ExportModel out;
  out.tensors = {shaped_tensor("token_embd.weight", TensorRole::kEmbedding),
                 shaped_tensor("output.weight", TensorRole::kHead),
                 shaped_tensor("blk.0.attn_q.weight", TensorRole::kMatrix),
                 shaped_tensor("blk.0.ffn_down.weight", TensorRole::kMatrix, 96),
                 shaped_tensor("blk.0.ffn_gate_inp.weight", TensorRole::kRouter),
                 shaped_tensor("blk.0.attn_norm.weight", TensorRole::kFloats)};
  out.tensors.push_back(shaped_tensor("rope_freqs.weight", TensorRole::kFloats, 16, DType::kF16));
  out.tensors.back().fixed = true;
  return out;
}

std::vector<DType> types_of(const TypeRequest& request) {
  std::vector<DType> types;
  const auto chosen = choose_types(model(), request).value();
  for (const TensorType& type : chosen) types.push_back(type.type);
  return types;
}

TEST(TensorTypes, MatricesAsAskedTheRestByWhatItIsFor) {
  using enum DType;
  EXPECT_EQ(types_of({.type = kQ4_K}), (std::vector{kQ4_K, kQ6_K, kQ4_K, kQ5_0, kF32, kF32, kF16}));
  EXPECT_EQ(types_of({.type = kQ2_K}), (std::vector{kQ4_K, kQ6_K, kQ2_K, kIQ4_NL, kF32, kF32, kF16}));
  EXPECT_EQ(types_of({.type = kQ8_0}), (std::vector{kQ8_0, kQ8_0, kQ8_0, kQ8_0, kF32, kF32, kF16}));
  EXPECT_EQ(types_of({.type = kBF16}), (std::vector{kBF16, kBF16, kBF16, kBF16, kF32, kF32, kF16}));
  EXPECT_EQ(types_of({.type = kQ4_0, .embedding = kQ8_0, .head = kF16}),
            (std::vector{kQ8_0, kF16, kQ4_0, kQ4_0, kF32, kF32, kF16}));
}

TEST(TensorTypes, AStandInIsReported) {
  const auto types = choose_types(model(), {.type = DType::kQ4_K}).value();
  EXPECT_EQ(types[3].wanted, DType::kQ4_K);
  EXPECT_FALSE(types[2].wanted);
}

// Ends for every length, at a type whose blocks fit.
TEST(TensorTypes, SomeTypeFitsEveryLength) {
  for (const DType type : {DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ8_0,
                           DType::kQ4_0, DType::kIQ4_XS, DType::kMXFP4, DType::kF32}) {
    for (const std::uint64_t cols : {1U, 31U, 32U, 96U, 255U, 256U, 768U}) {
      EXPECT_EQ(cols % plan::dtype_info(fitting_type(type, cols)).block_elements, 0U);
    }
  }
  EXPECT_EQ(fitting_type(DType::kQ2_K, 33), DType::kBF16);
}

TEST(TensorTypes, TheLastPatternThatMatchesCounts) {
  const auto types =
      types_of({.type = DType::kQ4_K, .overrides = {{"blk.*", DType::kQ8_0}, {"*ffn_down*", DType::kF16}}});
  EXPECT_EQ(types[2], DType::kQ8_0);
  EXPECT_EQ(types[3], DType::kF16);
  EXPECT_EQ(types[4], DType::kQ8_0);  // routers too, when named
  EXPECT_EQ(types[5], DType::kF32);   // a pattern leaves vectors as they are
}

TEST(TensorTypes, WhatCannotBeIsRefused) {
  const auto code = [](const TypeRequest& request) {
    const auto types = choose_types(model(), request);
    return types ? ErrorCode::kInternal : types.error().code;
  };
  EXPECT_EQ(code({.type = DType::kQ4_K, .overrides = {{"blk.7.*", DType::kF16}}}), ErrorCode::kInvalidParams);
  EXPECT_EQ(code({.type = DType::kQ4_K, .overrides = {{"blk.0.ffn_down.weight", DType::kQ4_K}}}),
            ErrorCode::kInvalidParams);
  EXPECT_EQ(code({.type = DType::kQ4_K, .overrides = {{"blk.0.attn_norm.weight", DType::kF16}}}),
            ErrorCode::kInvalidParams);
}

TEST(TensorTypes, QuantizedValuesAreRoundedAgainOnlyOnRequest) {
  ExportModel quantized = model();
  quantized.tensors[2].stored = DType::kQ4_0;
  const auto refused = choose_types(quantized, {.type = DType::kQ8_0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidParams);
  EXPECT_NE(refused.error().message.find("blk.0.attn_q.weight, Q4_0"), std::string::npos);
  EXPECT_TRUE(choose_types(quantized, {.type = DType::kQ8_0, .allow_requantize = true}));
  EXPECT_TRUE(choose_types(quantized, {.type = DType::kQ4_0}));  // as it is
  EXPECT_TRUE(choose_types(quantized, {.type = DType::kF16}));
  EXPECT_TRUE(choose_types(quantized, {.type = DType::kQ8_0, .overrides = {{"*attn_q*", DType::kQ4_0}}}));
}

TEST(TensorTypes, Names) {
  EXPECT_EQ(quantize_target("q4_k"), DType::kQ4_K);
  EXPECT_EQ(quantize_target("BF16"), DType::kBF16);
  EXPECT_FALSE(quantize_target("I32"));
  EXPECT_FALSE(quantize_target("Q4"));
  EXPECT_FALSE(quantize_target(""));
}

}  // namespace
}  // namespace llorch::engine::models
