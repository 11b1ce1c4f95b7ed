// config.json in the spellings of transformers 4 and 5, and what is wrong with one that does not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <functional>
#include <map>

#include "base/file.h"
#include "engine/io/gguf_writer.h"
#include "engine/models/model.h"
#include "engine/models/registry.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

namespace bj = boost::json;
using base::ErrorCode;
using engine::io::GgufFile;
using engine::io::GgufValue;
using engine::io::GgufWriter;
using engine::io::HfConfig;
using engine::io::ModelFiles;
using engine::io::SafetensorsFile;
using engine::models::CompiledModel;
using engine::plan::DType;

using Edit = std::function<void(bj::object&)>;

// A family's fixture under a changed configuration.
struct Model {
  Model(const std::string& family, const Edit& edit) : Model(family, edited(family, edit)) {}
  Model(const std::string& family, const std::string& json)
      : files(ModelFiles::from_hugging_face(HfConfig::parse(json).value(), tensors(family)).value()),
        model(engine::models::compile_model(files, DType::kF32)) {}

  static std::string text(const std::string& family) {
    return base::read_file(family_directory(family) / "config.json", 1 << 20).value();
  }
  static std::string edited(const std::string& family, const Edit& edit) {
    bj::value config = bj::parse(text(family));
    edit(config.get_object());
    return bj::serialize(config);
  }
  static std::vector<SafetensorsFile> tensors(const std::string& family) {
    std::vector<SafetensorsFile> files;
    files.push_back(SafetensorsFile::open(family_directory(family) / "model.safetensors").value());
    return files;
  }

  ModelFiles files;
  base::Result<CompiledModel> model;
};

Edit set(const char* key, bj::value value) {
  return [=](bj::object& config) { config[key] = value; };
}
Edit drop(std::initializer_list<const char*> keys) {
  return [keys = std::vector<const char*>(keys)](bj::object& config) {
    for (const char* key : keys) config.erase(key);
  };
}
Edit rope(const char* key, bj::value value) {
  return [=](bj::object& config) { config["rope_parameters"].get_object()[key] = value; };
}
Edit both(const Edit& first, const Edit& second) {
  return [=](bj::object& config) {
    first(config);
    second(config);
  };
}

