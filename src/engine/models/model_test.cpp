#include "engine/models/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "engine/contract/slots.h"
#include "engine/models/testing/tiny_llama.h"

namespace llorch::engine::models {
namespace {

using base::ErrorCode;
using contract::DType;
using testing::TinyLlama;

// Heap-allocated: the model's tensors view into the bytes.
struct Compiled {
  explicit Compiled(const TinyLlama& tiny)
      : bytes(tiny.bytes()),
        file(io::GgufFile::parse(bytes, "tiny.gguf").value()),
        model(compile_model(file, DType::kF16)) {}
  std::vector<std::byte> bytes;
  io::GgufFile file;
  base::Result<CompiledModel> model;
};

std::unique_ptr<Compiled> compile(const TinyLlama& tiny) { return std::make_unique<Compiled>(tiny); }

TEST(Config, ReadsTheNumbers) {
  const auto compiled = compile({});
  ASSERT_TRUE(compiled->model) << compiled->model.error().message;
  const ModelConfig& config = compiled->model->config;
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.width, 64U);
  EXPECT_EQ(config.heads, 4U);
  EXPECT_EQ(config.kv_heads, 2U);
  EXPECT_EQ(config.d_qk, 16U);
  EXPECT_EQ(config.vocab, 40U);
  EXPECT_EQ(config.context_tokens, 192U);
  EXPECT_FLOAT_EQ(config.attention_scale, 0.25F);
  EXPECT_EQ(config.rope.dims, 16U);
  EXPECT_DOUBLE_EQ(config.rope.base, 10000.0);
  EXPECT_EQ(config.rope.layout, contract::RopeLayout::kInterleaved);
}

struct Case {
  const char* name;
  ErrorCode code;
  const char* mentions;
  std::function<void(TinyLlama&)> damage;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Refused : public ::testing::TestWithParam<Case> {};

TEST_P(Refused, WithItsOwnCodeAndTheName) {
  TinyLlama tiny;
  GetParam().damage(tiny);
  const auto compiled = compile(tiny);
  ASSERT_FALSE(compiled->model);
  EXPECT_EQ(compiled->model.error().code, GetParam().code) << compiled->model.error().message;
  EXPECT_NE(compiled->model.error().message.find(GetParam().mentions), std::string::npos)
      << compiled->model.error().message;
}

std::function<void(TinyLlama&)> set(const char* key, io::GgufValue value) {
  return [=](TinyLlama& m) { m.overrides[key] = value; };
}
std::function<void(TinyLlama&)> drop(const char* name) {
  return [=](TinyLlama& m) { m.without.insert(name); };
}
std::function<void(TinyLlama&)> shape(const char* name, std::vector<std::uint64_t> dims) {
  return [=](TinyLlama& m) { m.shapes[name] = dims; };
}

INSTANTIATE_TEST_SUITE_P(Model, Refused,
                         ::testing::
                             Values(
                                 Case{"no_architecture", ErrorCode::kConfigKeyMissing, "general.architecture",
                                      drop("general.architecture")},
                                 Case{"unknown_architecture", ErrorCode::kUnknownArchitecture, "llama",
                                      set("general.architecture", std::string_view("lama"))},
                                 Case{"no_width", ErrorCode::kConfigKeyMissing, "llama.embedding_length",
                                      drop("llama.embedding_length")},
                                 Case{"no_layers", ErrorCode::kConfigKeyMissing, "llama.block_count",
                                      drop("llama.block_count")},
                                 Case{"no_context", ErrorCode::kConfigKeyMissing, "llama.context_length",
                                      drop("llama.context_length")},
                                 Case{"no_ffn", ErrorCode::kConfigKeyMissing, "llama.feed_forward_length",
                                      drop("llama.feed_forward_length")},
                                 Case{"no_heads", ErrorCode::kConfigKeyMissing, "llama.attention.head_count",
                                      drop("llama.attention.head_count")},
                                 Case{"no_eps", ErrorCode::kConfigKeyMissing, "rms_epsilon",
                                      drop("llama.attention.layer_norm_rms_epsilon")},
                                 Case{"zero_layers", ErrorCode::kConfigKeyInvalid, "llama.block_count",
                                      set("llama.block_count", std::uint32_t{0})},
                                 Case{"huge_width", ErrorCode::kConfigKeyInvalid, "llama.embedding_length",
                                      set("llama.embedding_length", 0xFFFFFFFFU)},
                                 Case{"heads_do_not_divide", ErrorCode::kConfigKeyInvalid, "llama.attention.head_count",
                                      set("llama.attention.head_count", std::uint32_t{6})},
                                 Case{"kv_heads_do_not_divide", ErrorCode::kConfigKeyInvalid, "head_count_kv",
                                      set("llama.attention.head_count_kv", std::uint32_t{3})},
                                 Case{"odd_rotation", ErrorCode::kConfigKeyInvalid, "dimension_count",
                                      set("llama.rope.dimension_count", std::uint32_t{7})},
                                 Case{"rotation_wider_than_head", ErrorCode::kConfigKeyInvalid, "dimension_count",
                                      set("llama.rope.dimension_count", std::uint32_t{32})},
                                 Case{"rotation_base_zero", ErrorCode::kConfigKeyInvalid, "freq_base",
                                      set("llama.rope.freq_base", 0.0F)},
                                 Case{"scaling_of_another_kind", ErrorCode::kConfigKeyInvalid, "yarn",
                                      set("llama.rope.scaling.type", std::string_view("yarn"))},
                                 Case{"scaling_negative", ErrorCode::kConfigKeyInvalid, "scaling.factor",
                                      set("llama.rope.scaling.factor", -2.0F)},
                                 Case{"mixture_of_experts", ErrorCode::kConfigKeyInvalid, "expert_count",
                                      set("llama.expert_count", std::uint32_t{8})},
                                 Case{"no_embedding", ErrorCode::kMissingWeight, "token_embd.weight",
                                      drop("token_embd.weight")},
                                 Case{"no_projection", ErrorCode::kMissingWeight, "blk.1.attn_q.weight",
                                      drop("blk.1.attn_q.weight")},
                                 Case{"no_final_norm", ErrorCode::kMissingWeight,
                                      "output_norm.weight", drop("output_norm.weight")},
                                 Case{"extra_tensor", ErrorCode::kUnclaimedWeight, "blk.0.attn_x.weight",
                                      shape("blk.0.attn_x.weight", {4})},
                                 Case{"layer_past_the_end", ErrorCode::kUnclaimedWeight, "blk.2.attn_q.weight",
                                      shape("blk.2.attn_q.weight", {64, 64})},
                                 Case{"transposed", ErrorCode::kWeightShapeMismatch, "blk.0.ffn_up.weight",
                                      shape("blk.0.ffn_up.weight", {96, 64})},
                                 Case{"norm_too_short", ErrorCode::kWeightShapeMismatch,
                                      "blk.0.attn_norm.weight", shape("blk.0.attn_norm.weight", {32})},
                                 Case{"wrong_rank", ErrorCode::kWeightShapeMismatch,
                                      "blk.0.attn_norm.weight", shape("blk.0.attn_norm.weight", {64, 1})},
                                 Case{"divisors_too_few", ErrorCode::kWeightShapeMismatch, "rope_freqs",
                                      [](TinyLlama& m) {
                                        m.rope_divisors = {1, 2};
                                      }},
                                 Case{"divisor_zero", ErrorCode::kConfigKeyInvalid, "rope_freqs",
                                      [](TinyLlama& m) { m.rope_divisors = {1, 1, 1, 1, 0, 1, 1, 1}; }}),
                         [](const ::testing::TestParamInfo<Case>& test) { return std::string(test.param.name); });

TEST(Weights, AllowListedTensorsAreNoError) {
  TinyLlama tiny;
  tiny.shapes["blk.0.attn_rot_embd.weight"] = {8};
  const auto compiled = compile(tiny);
  EXPECT_TRUE(compiled->model) << compiled->model.error().message;
}

TEST(Weights, TiedHeadSharesTheTensorAndBothUses) {
  const auto tied = compile({});
  ASSERT_TRUE(tied->model);
  EXPECT_EQ(tied->model->tensors.size(), tied->file.tensors().size());
  for (const BoundTensor& tensor : tied->model->tensors) {
    const bool embedding = tensor.name == "token_embd.weight";
    const int both = static_cast<int>(contract::WeightUse::kRows) | static_cast<int>(contract::WeightUse::kMatrix);
    EXPECT_EQ(tensor.stored.uses == both, embedding) << tensor.name;
  }
  const auto untied = compile({.tied = false});
  ASSERT_TRUE(untied->model);
  EXPECT_EQ(untied->model->tensors.size(), tied->model->tensors.size() + 1);
  EXPECT_EQ(untied->model->parameters_count, tied->model->parameters_count + 64 * 40);
}

TEST(Rope, TablesFollowTheFormulas) {
  const RopeConfig plain{contract::RopeLayout::kHalf, 16, 500000.0, 1.0};
  const auto table = make_rope_table(plain, {});
  ASSERT_TRUE(table);
  for (int i = 0; i < 8; ++i)
    EXPECT_FLOAT_EQ(table->inv_freq[i], static_cast<float>(std::pow(500000.0, -2.0 * i / 16))) << i;
  RopeConfig linear = plain;
  linear.factor = 4;
  EXPECT_FLOAT_EQ(make_rope_table(linear, {})->inv_freq[3], table->inv_freq[3] / 4);
  const std::vector<float> divisors{1, 1, 2, 2, 4, 4, 8, 8};
  EXPECT_FLOAT_EQ(make_rope_table(plain, divisors)->inv_freq[7], table->inv_freq[7] / 8);
}

TEST(Rope, PortablePowIsCloseToTheExactValue) {
  for (double base : {1.0, 1.5, 1000.0, 10000.0, 500000.0, 1e9}) {
    for (double exponent : {0.0, -0.015625, -0.5, -0.96875, -1.0}) {
      const double expected = std::pow(base, exponent);
      EXPECT_NEAR(portable_pow(base, exponent) / expected, 1.0, 1e-14) << base << "^" << exponent;
    }
  }
}

}  // namespace
}  // namespace llorch::engine::models
