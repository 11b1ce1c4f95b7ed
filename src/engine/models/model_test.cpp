#include "engine/models/model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/models/portable_math.h"
#include "engine/models/testing/tiny_llama.h"
#include "engine/models/testing/tiny_tensors.h"
#include "engine/plan/slots.h"

namespace llorch::engine::models {
namespace {

using base::ErrorCode;
using plan::DType;
using testing::TinyLlama;

// Heap-allocated: the model's tensors view into the bytes.
struct Compiled {
  explicit Compiled(const TinyLlama& tiny)
      : bytes(tiny.bytes()),
        files(io::ModelFiles::from_gguf(io::GgufFile::parse(bytes, "tiny.gguf").value()).value()),
        model(compile_model(files, DType::kF16)) {}
  std::vector<std::byte> bytes;
  io::ModelFiles files;
  base::Result<CompiledModel> model;
};

std::unique_ptr<Compiled> compile(const TinyLlama& tiny) { return std::make_unique<Compiled>(tiny); }

TEST(Config, ReadsTheNumbers) {
  const auto compiled = compile({});
  ASSERT_TRUE(compiled->model) << compiled->model.error().message;
  const ModelConfig& config = compiled->model->config;
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.width, 64U);
  ASSERT_EQ(config.layers.size(), 2U);
  EXPECT_EQ(config.layers[1].heads, 4U);
  EXPECT_EQ(config.layers[1].kv_heads, 2U);
  EXPECT_EQ(config.layers[1].ffn, 96U);
  EXPECT_EQ(config.attention.d_qk, 16U);
  EXPECT_EQ(config.vocab, 40U);
  EXPECT_EQ(config.context_tokens, 192U);
  EXPECT_FLOAT_EQ(config.attention.scale, 0.25F);
  ASSERT_EQ(config.ropes.size(), 1U);
  EXPECT_EQ(config.ropes[0].dims, 16U);
  EXPECT_DOUBLE_EQ(config.ropes[0].base, 10000.0);
  EXPECT_EQ(config.attention.rope_layout, plan::RopeLayout::kInterleaved);
}

// The tensors of a llama under another architecture.
TinyLlama tiny_of(std::string_view architecture) {
  TinyLlama tiny;
  const std::string prefix = std::string(architecture) + ".";
  tiny.overrides = {{"general.architecture", architecture},
                    {prefix + "context_length", tiny.context},
                    {prefix + "embedding_length", tiny.width},
                    {prefix + "block_count", tiny.layers},
                    {prefix + "feed_forward_length", tiny.ffn},
                    {prefix + "attention.head_count", tiny.heads},
                    {prefix + "attention.head_count_kv", tiny.kv_heads},
                    {prefix + "attention.layer_norm_rms_epsilon", 1e-5F}};
  return tiny;
}

// Granite 4 is of one class with state-space layers or without; converters give its keys to both.
TEST(Granite4, LoadsWithoutAStateSpaceLayer) {
  for (const std::string_view architecture : {"granite", "granitehybrid"}) {
    SCOPED_TRACE(architecture);
    const std::string prefix = std::string(architecture) + ".";
    TinyLlama tiny = tiny_of(architecture);
    const auto bare = compile(tiny);
    ASSERT_TRUE(bare->model) << bare->model.error().message;
    EXPECT_EQ(bare->model->config.layers[1].rope, 0);
    for (const auto& [key, value] :
         {std::pair{"ssm.conv_kernel", 4U}, std::pair{"ssm.group_count", 1U}, std::pair{"ssm.inner_size", 128U},
          std::pair{"ssm.state_size", 16U}, std::pair{"ssm.time_step_rank", 8U}, std::pair{"expert_count", 0U},
          std::pair{"expert_shared_feed_forward_length", 96U}})
      tiny.overrides[prefix + key] = value;
    tiny.overrides[prefix + "rope.scaling.finetuned"] = true;
    const auto whole = compile(tiny);
    ASSERT_TRUE(whole->model) << whole->model.error().message;
    EXPECT_EQ(whole->model->config.layers[1].rope, 0);
    tiny.overrides[prefix + "rope.scaling.finetuned"] = false;
    const auto unrotated = compile(tiny);
    ASSERT_TRUE(unrotated->model) << unrotated->model.error().message;
    EXPECT_EQ(unrotated->model->config.layers[1].rope, kNoRope);
  }
}

TEST(GraniteSwa, RotatesWhereThePatternSaysSo) {
  TinyLlama tiny = tiny_of("granite_swa");
  for (const char* sinks : {"blk.0.attn_sinks.weight", "blk.1.attn_sinks.weight"}) tiny.shapes[sinks] = {tiny.heads};
  constexpr std::array kFlags{std::byte{1}, std::byte{0}};
  tiny.overrides["granite_swa.attention.rope_pattern"] =
      io::GgufArray{.element_type = io::GgufType::kBool, .count = 2, .bytes = kFlags};
  const auto compiled = compile(tiny);
  ASSERT_TRUE(compiled->model) << compiled->model.error().message;
  EXPECT_EQ(compiled->model->config.layers[0].rope, 0);
  EXPECT_EQ(compiled->model->config.layers[1].rope, kNoRope);
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

// One number for each of two layers.
constexpr std::array<std::int32_t, 2> kOnlyFirst{4, 0};
const io::GgufArray kOnlyFirstHasHeads{
    .element_type = io::GgufType::kI32, .count = 2, .bytes = std::as_bytes(std::span(kOnlyFirst))};

INSTANTIATE_TEST_SUITE_P(Model, Refused,
                         ::
                             testing::
                                 Values(Case{"no_architecture", ErrorCode::kConfigKeyMissing, "general.architecture",
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
                                        Case{"heads_do_not_divide", ErrorCode::kConfigKeyInvalid,
                                             "llama.attention.head_count",
                                             set("llama.attention.head_count", std::uint32_t{6})},
                                        Case{"kv_heads_do_not_divide", ErrorCode::kConfigKeyInvalid, "head_count_kv",
                                             set("llama.attention.head_count_kv", std::uint32_t{3})},
                                        Case{"attends_without_heads", ErrorCode::kConfigKeyInvalid, "layer 1 attends",
                                             [](TinyLlama& m) {
                                               m.kv_heads = 4;
                                               m.overrides["llama.attention.head_count_kv"] = kOnlyFirstHasHeads;
                                             }},
                                        Case{"attends_without_query_heads", ErrorCode::kConfigKeyInvalid,
                                             "layer 1 attends",
                                             [](TinyLlama& m) {
                                               m.overrides["llama.attention.head_count"] = kOnlyFirstHasHeads;
                                             }},
                                        Case{"odd_rotation", ErrorCode::kConfigKeyInvalid, "dimension_count",
                                             set("llama.rope.dimension_count", std::uint32_t{7})},
                                        Case{"rotation_wider_than_head", ErrorCode::kConfigKeyInvalid,
                                             "dimension_count", set("llama.rope.dimension_count", std::uint32_t{32})},
                                        Case{"rotation_base_zero", ErrorCode::kConfigKeyInvalid, "freq_base",
                                             set("llama.rope.freq_base", 0.0F)},
                                        Case{"scaling_of_another_kind", ErrorCode::kConfigKeyInvalid, "ntk",
                                             set("llama.rope.scaling.type", std::string_view("ntk"))},
                                        Case{"yarn_without_its_context", ErrorCode::kConfigKeyMissing,
                                             "original_context_length",
                                             set("llama.rope.scaling.type", std::string_view("yarn"))},
                                        Case{"scaling_negative", ErrorCode::kConfigKeyInvalid,
                                             "scaling.factor", set("llama.rope.scaling.factor", -2.0F)},
                                        Case{"pooling_of_another_kind", ErrorCode::kConfigKeyInvalid,
                                             "llama.pooling_type", set("llama.pooling_type", std::uint32_t{5})},
                                        Case{"rows_that_see_later_ones", ErrorCode::kConfigKeyInvalid,
                                             "llama.attention.causal", set("llama.attention.causal", false)},
                                        Case{"mixture_of_experts", ErrorCode::kConfigKeyMissing,
                                             "expert_used_count", set("llama.expert_count", std::uint32_t{8})},
                                        Case{"no_embedding", ErrorCode::kMissingWeight,
                                             "token_embd.weight", drop("token_embd.weight")},
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
                                        Case{
                                            "norm_too_short", ErrorCode::kWeightShapeMismatch, "blk.0.attn_norm.weight",
                                            shape("blk.0.attn_norm.weight", {32})},
                                        Case{
                                            "wrong_rank", ErrorCode::kWeightShapeMismatch, "blk.0.attn_norm.weight",
                                            shape("blk.0.attn_norm.weight", {64, 1})},
                                        Case{"divisors_too_few", ErrorCode::kWeightShapeMismatch, "rope_freqs",
                                             [](TinyLlama& m) {
                                               m.rope_divisors = {1, 2};
                                             }},
                                        Case{"divisor_zero", ErrorCode::kConfigKeyInvalid, "rope_freqs",
                                             [](TinyLlama& m) { m.rope_divisors = {1, 1, 1, 1, 0, 1, 1, 1}; }}),
                         [](const ::testing::TestParamInfo<Case>& test) { return std::string(test.param.name); });

// A directory of one mixture: its config.json may say more than its files hold.
base::Result<CompiledModel> compile_mixture(std::uint32_t layers, std::uint32_t experts, std::string_view left_out) {
  std::map<std::string, testing::TinyTensor> tensors{
      {"model.embed_tokens.weight", testing::TinyTensor::counting({5, 4})},
      {"model.norm.weight", testing::TinyTensor::counting({4})}};
  const std::string layer = "model.layers.0.";
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
    tensors[layer + norm + ".weight"] = testing::TinyTensor::counting({4});
  for (const char* matrix : {"q", "k", "v", "o"})
    tensors[fmt::format("{}self_attn.{}_proj.weight", layer, matrix)] = testing::TinyTensor::counting({4, 4});
  for (const char* norm : {"q", "k"})
    tensors[fmt::format("{}self_attn.{}_norm.weight", layer, norm)] = testing::TinyTensor::counting({2});
  tensors[layer + "mlp.gate.weight"] = testing::TinyTensor::counting({4, 4});
  for (int expert = 0; expert < 4; ++expert) {
    for (const char* matrix : {"gate", "up", "down"})
      tensors[fmt::format("{}mlp.experts.{}.{}_proj.weight", layer, expert, matrix)] = testing::TinyTensor::counting(
          matrix == std::string_view("down") ? std::vector<std::uint64_t>{4, 3} : std::vector<std::uint64_t>{3, 4});
  }
  tensors.erase(std::string(left_out));
  const std::string config = fmt::format(
      R"({{"model_type": "qwen3_moe", "hidden_size": 4, "num_hidden_layers": {}, "num_attention_heads": 2, "head_dim": 2,
          "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu",
          "num_experts": {}, "num_experts_per_tok": 2, "moe_intermediate_size": 3, "tie_word_embeddings": true}})",
      layers, experts);
  std::vector<std::byte> storage;
  const io::ModelFiles files = testing::tiny_files(tensors, storage, config);
  return compile_model(files, DType::kF16);
}