struct Wrong {
  const char* name;
  const char* family;
  Edit edit;
  ErrorCode code;
  const char* mentions;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

class Refused : public testing::TestWithParam<Wrong> {};

TEST_P(Refused, WithItsOwnCodeAndTheKey) {
  const Model wrong(GetParam().family, GetParam().edit);
  ASSERT_FALSE(wrong.model);
  EXPECT_EQ(wrong.model.error().code, GetParam().code) << wrong.model.error().message;
  EXPECT_NE(wrong.model.error().message.find(GetParam().mentions), std::string::npos) << wrong.model.error().message;
}

constexpr auto kMissing = ErrorCode::kConfigKeyMissing;
constexpr auto kInvalid = ErrorCode::kConfigKeyInvalid;

const Wrong kBasics[] = {
    {"no_type", "llama3", drop({"model_type"}), kMissing, "model_type"},
    {"unknown_type", "llama3", set("model_type", "lama"), ErrorCode::kUnknownArchitecture, "llama, mistral"},
    {"unknown_inside", "mistral",
     [](bj::object& c) {
       c = {{"model_type", "mistral3"}, {"text_config", {{"model_type", "clip"}}}};
     },
     kInvalid, "clip"},
    {"no_width", "llama3", drop({"hidden_size"}), kMissing, "hidden_size"},
    {"no_layers", "llama3", drop({"num_hidden_layers"}), kMissing, "num_hidden_layers"},
    {"no_heads", "llama3", drop({"num_attention_heads"}), kMissing, "num_attention_heads"},
    {"no_ffn", "llama3", drop({"intermediate_size"}), kMissing, "intermediate_size"},
    {"no_context", "llama3", drop({"max_position_embeddings"}), kMissing, "max_position_embeddings"},
    {"zero_width", "llama3", set("hidden_size", 0), kInvalid, "hidden_size"},
    {"huge_layers", "llama3", set("num_hidden_layers", 1e9), kInvalid, "num_hidden_layers"},
    {"text_for_a_number", "llama3", set("hidden_size", "64"), kInvalid, "hidden_size"},
    {"kv_heads", "llama3", set("num_key_value_heads", 3), kInvalid, "num_key_value_heads"},
    {"heads_and_width", "qwen2", set("num_attention_heads", 6), kInvalid, "num_attention_heads"},
    {"eps", "llama3", set("rms_norm_eps", 2), kInvalid, "rms_norm_eps"},
    {"activation", "llama3", set("hidden_act", "relu"), kInvalid, "relu"},
    {"odd_rotation", "llama3", set("head_dim", 15), kInvalid, "15"},
    {"shape", "llama3", set("intermediate_size", 96), ErrorCode::kWeightShapeMismatch, "mlp.gate_proj.weight"},
    {"layer_past_the_end", "llama3", set("num_hidden_layers", 2), ErrorCode::kUnclaimedWeight, "layers.2."},
    {"layer_too_few", "llama3", set("num_hidden_layers", 4), ErrorCode::kMissingWeight, "layers.3."},
};
const Wrong kOthers[] = {
    {"a_cap_of_its_predecessor", "gemma3", set("attn_logit_softcapping", 50), kInvalid,
     "UNSUPPORTED key 'attn_logit_softcapping' = 50"},
    {"another_value", "gpt_oss", set("hidden_act", "gelu"), kInvalid, "(only \"silu\" is supported)"},
    {"of_a_rotation_that_is_not_scaled", "qwen3", rope("factor", 2), kInvalid,
     "UNSUPPORTED key 'rope_parameters.factor'"},
    {"vocabulary", "llama3", set("vocab_size", 385), kInvalid, "vocab_size = 385: must be 384"},
    {"head_dim_of_the_class", "deepseek_v3", set("head_dim", 16), kInvalid, "head_dim = 16: must be 8"},
    {"scaled_by_layer", "gpt2", set("scale_attn_by_inverse_layer_idx", true), kInvalid,
     "scale_attn_by_inverse_layer_idx"},
    {"norms_of_heads_with_biases", "phi", set("qk_layernorm", true), kInvalid, "qk_layernorm"},
    {"three_in_turn", "phimoe", set("num_experts_per_tok", 3), kInvalid, "num_experts_per_tok"},
    {"two_magnitudes", "phimoe", rope("long_mscale", 1.5), kInvalid, "long_mscale"},
    {"no_magnitude", "phimoe", [](bj::object& c) { c["rope_parameters"].get_object().erase("short_mscale"); }, kMissing,
     "short_mscale"},
    {"a_mixer_that_reaches_nowhere", "phimoe", set("router_jitter_noise", -0.5), kInvalid, "router_jitter_noise"},
    {"a_head_without_a_bias", "phimoe", set("lm_head_bias", false), ErrorCode::kUnclaimedWeight, "lm_head.bias"},
    {"windows_of_no_window", "qwen2", set("layer_types", {"full_attention", "sliding_attention", "full_attention"}),
     kInvalid, "layer_types"},
    {"chunks_of_another_layer", "llama4_far",
     set("layer_types", {"full_attention", "full_attention", "full_attention", "full_attention"}), kInvalid,
     "layer_types"},
};
const Wrong kRopes[] = {
    {"kind", "llama3", rope("rope_type", "ntk"), kInvalid, "ntk"},
    {"no_factor", "llama3", [](bj::object& c) { c["rope_parameters"].get_object().erase("factor"); }, kMissing,
     "factor"},
    {"negative_factor", "llama3", rope("factor", -1), kInvalid, "factor"},
    {"yarn_without_factor", "deepseek_v3", [](bj::object& c) { c["rope_parameters"].get_object().erase("factor"); },
     kMissing, "factor"},
    {"dynamic_without_factor", "qwen3", rope("rope_type", "dynamic"), kMissing, "factor"},
    {"frequencies", "llama3", rope("high_freq_factor", 1), kInvalid, "high_freq_factor"},
    {"base", "llama3", rope("rope_theta", 0.5), kInvalid, "rope_theta"},
    {"betas", "deepseek_v3", rope("beta_fast", 0), kInvalid, "beta_fast"},
    {"flat_keys_of_gemma3", "gemma3", rope("rope_theta", 10000), kInvalid, "full_attention"},
    {"share", "phi3", rope("partial_rotary_factor", 1.5), kInvalid, "partial_rotary_factor"},
    {"factors_too_few", "phi3", rope("long_factor", {1.5, 2.0}), kInvalid, "long_factor"},
    {"factor_not_positive", "phi3", rope("short_factor", {1.0, 1.0, 0.0, 1.0, 1.0, 1.0}), kInvalid, "divisor"},
};
const Wrong kWrongLayers[] = {
    {"types_too_few", "gemma2", set("layer_types", {"full_attention"}), kInvalid, "layer_types"},
    {"type_unknown", "gemma2", set("layer_types", {"a", "b", "c", "d"}), kInvalid, "layer_types"},
    {"mlp_types_too_few", "qwen3_moe", set("mlp_layer_types", {"sparse"}), kInvalid, "mlp_layer_types"},
    {"mlp_type_unknown", "qwen3_moe", set("mlp_layer_types", {"sparse", "dense", "?"}), kInvalid, "mlp_layer_types"},
    {"dense_behind_sparse", "deepseek_v3", set("mlp_layer_types", {"sparse", "dense", "sparse"}), kInvalid,
     "mlp_layer_types"},
    {"attention_at_no_layer", "lfm2", both(drop({"layer_types"}), set("full_attn_idxs", {1, 9})), kInvalid,
     "full_attn_idxs"},
    {"types_against_tensors", "lfm2", set("layer_types", {"full_attention", "conv", "conv", "full_attention"}),
     ErrorCode::kMissingWeight, "layers.0."},
};
const Wrong kMixers[] = {
    {"no_experts", "gpt_oss", drop({"num_local_experts"}), kMissing, "num_local_experts"},
    {"more_chosen_than_there", "qwen3_moe", set("num_experts_per_tok", 9), kInvalid, "num_experts_per_tok"},
    {"experts_against_tensors", "qwen3_moe", set("num_local_experts", 9), ErrorCode::kWeightShapeMismatch,
     "mlp.gate.weight"},
    {"groups", "deepseek_v3", set("n_group", 3), kInvalid, "n_group"},
    {"groups_used", "deepseek_v3", set("topk_group", 5), kInvalid, "topk_group"},
    {"groups_too_small", "deepseek_v3", set("topk_group", 1), kInvalid, "topk_group"},
    {"no_rank", "deepseek_v3", drop({"kv_lora_rank"}), kMissing, "kv_lora_rank"},
    {"latent_shape", "deepseek_v3", set("v_head_dim", 8), ErrorCode::kWeightShapeMismatch, "kv_b_proj"},
    {"mamba_heads", "granite_hybrid", set("mamba_n_heads", 7), kInvalid, "mamba_n_heads"},
    {"mamba_groups", "mamba2", set("n_groups", 3), kInvalid, "n_groups"},
    {"mamba_taps", "granite_hybrid", set("mamba_d_conv", 1), kInvalid, "conv_kernel"},
    {"mamba_expand", "mamba2", set("expand", -1), kInvalid, "expand"},
    {"step_limit", "mamba2", set("time_step_limit", {1.0, 0.5}), kInvalid, "time_step_limit"},
    {"step_limits", "mamba2", set("time_step_limit", {1.0}), kInvalid, "time_step_limit"},
    {"logits_divided_by_zero", "granite_hybrid", set("logits_scaling", 0), kInvalid, "logits_scaling"},
    {"taps", "lfm2", set("conv_L_cache", 1), kInvalid, "conv_L_cache"},
    {"topk_method", "deepseek_v2", set("topk_method", "noaux_tc"), kInvalid, "topk_method"},
    {"topk_method_v3", "deepseek_v3", set("topk_method", "greedy"), kInvalid, "topk_method"},
    {"mixer_activation", "mamba2", set("hidden_act", "gelu"), kInvalid, "hidden_act"},
    {"hybrid_activation", "granite_hybrid", set("hidden_act", "gelu"), kInvalid, "hidden_act"},
    {"bidirectional", "gemma3", set("use_bidirectional_attention", true), kInvalid, "1_Pooling/config.json"},
    {"bidirectional_2", "gemma2", set("use_bidirectional_attention", true), kInvalid, "use_bidirectional_attention"},
    {"biases_without_a_place", "phi3", set("attention_bias", true), kInvalid, "attention_bias"},
    {"query_scalar", "gemma2", set("query_pre_attn_scalar", -16), kInvalid, "query_pre_attn_scalar"},
};

// What a flag promises, or the family always has.
const Wrong kPromises[] = {
    {"attention_bias", "llama3", set("attention_bias", true), ErrorCode::kMissingWeight, "q_proj.bias"},
    {"mlp_bias", "llama3", set("mlp_bias", true), ErrorCode::kMissingWeight, "gate_proj.bias"},
    {"qwen3_bias", "qwen3", set("attention_bias", true), ErrorCode::kMissingWeight, "q_proj.bias"},
    {"projection_bias", "granite_hybrid", set("mamba_proj_bias", true), ErrorCode::kMissingWeight, "in_proj.bias"},
    {"conv_bias", "lfm2", set("conv_bias", true), ErrorCode::kMissingWeight, "conv.bias"},
    {"latent_bias", "deepseek_v3", set("attention_bias", true), ErrorCode::kMissingWeight, "bias"},
    {"untied_without_a_head", "llama_tied", set("tie_word_embeddings", false), ErrorCode::kMissingWeight, "lm_head"},
    {"biases_denied", "gpt_oss", set("attention_bias", false), ErrorCode::kUnclaimedWeight, "q_proj.bias"},
    {"query_compression", "deepseek_v2", set("q_lora_rank", 24), ErrorCode::kMissingWeight, "q_a_proj"},
};
const Wrong kOf2026[] = {
    {"values_that_are_there", "gemma4_wide", set("attention_k_eq_v", false), kInvalid, "attention_k_eq_v"},
    {"no_layer_with_a_cache", "gemma4_wide", set("num_kv_shared_layers", 4), kInvalid, "num_kv_shared_layers"},
    {"no_cache_of_its_kind", "gemma4_wide", set("num_kv_shared_layers", 3), kInvalid, "num_kv_shared_layers"},
    {"experts_without_a_number", "gemma4_wide", set("enable_moe_block", true), kMissing, "num_experts"},
    {"experts_that_are_denied", "gemma4_experts", set("enable_moe_block", false), ErrorCode::kUnclaimedWeight,
     "experts"},
    {"scores_of_no_kind", "deepseek_v4_mixed", set("scoring_func", "softmax"), kInvalid, "scoring_func"},
    {"more_shared_experts", "deepseek_v4_mixed", set("n_shared_experts", 2), kInvalid, "n_shared_experts"},
    {"groups_that_divide_no_heads", "deepseek_v4_mixed", set("o_groups", 3), kInvalid, "o_groups"},
    {"attention_of_no_kind", "deepseek_v4_mixed",
     set("layer_types",
         {"sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention"}),
     kInvalid, "full_attention"},
    {"routing_of_no_kind", "deepseek_v4_mixed", set("mlp_layer_types", {"moe", "moe", "dense", "moe", "moe"}), kInvalid,
     "mlp_layer_types"},
    {"limit_of_nothing", "deepseek_v4_mixed", set("swiglu_limit", 0), kInvalid, "swiglu_limit"},
    {"entries_without_a_rate", "deepseek_v4_mixed",
     set("compress_rates", {{"compressed_sparse_attention", 0}, {"heavily_compressed_attention", 5}}), kInvalid,
     "compress_rates"},
    {"biases_of_a_shared_expert", "deepseek_v4_mixed", set("mlp_bias", true), kInvalid, "mlp_bias"},
    {"rows_that_see_each_other", "gemma4_wide", set("use_bidirectional_attention", "all"), kInvalid,
     "use_bidirectional_attention"},
    {"numbers_of_no_layer", "gemma4_wide",
     [](bj::object& c) {
       c["per_layer_config"].as_object()["7"] = bj::object{{"head_dim", 32}};
     },
     kInvalid, "per_layer_config"},
    {"table_of_other_rows", "gemma4_wide", set("hidden_size_per_layer_input", 16), kInvalid,
     "vocab_size_per_layer_input"},
    {"activation_of_a_convolution", "kimi_linear_mixed", set("hidden_act", "gelu"), kInvalid, "hidden_act"},
    {"first_layer_without_an_index", "glm_moe_dsa_shared", set("indexer_types", {"shared", "full", "full", "shared"}),
     kInvalid, "indexer_types"},
    {"index_of_no_kind", "glm_moe_dsa_shared", set("indexer_types", {"full", "half", "full", "shared"}), kInvalid,
     "half"},
    {"index_missing", "glm_moe_dsa_shared", set("indexer_types", {"full", "full", "full", "shared"}),
     ErrorCode::kMissingWeight, "layers.1.self_attn.indexer"},
    {"layer_without_an_index", "deepseek_v32_first",
     set("layer_types", {"indexed_attention", "full_attention", "indexed_attention"}), kInvalid, "layer_types"},
    {"projections_of_no_width", "nemotron_h_latent", set("moe_latent_size", 0), kInvalid, "moe_latent_size"},
    {"projections_of_another_width", "nemotron_h_latent", set("moe_latent_size", 48), ErrorCode::kWeightShapeMismatch,
     "layers.1.mixer"},
    {"projections_that_are_denied", "nemotron_h_latent", set("moe_latent_size", nullptr), ErrorCode::kUnclaimedWeight,
     "latent_proj"},
    {"projections_with_biases", "nemotron_h_latent", set("mlp_bias", true), kInvalid, "mlp_bias"},
    {"index_narrower_than_its_rotation", "deepseek_v32_first", set("index_head_dim", 6), kInvalid, "index head"},
};

std::string name_of(const testing::TestParamInfo<Wrong>& test) { return test.param.name; }
INSTANTIATE_TEST_SUITE_P(Basics, Refused, testing::ValuesIn(kBasics), name_of);
INSTANTIATE_TEST_SUITE_P(Others, Refused, testing::ValuesIn(kOthers), name_of);
INSTANTIATE_TEST_SUITE_P(Ropes, Refused, testing::ValuesIn(kRopes), name_of);
INSTANTIATE_TEST_SUITE_P(Layers, Refused, testing::ValuesIn(kWrongLayers), name_of);
INSTANTIATE_TEST_SUITE_P(Mixers, Refused, testing::ValuesIn(kMixers), name_of);
INSTANTIATE_TEST_SUITE_P(Promises, Refused, testing::ValuesIn(kPromises), name_of);
INSTANTIATE_TEST_SUITE_P(Of2026, Refused, testing::ValuesIn(kOf2026), name_of);

// Moves the rotation's dictionary to where transformers 4 has it.
void rope_as_in_4(bj::object& config, const char* kind_key) {
  bj::object dictionary = config["rope_parameters"].get_object();
  config.erase("rope_parameters");
  config["rope_theta"] = dictionary["rope_theta"];
  dictionary[kind_key] = dictionary["rope_type"];
  if (std::string_view(kind_key) != "rope_type") dictionary.erase("rope_type");
  dictionary.erase("rope_theta");
  config["rope_scaling"] = dictionary["rope_type"] == "default" ? bj::value() : dictionary;
}

struct Spelling {
  const char* name;
  const char* family;
  Edit edit;
};
void PrintTo(const Spelling& spelling, std::ostream* out) { *out << spelling.name; }

class Spellings : public testing::TestWithParam<Spelling> {};

TEST_P(Spellings, MeanTheSame) {
  const Model as_saved(GetParam().family, [](bj::object&) {});
  const Model other(GetParam().family, GetParam().edit);
  ASSERT_TRUE(as_saved.model && other.model) << (other.model ? "" : other.model.error().message);
  EXPECT_EQ(as_saved.model->plans.decoder_prefill.plan_hash, other.model->plans.decoder_prefill.plan_hash);
  EXPECT_EQ(as_saved.model->config.context_tokens, other.model->config.context_tokens);
  ASSERT_EQ(as_saved.model->rope_tables.size(), other.model->rope_tables.size());
  for (std::size_t i = 0; i < other.model->rope_tables.size(); ++i) {
    EXPECT_EQ(as_saved.model->rope_tables[i].inv_freq, other.model->rope_tables[i].inv_freq);
    EXPECT_EQ(as_saved.model->rope_tables[i].attn_factor, other.model->rope_tables[i].attn_factor);
  }
}

const Spelling kSpellings[] = {
    {"llama_4", "llama3", [](bj::object& c) { rope_as_in_4(c, "rope_type"); }},
    {"llama_type", "llama3", [](bj::object& c) { rope_as_in_4(c, "type"); }},
    {"llama_no_head_dim", "llama3", set("head_dim", nullptr)},
    {"llama_nested", "llama3",
     [](bj::object& c) {
       const bj::object text = c;
       c = {{"model_type", "llama"}, {"text_config", text}};
     }},
    {"mistral_inside_mistral3", "mistral",
     [](bj::object& c) {
       bj::object text = c;
       c = {{"model_type", "mistral3"}, {"text_config", text}};
     }},
    {"qwen2_window_not_used", "qwen2", set("sliding_window", 24)},
    {"qwen3_moe_4", "qwen3_moe", both(drop({"num_local_experts"}), set("num_experts", 8))},
    {"qwen3_moe_types", "qwen3_moe",
     both(drop({"mlp_only_layers", "decoder_sparse_step"}), set("mlp_layer_types", {"sparse", "dense", "sparse"}))},
    {"phi3_su", "phi3",
     [](bj::object& c) {
       rope_as_in_4(c, "type");
       c["rope_scaling"].get_object()["type"] = "su";
     }},
    {"phi3_yarn", "phi3", [](bj::object& c) { c["rope_parameters"].get_object()["rope_type"] = "yarn"; }},
    {"phi3_no_window", "phi3", set("sliding_window", 0)},
    {"gemma2_4", "gemma2",
     both([](bj::object& c) { rope_as_in_4(c, "rope_type"); },
          drop({"layer_types", "hidden_activation", "final_logit_softcapping"}))},
    {"gemma2_hidden_act_is_not_read", "gemma2", both(drop({"hidden_activation"}), set("hidden_act", "relu"))},
    {"gemma3_not_bidirectional", "gemma3", set("use_bidirectional_attention", nullptr)},
    {"deepseek_v2_greedy", "deepseek_v2", set("topk_method", "greedy")},
    {"gemma3_4", "gemma3",
     [](bj::object& c) {
       c.erase("rope_parameters");
       c.erase("layer_types");
       c.erase("_sliding_window_pattern");
       c["rope_scaling"] = nullptr;
       c["rope_theta"] = 1e6;
       c["rope_local_base_freq"] = 1e4;
       c["sliding_window_pattern"] = 6;
     }},
    {"gemma3_bare", "gemma3",
     [](bj::object& c) {
       for (const char* key : {"rope_parameters", "layer_types", "_sliding_window_pattern", "final_logit_softcapping"})
         c.erase(key);
     }},
    {"gpt_oss_bare", "gpt_oss", drop({"rope_parameters", "layer_types", "swiglu_alpha", "swiglu_limit"})},
    {"gpt_oss_4", "gpt_oss",
     both([](bj::object& c) { rope_as_in_4(c, "rope_type"); },
          both(set("experts_per_token", 2), set("initial_context_length", 4096)))},
    {"granite_4", "granite_hybrid",
     [](bj::object& c) {
       c["layers_block_type"] = {"mamba", "attention", "mamba", "attention"};
       c.erase("layer_types");
       c["mamba_d_head"] = "auto";
       c["time_step_limit"] = nullptr;
     }},
    {"mamba2_bare", "mamba2", drop({"time_step_limit"})},
    {"lfm2_4", "lfm2",
     [](bj::object& c) {
       c.erase("layer_types");
       c["full_attn_idxs"] = {1, 3};
       c["block_ff_dim"] = 160;
       c["intermediate_size"] = 9999;
       c.erase("tie_word_embeddings");
       c["tie_embedding"] = true;
     }},
    {"lfm2_adjusted", "lfm2",  // int(2 * 225 / 3) = 150, up to the next multiple of 32
     [](bj::object& c) {
       c["intermediate_size"] = 225;
       c["block_auto_adjust_ff_dim"] = true;
       c["block_ffn_dim_multiplier"] = 1.0;
       c["block_multiple_of"] = 32;
     }},
    {"deepseek_v3_4", "deepseek_v3",
     [](bj::object& c) {
       rope_as_in_4(c, "type");
       c["scoring_func"] = "sigmoid";
       c["topk_method"] = "noaux_tc";
       c.erase("head_dim");
       c.erase("qk_head_dim");
       c.erase("rope_interleave");
     }},
    {"glm_sparse_attention", "glm_moe_dsa_shared", set("layer_types", bj::array(4, "deepseek_sparse_attention"))},
    {"deepseek_v2_groups_not_asked_for", "deepseek_v2", both(set("n_group", 4), set("norm_topk_prob", true))},
};
INSTANTIATE_TEST_SUITE_P(Hf, Spellings, testing::ValuesIn(kSpellings),
                         [](const testing::TestParamInfo<Spelling>& test) { return std::string(test.param.name); });

TEST(Spellings, LettersOfHybrids) {
  if (!family_model("nemotron_h", Format::kHuggingFace)) GTEST_SKIP() << "no fixture of nemotron_h";
  const Model as_saved("nemotron_h", [](bj::object&) {});
  const Edit unsaid = drop({"layers_block_type"});
  const Model letters("nemotron_h", both(unsaid, set("hybrid_override_pattern", "M-*E")));
  ASSERT_TRUE(as_saved.model && letters.model) << letters.model.error().message;
  EXPECT_EQ(as_saved.model->plans.decoder_prefill.plan_hash, letters.model->plans.decoder_prefill.plan_hash);
  const Model wrong("nemotron_h", both(unsaid, set("hybrid_override_pattern", "M-*X")));
  ASSERT_FALSE(wrong.model);
  EXPECT_NE(wrong.model.error().message.find("hybrid_override_pattern"), std::string::npos);
}

// What a family makes of a configuration alone.
base::Result<engine::models::ModelConfig> config_of(const std::string& json) {
  const ModelFiles files = ModelFiles::from_hugging_face(HfConfig::parse(json).value(), {}).value();
  return TRY(engine::models::find_family(files))->read_hf(TRY(engine::models::HfKeys::of(files)));
}

// In OLMo 3 a dictionary that is not by type of layer is of the layers without a window.
TEST(Ropes, OfOlmo3ScaleTheLayersWithoutAWindow) {
  using engine::models::RopeKind;
  const auto of = [](const std::string& rope) {
    return config_of(R"({"model_type": "olmo3", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
                         "intermediate_size": 96, "max_position_embeddings": 65536)" +
                     rope + "}");
  };
  const std::string yarn = R"("rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 8192)";
  const auto flat = of(R"(, "rope_theta": 300000, "rope_scaling": {)" + yarn + "}");
  ASSERT_TRUE(flat) << flat.error().message;
  ASSERT_EQ(flat->ropes.size(), 2U);
  EXPECT_EQ(flat->layers[0].rope, 1);
  EXPECT_EQ(flat->layers[3].rope, 0);
  EXPECT_EQ(flat->ropes[0].kind, RopeKind::kYarn);
  EXPECT_EQ(flat->ropes[1].kind, RopeKind::kPlain);
  EXPECT_EQ(flat->ropes[1].attn_factor, 1);
  for (const auto& rope : flat->ropes) EXPECT_EQ(rope.base, 300000);
  const auto nested = of(R"(, "rope_parameters": {"full_attention": {"rope_theta": 300000, )" + yarn +
                         R"(}, "sliding_attention": {"rope_theta": 20000}})");
  ASSERT_TRUE(nested) << nested.error().message;
  EXPECT_EQ(nested->ropes[0].kind, RopeKind::kYarn);
  EXPECT_EQ(nested->ropes[1].kind, RopeKind::kPlain);
  EXPECT_EQ(nested->ropes[1].base, 20000);
  const auto bare = of("");
  ASSERT_TRUE(bare) << bare.error().message;
  for (const auto& rope : bare->ropes) EXPECT_EQ(rope.base, 500000);
}

