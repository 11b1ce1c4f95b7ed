// No key is ignored: each is read, changes nothing in any model, or refuses the model by its name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "base/file.h"
#include "engine/io/gguf_writer.h"
#include "engine/models/config/outputs.h"
#include "engine/models/gguf_export/model_keys.h"
#include "engine/models/model.h"
#include "engine/models/plan_compiler/dump.h"
#include "engine/models/registry.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

namespace bj = boost::json;
using engine::io::GgufFile;
using engine::io::HfConfig;
using engine::io::ModelFiles;
using engine::io::SafetensorsFile;
using engine::models::Family;
using engine::models::HfKeys;

// The refusal of other keys, or empty. Other refusals of a configuration without weights do not count.
std::string other_keys(const std::string& json) {
  const ModelFiles files = ModelFiles::from_hugging_face(HfConfig::parse(json).value(), {}).value();
  const auto family = engine::models::find_family(files);
  if (!family) return family.error().message;
  const auto keys = HfKeys::of(files);
  if (!keys) return keys.error().message;
  auto config = (*family)->read_hf(*keys);
  if (!config) return config.error().message;
  const engine::models::WeightNames names(files, **family);
  // That nothing says how an encoder's rows are pooled is no key's fault.
  const auto outputs = engine::models::read_outputs(*keys, names, *config);
  if (!outputs && config->attention.causal) return outputs.error().message;
  const auto refused = engine::models::refuse_other_keys(*keys, (*family)->name, (*family)->hf_others);
  return refused ? "" : refused.error().message;
}

bj::value parse_file(const std::filesystem::path& path) { return bj::parse(base::read_file(path, 4 << 20).value()); }

// Every object of `value`, itself first, with its path.
void objects(bj::value& value, const std::string& path, std::vector<std::pair<std::string, bj::object*>>& out) {
  bj::object* object = value.if_object();
  if (object == nullptr) return;
  out.emplace_back(path, object);
  for (auto& item : *object) objects(item.value(), path + std::string(item.key()) + ".", out);
}

TEST(Keys, WhatAClassWritesByItselfIsKnown) {
  bj::value defaults = parse_file(repository() / "tests/golden/class_defaults.json");
  for (auto& [model_type, config] : defaults.get_object()) {
    SCOPED_TRACE(std::string(model_type));
    if (model_type == "apertus") continue;  // its configuration is partly in its weights
    EXPECT_EQ(other_keys(bj::serialize(config)), "");
  }
}

// A key that is left out has the value that its class has: as every class is by itself, without each of its keys. But for those whose
// numbers are shapes too: a file that leaves them out is refused by a weight. And but for classes whose rotation is scaled by itself.
TEST(Keys, WhatIsLeftOutIsAsItsClassHasIt) {
  const auto read =
      [](const bj::object& config) -> std::optional<std::pair<const Family*, engine::models::ModelConfig>> {
    const ModelFiles files = ModelFiles::from_hugging_face(HfConfig::parse(bj::serialize(config)).value(), {}).value();
    const Family* family = engine::models::find_family(files).value();
    auto result = family->read_hf(HfKeys::of(files).value());
    if (!result) return std::nullopt;  // the key is required, or the numbers are in weights
    return std::pair(family, *std::move(result));
  };
  const bj::value defaults = parse_file(repository() / "tests/golden/class_defaults.json");
  for (const auto& [model_type, value] : defaults.get_object()) {
    const bj::object& whole = value.get_object();
    const auto wanted = read(whole);
    if (!wanted) continue;
    for (const auto& [key, unused] : whole) {
      static const std::set<std::string_view> kOfShapes{
          "model_type",  "head_dim",        "num_key_value_heads", "q_lora_rank",          "n_shared_experts",
          "num_experts", "mlp_layer_types", "num_local_experts",   "first_k_dense_replace"};
      const bool scaled = model_type == "lfm3" || model_type == "ministral3";
      if (kOfShapes.contains(key) || (scaled && key == "rope_parameters")) continue;
      SCOPED_TRACE(std::string(model_type) + " without " + std::string(key));
      bj::object rest = whole;
      rest.erase(key);
      const auto got = read(rest);
      if (!got) continue;
      for (const std::string& lost : engine::models::compare(*wanted->first, wanted->second, got->second).lost)
        ADD_FAILURE() << lost;
    }
  }
}