TEST(Weights, AStackHasAsManyTensorsAsItsExperts) {
  const auto whole = compile_mixture(1, 4, "");
  EXPECT_TRUE(whole) << whole.error().message;
  const auto gap = compile_mixture(1, 4, "model.layers.0.mlp.experts.2.up_proj.weight");
  ASSERT_FALSE(gap);
  EXPECT_EQ(gap.error().code, ErrorCode::kMissingWeight);
  EXPECT_NE(gap.error().message.find("experts.2.up_proj.weight"), std::string::npos) << gap.error().message;
  const auto further = compile_mixture(1, 3, "");
  ASSERT_FALSE(further);
  EXPECT_EQ(further.error().code, ErrorCode::kUnclaimedWeight) << further.error().message;
}

// Names of all of them would take terabytes.
TEST(Weights, ExpertsThatNoFileHoldsTakeNoMemory) {
  const auto model = compile_mixture(4096, 1U << 24, "");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kMissingWeight) << model.error().message;
}

// As DeepSeek V4 spells it; what it leaves out has the values of the library's class.
base::Error refusal_of_v4(std::string_view keys) {
  std::vector<std::byte> storage;
  const io::ModelFiles files = testing::tiny_files(
      {{"embed.weight", testing::TinyTensor::counting({5, 4})}}, storage,
      fmt::format(R"({{"model_type": "deepseek_v4", "hidden_size": 4, "num_hidden_layers": 1, "vocab_size": 5,
                       "layer_types": ["sliding_attention"], "rms_norm_eps": 1e-6{}}})",
                  keys));
  return compile_model(files, DType::kF16).error();
}