// time_step_min says how training began; steps are clamped by time_step_limit alone.
TEST(TimeSteps, OfNemotronHHaveNoFloor) {
  const auto of = [](const std::string& steps) {
    return config_of(R"({"model_type": "nemotron_h", "hidden_size": 64, "layers_block_type": ["mamba", "attention"],
                         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
                         "max_position_embeddings": 512, "ssm_state_size": 16, "mamba_num_heads": 8, "n_groups": 2,
                         "mamba_head_dim": 16, "conv_kernel": 4)" +
                     steps + "}");
  };
  for (const char* steps : {"", R"(, "time_step_min": 0.001)", R"(, "time_step_limit": [0.0, Infinity])"}) {
    const auto config = of(steps);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->mamba.dt_min, 0) << steps;
    EXPECT_TRUE(std::isinf(config->mamba.dt_max)) << steps;
  }
  EXPECT_EQ(of(R"(, "time_step_limit": [0.01, 0.5])")->mamba.dt_min, 0.01F);
}

// Not legal JSON, but what transformers 4 writes.
TEST(Spellings, BareInfinity) {
  std::string json = Model::text("mamba2");
  const std::size_t begin = json.find('{', 1);
  ASSERT_NE(begin, std::string::npos);
  json.replace(begin, json.find('}', begin) + 1 - begin, "Infinity");
  const Model as_saved("mamba2", [](bj::object&) {});
  const Model bare("mamba2", json);
  ASSERT_TRUE(bare.model) << bare.model.error().message;
  EXPECT_EQ(as_saved.model->plans.decoder_prefill.plan_hash, bare.model->plans.decoder_prefill.plan_hash);
}