// Why a fixture with this configuration is refused, or empty.
std::string refusal_of(const std::filesystem::path& directory, const bj::value& config) {
  std::vector<SafetensorsFile> tensors;
  tensors.push_back(SafetensorsFile::open(directory / "model.safetensors").value());
  const ModelFiles files =
      ModelFiles::from_hugging_face(HfConfig::parse(bj::serialize(config)).value(), std::move(tensors)).value();
  const auto model = engine::models::compile_model(files, engine::plan::DType::kF32);
  return model ? "" : model.error().message;
}

// Moonshot's own files say beside what the library writes.
TEST(Keys, WhatItsMakerSaysOfKimiLinearIsKnown) {
  const auto directory = family_directory("kimi_linear_mixed");
  bj::value config = parse_file(directory / "config.json");
  bj::object& keys = config.get_object();
  for (const auto& [key, value] : bj::object{{"mla_use_nope", true},
                                             {"moe_layer_freq", 1},
                                             {"moe_router_activation_func", "sigmoid"},
                                             {"num_nextn_predict_layers", 0},
                                             {"rope_scaling", nullptr},
                                             {"rope_theta", 10000.0},
                                             {"use_grouped_topk", true}})
    keys[key] = value;
  EXPECT_EQ(refusal_of(directory, config), "");
  keys["moe_router_activation_func"] = "softmax";
  EXPECT_NE(refusal_of(directory, config).find("moe_router_activation_func"), std::string::npos);
}