TEST(Config, NumbersThatMultiplyAreBoundedTogether) {
  EXPECT_EQ(refusal_of_v4("").code, ErrorCode::kMissingWeight) << refusal_of_v4("").message;
  const auto wide =
      refusal_of_v4(R"(, "num_attention_heads": 257, "head_dim": 64, "o_groups": 257, "o_lora_rank": 16711936)");
  EXPECT_EQ(wide.code, ErrorCode::kConfigKeyInvalid);
  EXPECT_NE(wide.message.find("too wide together"), std::string::npos) << wide.message;
  const auto endless = refusal_of_v4(R"(, "hc_sinkhorn_iters": 1001)");
  EXPECT_EQ(endless.code, ErrorCode::kConfigKeyInvalid);
  EXPECT_NE(endless.message.find("hc_sinkhorn_iters"), std::string::npos) << endless.message;
}

TEST(Weights, AllowListedTensorsAreNoError) {
  TinyLlama tiny;
  tiny.shapes["blk.0.attn_rot_embd.weight"] = {8};
  const auto compiled = compile(tiny);
  EXPECT_TRUE(compiled->model) << compiled->model.error().message;
}

TEST(Weights, TiedHeadSharesTheTensorAndBothUses) {
  const auto tied = compile({});
  ASSERT_TRUE(tied->model);
  EXPECT_EQ(tied->model->tensors.size(), tied->files.tensors().size());
  for (const BoundTensor& tensor : tied->model->tensors) {
    const bool embedding = tensor.name == "token_embd.weight";
    const int both = static_cast<int>(plan::WeightUse::kRows) | static_cast<int>(plan::WeightUse::kMatrix);
    EXPECT_EQ(tensor.stored.uses == both, embedding) << tensor.name;
  }
  const auto untied = compile({.tied = false});
  ASSERT_TRUE(untied->model);
  EXPECT_EQ(untied->model->tensors.size(), tied->model->tensors.size() + 1);
  EXPECT_EQ(untied->model->parameters_count, tied->model->parameters_count + 64 * 40);
}