// A layer past the last predicts further tokens: it is left out, and that is said.
TEST(Notes, SayWhatOfTheFilesIsNotUsed) {
  const Model whole("deepseek_v3", set("num_hidden_layers", 3)), shorter("deepseek_v3", set("num_hidden_layers", 2));
  ASSERT_TRUE(whole.model && shorter.model);
  EXPECT_TRUE(whole.model->notes.empty());
  ASSERT_EQ(shorter.model->notes.size(), 1U);
  EXPECT_NE(shorter.model->notes[0].find("predict further tokens"), std::string::npos) << shorter.model->notes[0];
}

// The word means the exact function, in Gemma too.
TEST(Activations, GeluIsExact) {
  const Model exact("gemma2", set("hidden_activation", "gelu"));
  ASSERT_TRUE(exact.model) << exact.model.error().message;
  EXPECT_EQ(exact.model->config.ffn.activation, engine::plan::Activation::kGeluErf);
}

// The scale of latent attention counts mscale_all_dim under every kind of rotation, also one that has no use for its factor.
TEST(LatentScale, CountsTheFactorOfADynamicRotation) {
  const Edit dynamic = [](bj::object& c) {
    c["rope_parameters"] = {{"rope_type", "dynamic"}, {"rope_theta", 10000.0}, {"factor", 40}};
  };
  const Model without("deepseek_v3", both(dynamic, rope("mscale_all_dim", 0)));
  const Model with("deepseek_v3", both(dynamic, both(rope("mscale_all_dim", 1), rope("factor", 16))));
  ASSERT_TRUE(without.model && with.model);
  const double magnitude = 1 + 0.1 * std::log(16.0);
  EXPECT_NEAR(with.model->config.mla.scale, without.model->config.mla.scale * magnitude * magnitude, 1e-6);
}