// Of GLM 4.7 Flash's own files, whose class has the first layer dense by itself.
TEST(Keys, WhatItsMakerSaysOfGlmFlashIsKnown) {
  const auto directory = family_directory("glm4_moe_lite");
  bj::value config = parse_file(directory / "config.json");
  bj::object& keys = config.get_object();
  keys.erase("mlp_layer_types");
  keys["rope_parameters"].get_object()["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(refusal_of(directory, config), "");
  keys.erase("rope_parameters");
  for (const auto& [key, value] : bj::object{{"first_k_dense_replace", 1},
                                             {"num_nextn_predict_layers", 1},
                                             {"partial_rotary_factor", 1.0},
                                             {"rope_scaling", nullptr},
                                             {"rope_theta", 1000000},
                                             {"topk_method", "noaux_tc"}})
    keys[key] = value;
  EXPECT_EQ(refusal_of(directory, config), "");
  keys["partial_rotary_factor"] = 0.5;
  EXPECT_NE(refusal_of(directory, config).find("partial_rotary_factor"), std::string::npos);
}

// OpenAI's and Microsoft's own files, in words of their time.
TEST(Keys, WhatItsMakerSaysOfGpt2AndPhiIsKnown) {
  const auto refusal = [](const char* family, std::initializer_list<const char*> without, const bj::object& with) {
    const auto directory = family_directory(family);
    bj::value config = parse_file(directory / "config.json");
    for (const char* key : without) config.get_object().erase(key);
    for (const auto& [key, value] : with) config.get_object()[key] = value;
    return refusal_of(directory, config);
  };
  EXPECT_EQ(refusal("gpt2", {"scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"},
                    {{"n_ctx", 512},
                     {"_num_labels", 1},
                     {"summary_activation", nullptr},
                     {"task_specific_params", {{"text-generation", {{"do_sample", true}}}}}}),
            "");
  EXPECT_EQ(refusal("phi", {"rope_parameters"},
                    {{"partial_rotary_factor", 0.5}, {"rope_scaling", nullptr}, {"rope_theta", 10000.0}}),
            "");
  bj::object scaling = parse_file(family_directory("phimoe") / "config.json").at("rope_parameters").as_object();
  scaling.erase("rope_type"), scaling.erase("rope_theta");
  scaling["type"] = "longrope";
  EXPECT_EQ(refusal("phimoe", {"rope_parameters"},
                    {{"rope_scaling", scaling}, {"rope_theta", 10000.0}, {"hidden_dropout", 0.0}}),
            "");
}

// Models without a mixture may say how one would be: dense Granite 4.0 H, DeepSeek V2 of dense layers alone.
TEST(Keys, OfMixturesChangeNothingInAModelWithoutOne) {
  bj::value defaults = parse_file(repository() / "tests/golden/class_defaults.json");
  bj::object granite = defaults.at("granitemoehybrid").as_object();
  granite["num_local_experts"] = granite["num_experts_per_tok"] = 0;
  EXPECT_EQ(other_keys(bj::serialize(granite)), "");
  bj::object deepseek = defaults.at("deepseek_v2").as_object();
  deepseek["first_k_dense_replace"] = deepseek.at("num_hidden_layers");
  EXPECT_EQ(other_keys(bj::serialize(deepseek)), "");
}

// Xiaomi's own files of MiMo V2 say the same in other words: the plans are one.
TEST(Keys, WhatItsMakerSaysOfMimoIsWhatTheLibrarySays) {
  const auto directory = family_directory("mimo_v2_flash");
  const auto plan_of = [&](const bj::value& config) {
    std::vector<SafetensorsFile> tensors;
    tensors.push_back(SafetensorsFile::open(directory / "model.safetensors").value());
    const ModelFiles files =
        ModelFiles::from_hugging_face(HfConfig::parse(bj::serialize(config)).value(), std::move(tensors)).value();
    const auto model = engine::models::compile_model(files, engine::plan::DType::kF32);
    if (!model) return model.error().message;
    std::string text = engine::models::dump(model->plans.decoder_prefill);
    for (const engine::models::RopeTableData& table : model->rope_tables) {
      for (const float turn : table.inv_freq) text += fmt::format("{} ", turn);
    }
    return text;
  };
  bj::value config = parse_file(directory / "config.json");
  const std::string of_library = plan_of(config);
  ASSERT_NE(of_library.find("window=24"), std::string::npos) << of_library;
  bj::object& keys = config.get_object();
  for (const char* key : {"layer_types", "mlp_layer_types", "rms_norm_eps", "rope_parameters", "sliding_window"})
    keys.erase(key);
  for (const auto& [key, value] : bj::object{{"add_full_attention_sink_bias", false},
                                             {"add_swa_attention_sink_bias", true},
                                             {"attention_chunk_size", 128},
                                             {"attention_projection_layout", "fused_qkv"},
                                             {"audio_config", {{"audio_channels", 20}}},
                                             {"hybrid_block_size", nullptr},
                                             {"hybrid_layer_pattern", {0, 1, 0, 1}},
                                             {"layernorm_epsilon", 1e-5},
                                             {"moe_layer_freq", {0, 1, 1, 1}},
                                             {"n_shared_experts", nullptr},
                                             {"partial_rotary_factor", 0.334},
                                             {"processor_config", {{"rope_type", "rope"}}},
                                             {"rope_scaling", {{"rope_type", "default"}, {"type", "default"}}},
                                             {"rope_theta", 5000000},
                                             {"routed_scaling_factor", nullptr},
                                             {"scoring_func", "sigmoid"},
                                             {"sliding_window", 23},
                                             {"sliding_window_size", 23},
                                             {"swa_head_dim", 24},
                                             {"swa_num_attention_heads", 4},
                                             {"swa_num_key_value_heads", 4},
                                             {"swa_rope_theta", 10000},
                                             {"swa_v_head_dim", 16},
                                             {"topk_method", "noaux_tc"},
                                             {"vision_config", {{"depth", 28}}},
                                             {"vision_model_type", "mimovl"}})
    keys[key] = value;
  EXPECT_EQ(plan_of(config), of_library);
  for (const auto& [key, value] : bj::object{{"add_full_attention_sink_bias", true},
                                             {"attention_projection_layout", "fused_kv"},
                                             {"hybrid_layer_pattern", {0, 1, 0}},
                                             {"moe_layer_freq", {0, 1, 1}},
                                             {"swa_head_dim", 16},
                                             {"swa_v_head_dim", 24}}) {
    bj::value other = config;
    other.get_object()[key] = value;
    EXPECT_NE(plan_of(other).find(std::string(key)), std::string::npos) << plan_of(other);
  }
  for (const auto& [key, value] : bj::object{{"swa_rope_theta", 20000},
                                             {"layernorm_epsilon", 1e-6},
                                             {"sliding_window_size", 24},
                                             {"partial_rotary_factor", 0.5}}) {
    bj::value other = config;
    other.get_object()[key] = value;
    EXPECT_NE(plan_of(other), of_library) << key;
  }
}

class OfFamily : public testing::TestWithParam<std::string> {};

TEST_P(OfFamily, AnUnknownKeyOfConfigJsonRefusesTheModelAtEveryDepth) {
  const auto directory = family_directory(GetParam());
  if (!std::filesystem::exists(directory / "config.json")) GTEST_SKIP() << "no Hugging Face fixture";
  bj::value config = parse_file(directory / "config.json");
  ASSERT_EQ(refusal_of(directory, config), "");
  for (std::size_t n = 0;; ++n) {
    bj::value edited = config;
    std::vector<std::pair<std::string, bj::object*>> all;
    objects(edited, "", all);
    if (n == all.size()) break;
    const auto& [path, object] = all[n];
    // These are read elsewhere, or hold words for people.
    if (path.starts_with("quantization_config") || path.starts_with("id2label") || path.starts_with("label2id"))
      continue;
    (*object)["llorch_unknown"] = 1;
    const std::string refusal = refusal_of(directory, edited);
    EXPECT_NE(refusal.find("llorch_unknown"), std::string::npos) << path << ": " << refusal;
  }
}

TEST_P(OfFamily, AnUnknownKeyOfAGgufFileRefusesTheModel) {
  const auto path = family_model(GetParam(), Format::kGguf);
  if (!path) GTEST_SKIP() << "no GGUF fixture";
  const GgufFile file = GgufFile::open(*path).value();
  engine::io::GgufWriter writer;
  for (const engine::io::GgufEntry& entry : file.metadata()) writer.put(entry.key, entry.value);
  writer.put(std::string(file.string("general.architecture").value()) + ".llorch_unknown", std::uint32_t{1});
  const std::vector<std::byte> bytes = writer.to_bytes().value();
  const ModelFiles files = ModelFiles::from_gguf(GgufFile::parse(bytes, "model.gguf").value()).value();
  const Family& family = **engine::models::find_family(files);
  const auto keys = engine::models::GgufKeys::of(files).value();
  auto config = family.read_gguf(keys).value_or(engine::models::ModelConfig{});
  const engine::models::WeightNames names(files, family);
  (void)engine::models::read_outputs(keys, names, config);
  const auto refused = engine::models::refuse_other_keys(keys, family.name, family.gguf_others);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(".llorch_unknown' = 1"), std::string::npos) << refused.error().message;
}

std::vector<std::string> all_families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(family_directory("llama3").parent_path())) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  const std::vector<std::string> newer = families_of_2026();
  names.insert(names.end(), newer.begin(), newer.end());
  std::ranges::sort(names);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, OfFamily, testing::ValuesIn(all_families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace llorch::golden