TEST(Rope, TablesFollowTheFormulas) {
  const RopeConfig plain{.dims = 16, .base = 500000.0};
  const auto table = make_rope_table(plain, {});
  ASSERT_TRUE(table);
  for (int i = 0; i < 8; ++i)
    EXPECT_FLOAT_EQ(table->inv_freq[i], static_cast<float>(std::pow(500000.0, -2.0 * i / 16))) << i;
  RopeConfig linear = plain;
  linear.kind = RopeKind::kLinear;
  linear.factor = 4;
  EXPECT_FLOAT_EQ(make_rope_table(linear, {})->inv_freq[3], table->inv_freq[3] / 4);
  const std::vector<float> divisors{1, 1, 2, 2, 4, 4, 8, 8};
  EXPECT_FLOAT_EQ(make_rope_table(plain, divisors)->inv_freq[7], table->inv_freq[7] / 8);
}

// Entries of each range by hand: f_i = 10000^(-i/8) over an original context of 64 positions.
TEST(Rope, Llama3KeepsShortWavesAndSlowsLongOnes) {
  const RopeConfig rope{.dims = 16, .kind = RopeKind::kLlama3, .factor = 8, .original_context = 64};
  const RopeConfig plain{.dims = 16};
  const auto table = make_rope_table(rope, {}).value(), unscaled = make_rope_table(plain, {}).value();
  EXPECT_FLOAT_EQ(table.inv_freq[0], unscaled.inv_freq[0]);           // wavelength 6.3 < 64 / 4
  const double s = (64 / (2 * M_PI / unscaled.inv_freq[1]) - 1) / 3;  // 19.9, between
  EXPECT_FLOAT_EQ(table.inv_freq[1], static_cast<float>(unscaled.inv_freq[1] * ((1 - s) / 8 + s)));
  for (int i = 3; i < 8; ++i) EXPECT_FLOAT_EQ(table.inv_freq[i], unscaled.inv_freq[i] / 8) << i;
}