// llama3 has a head that differs from its embeddings: the flag does not make it useless, as it does not in transformers 5.
TEST(TiedHead, OfTheFileCountsAndIsNoted) {
  const Model untied("llama3", [](bj::object&) {});
  const Model tied("llama3", set("tie_word_embeddings", true));
  ASSERT_TRUE(tied.model && untied.model);
  EXPECT_EQ(tied.model->plans.decoder_prefill.plan_hash, untied.model->plans.decoder_prefill.plan_hash);
  EXPECT_EQ(tied.model->plans.decoder_prefill.diagnostics.size(), 1U);
  EXPECT_TRUE(
      std::ranges::any_of(tied.model->tensors, [](const auto& tensor) { return tensor.name == "lm_head.weight"; }));
}

// A family's GGUF fixture with other metadata and tensors.
struct GgufEdit {
  std::map<std::string, GgufValue> keys;                       // set instead of, or beside, the usual ones
  std::map<std::string, std::vector<std::int32_t>> lists;      // the same
  std::vector<std::string> without;                            // keys and tensors left out
  std::map<std::string, const engine::io::FileTensor*> extra;  // tensors from elsewhere
};

struct GgufModel {
  GgufModel(const std::string& family, const GgufEdit& edit)
      : bytes(rewritten(GgufFile::open(*family_model(family, Format::kGguf)).value(), edit)),
        files(ModelFiles::from_gguf(GgufFile::parse(bytes, family).value()).value()),
        model(engine::models::compile_model(files, DType::kF32)) {}