TEST(Rope, YarnBlendsOverARampWithWholeOrExactEnds) {
  RopeConfig rope{.dims = 16, .kind = RopeKind::kYarn, .factor = 4, .original_context = 512};
  const RopeConfig plain{.dims = 16};
  const auto unscaled = make_rope_table(plain, {}).value();
  const auto ends = [&](double turns) { return 16 * std::log(512 / (2 * M_PI * turns)) / (2 * std::log(10000.0)); };
  for (const bool truncate : {true, false}) {
    rope.truncate = truncate;
    const auto table = make_rope_table(rope, {}).value();
    const double low = truncate ? std::floor(ends(32)) : ends(32), high = truncate ? std::ceil(ends(1)) : ends(1);
    for (int i = 0; i < 8; ++i) {
      const double slowed = std::clamp((i - low) / (high - low), 0.0, 1.0);
      const double f = unscaled.inv_freq[i];
      EXPECT_NEAR(table.inv_freq[i], f / 4 * slowed + f * (1 - slowed), 1e-6 * f) << i << " " << truncate;
    }
  }
}

TEST(Rope, LongTablesFollowTheirShortOnes) {
  RopeConfig both{.dims = 4, .original_context = 64};
  both.divisors = {1, 1};
  both.divisors_long = {2, 4};
  const std::vector<RopeConfig> ropes{{.dims = 4}, both, {.dims = 4}};
  const auto tables = make_rope_tables(ropes).value();
  ASSERT_EQ(tables.size(), 4U);
  EXPECT_EQ(rope_table_ids(ropes, 0).long_table, plan::kNoRopeTable);
  EXPECT_EQ(rope_table_ids(ropes, 1).table, 1U);
  EXPECT_EQ(rope_table_ids(ropes, 1).long_table, 2U);
  EXPECT_EQ(rope_table_ids(ropes, 2).table, 3U);
  EXPECT_EQ(rope_table_ids(ropes, kNoRope).table, plan::kNoRopeTable);
  EXPECT_FLOAT_EQ(tables[2].inv_freq[1], tables[1].inv_freq[1] / 4);
  EXPECT_EQ(long_rope_context(ropes), 64U);
}

TEST(PortableMath, IsWhatItSays) {
  for (double x : {1e-9, 0.3, 0.75, 1.0, 2.0, 10.0, 12345.678, 1e12}) {
    EXPECT_NEAR(portable_log(x), std::log(x), 1e-14 * std::max(1.0, std::fabs(std::log(x)))) << x;
  }
  for (double y : {-20.0, -1.0, -1e-6, 0.0, 0.5, 3.0, 30.0})
    EXPECT_NEAR(portable_exp(y) / std::exp(y), 1.0, 1e-14) << y;
}

TEST(PortableMath, PowIsCloseToTheExactValue) {
  for (double base : {1.0, 1.5, 1000.0, 10000.0, 500000.0, 1e9}) {
    for (double exponent : {0.0, -0.015625, -0.5, -0.96875, -1.0}) {
      const double expected = std::pow(base, exponent);
      EXPECT_NEAR(portable_pow(base, exponent) / expected, 1.0, 1e-14) << base << "^" << exponent;
    }
  }
}

}  // namespace
}  // namespace llorch::engine::models