  static std::vector<std::byte> rewritten(const GgufFile& file, const GgufEdit& edit) {
    const auto replaced = [&](std::string_view name) {
      const std::string key(name);
      return edit.keys.contains(key) || edit.lists.contains(key) ||
             std::find(edit.without.begin(), edit.without.end(), key) != edit.without.end();
    };
    GgufWriter writer;
    for (const auto& entry : file.metadata()) {
      if (!replaced(entry.key) && !entry.key.starts_with("tokenizer.")) writer.put(entry.key, entry.value);
    }
    for (const auto& [key, value] : edit.keys) writer.put(key, value);
    for (const auto& [key, values] : edit.lists) writer.put_i32s(key, values);
    for (const auto& tensor : file.tensors()) {
      if (replaced(tensor.name)) continue;
      writer.add_tensor(
          {std::string(tensor.name), tensor.dtype, {tensor.dims.begin(), tensor.dims.begin() + tensor.rank}},
          tensor.data);
    }
    for (const auto& [name, tensor] : edit.extra) {
      std::vector<std::uint64_t> dims(tensor->shape().rbegin(), tensor->shape().rend());
      writer.add_tensor({name, *engine::io::dtype_of(tensor->type), dims}, tensor->data);
    }
    return writer.to_bytes().value();
  }

  std::vector<std::byte> bytes;
  ModelFiles files;
  base::Result<CompiledModel> model;
};

struct WrongGguf {
  const char* name;
  const char* family;
  GgufEdit edit;
  ErrorCode code;
  const char* mentions;
};
void PrintTo(const WrongGguf& wrong, std::ostream* out) { *out << wrong.name; }

class RefusedGguf : public testing::TestWithParam<WrongGguf> {};

TEST_P(RefusedGguf, WithItsOwnCodeAndTheKey) {
  const GgufModel wrong(GetParam().family, GetParam().edit);
  ASSERT_FALSE(wrong.model);
  EXPECT_EQ(wrong.model.error().code, GetParam().code) << wrong.model.error().message;
  EXPECT_NE(wrong.model.error().message.find(GetParam().mentions), std::string::npos) << wrong.model.error().message;
}

GgufEdit without(const char* name) { return {.keys = {}, .lists = {}, .without = {name}, .extra = {}}; }
GgufEdit with(const char* key, GgufValue value) {
  return {.keys = {{key, value}}, .lists = {}, .without = {}, .extra = {}};
}
GgufEdit with_list(const char* key, std::vector<std::int32_t> values) {
  return {.keys = {}, .lists = {{key, std::move(values)}}, .without = {}, .extra = {}};
}
constexpr std::uint32_t operator""_u32(unsigned long long value) { return static_cast<std::uint32_t>(value); }

const WrongGguf kWrongGguf[] = {
    {"heads_per_layer", "granite_hybrid", with_list("granitehybrid.attention.head_count_kv", {0, 2}), kInvalid,
     "each of 4 layers"},
    {"negative_heads", "lfm2", with_list("lfm2.attention.head_count_kv", {0, -2, 0, 2}), kInvalid, "head_count_kv"},
    {"no_inner_size", "granite_hybrid", without("granitehybrid.ssm.inner_size"), kMissing, "ssm.inner_size"},
    {"mamba_heads", "mamba2", with("mamba2.ssm.time_step_rank", 7_u32), kInvalid, "ssm.time_step_rank"},
    {"logits_divided_by_zero", "granite_hybrid", with("granitehybrid.logit_scale", 0.0F), kInvalid, "logit_scale"},
    {"no_taps", "lfm2", without("lfm2.shortconv.l_cache"), kMissing, "shortconv.l_cache"},
    {"no_latent_rank", "deepseek_v3", without("deepseek2.attention.kv_lora_rank"), kMissing, "kv_lora_rank"},
    {"no_room_beside_rotation", "deepseek_v3", with("deepseek2.attention.key_length_mla", 8_u32), kInvalid,
     "key_length_mla"},
    {"gate_unknown", "deepseek_v3", with("deepseek2.expert_gating_func", 7_u32), kInvalid, "expert_gating_func"},
    {"groups", "deepseek_v3", with("deepseek2.expert_group_count", 3_u32), kInvalid, "expert_group_count"},
    {"no_experts", "qwen3_moe_sparse", without("qwen3moe.expert_count"), kMissing, "expert_count"},
    {"more_chosen_than_there", "gpt_oss", with("gpt-oss.expert_used_count", 5_u32), kInvalid, "expert_used_count"},
    {"pattern_too_short", "gpt_oss", with_list("gpt-oss.attention.sliding_window_pattern", {1, 0}), kInvalid,
     "sliding_window_pattern"},
    {"pattern_zero", "gemma3", with("gemma3.attention.sliding_window_pattern", 0_u32), kInvalid,
     "sliding_window_pattern"},
    {"local_base", "gemma3", with("gemma3.rope.freq_base_swa", 0.5F), kInvalid, "0.5"},
    {"long_rotation_of_what", "phi3", without("phi3.rope.scaling.original_context_length"), kMissing,
     "original_context_length"},
    {"qwen2_without_a_bias", "qwen2", without("blk.1.attn_k.bias"), ErrorCode::kMissingWeight, "blk.1.attn_k.bias"},
    {"half_a_long_rotation", "phi3", without("rope_factors_long.weight"), ErrorCode::kMissingWeight, "rope_factors"},
    {"experts_against_tensors", "gpt_oss", with("gpt-oss.expert_count", 5_u32), ErrorCode::kWeightShapeMismatch,
     "ffn_gate_inp"},
};
INSTANTIATE_TEST_SUITE_P(Families, RefusedGguf, testing::ValuesIn(kWrongGguf),
                         [](const testing::TestParamInfo<WrongGguf>& test) { return std::string(test.param.name); });

TEST(GgufSpellings, PatternsOfWindows) {
  const GgufModel as_saved("gemma3", {});
  const std::byte flags[] = {std::byte{1}, std::byte{1}, std::byte{1}, std::byte{1}, std::byte{1}, std::byte{0}};
  const engine::io::GgufArray list{.element_type = engine::io::GgufType::kBool, .count = 6, .bytes = flags};
  for (const GgufEdit& edit :
       {with("gemma3.attention.sliding_window_pattern", 6_u32), with("gemma3.attention.sliding_window_pattern", list),
        with_list("gemma3.attention.sliding_window_pattern", {1, 1, 1, 1, 1, 0})}) {
    const GgufModel other("gemma3", edit);
    ASSERT_TRUE(other.model) << other.model.error().message;
    EXPECT_EQ(as_saved.model->plans.decoder_prefill.plan_hash, other.model->plans.decoder_prefill.plan_hash);
  }
  const GgufModel all_global("gemma3", with("gemma3.attention.sliding_window_pattern", 1_u32));
  EXPECT_NE(as_saved.model->plans.decoder_prefill.plan_hash, all_global.model->plans.decoder_prefill.plan_hash);
}

// Files of the first converter do not say them.
TEST(GgufSpellings, CapsOfGemma2) {
  const GgufEdit unsaid{.keys = {},
                        .lists = {},
                        .without = {"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping"},
                        .extra = {}};
  const GgufModel model("gemma2", unsaid);
  ASSERT_TRUE(model.model) << model.model.error().message;
  EXPECT_EQ(model.model->config.attention.logit_softcap, 50);
  EXPECT_EQ(model.model->config.logit_softcap, 30);
}

// Which layers of GLM-5 have an index, weights tell where no key does.
TEST(GgufSpellings, IndexesOfGlm) {
  if (!family_model("glm_moe_dsa", Format::kGguf)) GTEST_SKIP() << "no fixture of glm_moe_dsa";
  GgufEdit edit = without("glm-dsa.attention.indexer.types");
  for (const char* tensor : {"attn_q_b.weight", "attn_k.weight", "k_norm.weight", "k_norm.bias", "proj.weight"})
    edit.without.push_back(std::string("blk.1.indexer.") + tensor);
  const GgufModel model("glm_moe_dsa", edit);
  ASSERT_TRUE(model.model) << model.model.error().message;
  const auto indexes = [](const engine::plan::Instruction& insn) {
    return insn.opcode == engine::plan::Opcode::kLightningIndex;
  };
  EXPECT_EQ(std::ranges::count_if(model.model->plans.decoder_prefill.plan.instructions, indexes),
            static_cast<std::ptrdiff_t>(model.model->config.layers.size() - 1));
}

// Old files have the two halves of latent attention in one matrix, as the library does.
TEST(GgufSpellings, LatentAttentionInOneMatrix) {
  const Model library("deepseek_v3", [](bj::object&) {});
  GgufEdit edit;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".attn_";
    for (const char* half : {"k_b.weight", "v_b.weight"}) edit.without.push_back(block + half);
    edit.extra[block + "kv_b.weight"] =
        library.files.find_tensor("model.layers." + std::to_string(layer) + ".self_attn.kv_b_proj.weight");
  }
  const GgufModel as_saved("deepseek_v3", {});
  const GgufModel old("deepseek_v3", edit);
  ASSERT_TRUE(old.model) << old.model.error().message;
  ASSERT_EQ(as_saved.model->tensors.size(), old.model->tensors.size());
  const auto bytes_of = [](const engine::models::BoundTensor& tensor) {
    std::vector<std::byte> bytes(tensor.bytes_count());
    EXPECT_TRUE(tensor.read(0, bytes)) << tensor.name;
    return bytes;
  };
  for (std::size_t i = 0; i < old.model->tensors.size(); ++i) {
    const auto& expected = as_saved.model->tensors[i];
    const auto& got = old.model->tensors[i];
    EXPECT_EQ(expected.stored.shape, got.stored.shape) << got.name;
    EXPECT_EQ(bytes_of(expected), bytes_of(got)) << got.name;
  }
}

}  // namespace
}  // namespace llorch::golden
