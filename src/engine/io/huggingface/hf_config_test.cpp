#include "engine/io/huggingface/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

namespace llorch::engine::io {
namespace {

using base::ErrorCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

HfConfig config(std::string_view json) {
  auto parsed = HfConfig::parse(json);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed.value();
}

TEST(HfConfig, ReadsEveryKindOfValue) {
  const HfConfig c = config(R"({"model_type": "llama", "hidden_size": 4096, "rms_norm_eps": 1e-05, "rope_theta": 500000,
                                "tie_word_embeddings": false, "eos_token_id": [1, 2], "layer_types": ["a", "b"],
                                "factors": [1, 2.5], "flags": [true, false], "text_config": {"head_dim": 64}})");
  EXPECT_EQ(c.string("model_type").value(), "llama");
  EXPECT_EQ(c.u32("hidden_size").value(), 4096u);
  EXPECT_EQ(c.u64("hidden_size").value(), 4096u);
  EXPECT_EQ(c.f32("rms_norm_eps").value(), 1e-5f);
  EXPECT_EQ(c.f32("rope_theta").value(), 500000.f);
  EXPECT_FALSE(c.boolean("tie_word_embeddings").value());
  EXPECT_THAT(c.u32_list("eos_token_id").value(), ElementsAre(1u, 2u));
  EXPECT_THAT(c.string_list("layer_types").value(), ElementsAre("a", "b"));
  EXPECT_THAT(c.f32_list("factors").value(), ElementsAre(1.f, 2.5f));
  EXPECT_THAT(c.boolean_list("flags").value(), ElementsAre(true, false));
  EXPECT_EQ(c.object("text_config")->u32("head_dim").value(), 64u);
  EXPECT_EQ(c.keys().front(), "model_type");
  EXPECT_EQ(c.keys().back(), "text_config");
}

TEST(HfConfig, ANullReadsAsAbsentAndCanBeToldApart) {
  const HfConfig c = config(R"({"sliding_window": null, "head_dim": 8})");
  EXPECT_FALSE(c.contains("sliding_window"));
  EXPECT_TRUE(c.is_null("sliding_window"));
  EXPECT_EQ(c.kind("sliding_window"), HfKind::kNull);
  EXPECT_EQ(c.u32_or("sliding_window", 7).value(), 7u);
  EXPECT_EQ(c.u32("sliding_window").error().code, ErrorCode::kConfigKeyMissing);
  EXPECT_THAT(c.u32("sliding_window").error().message, HasSubstr("sliding_window is null"));
  EXPECT_FALSE(c.contains("absent"));
  EXPECT_FALSE(c.is_null("absent"));
  EXPECT_EQ(c.f32_or("absent", 2.5f).value(), 2.5f);
  EXPECT_EQ(c.string_or("absent", "silu").value(), "silu");
  EXPECT_TRUE(c.boolean_or("absent", true).value());
  EXPECT_EQ(c.u64_or("head_dim", 1).value(), 8u);
  EXPECT_EQ(c.object("absent").error().code, ErrorCode::kConfigKeyMissing);
}

TEST(HfConfig, CountsMayBeWrittenAsIntegralFloats) {
  const HfConfig c = config(R"({"a": 2.0, "b": 1e6, "c": 2.5, "d": -1, "e": 4294967296, "f": 1e20, "g": true})");
  EXPECT_EQ(c.u32("a").value(), 2u);
  EXPECT_EQ(c.u32("b").value(), 1000000u);
  for (const auto* key : {"c", "d", "e", "f", "g"}) {
    EXPECT_EQ(c.u32(key).error().code, ErrorCode::kConfigKeyInvalid) << key;
  }
  EXPECT_EQ(c.u64("e").value(), 4294967296u);
  EXPECT_EQ(c.u64("f").error().code, ErrorCode::kConfigKeyInvalid);
  EXPECT_THAT(c.u32("c").error().message, HasSubstr("config.json: c is the number 2.5, wanted an integer"));
}

TEST(HfConfig, NonFiniteFloatsInBothSpellings) {
  const HfConfig c = config(
      R"({"new": [0.0, {"__float__": "Infinity"}], "old": [-Infinity, Infinity], "nan": NaN, "nan2": {"__float__": "NaN"},
          "text": "Infinity -Infinity \" NaN", "big": 1e200, "other": {"__float__": "one"}})");
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(c.f32_list("new", HfConfig::Infinities::kAccept).value(), ElementsAre(0.f, kInfinity));
  EXPECT_THAT(c.f32_list("old", HfConfig::Infinities::kAccept).value(), ElementsAre(-kInfinity, kInfinity));
  EXPECT_EQ(c.f32_list("new").error().code, ErrorCode::kConfigKeyInvalid);
  EXPECT_THAT(c.f32_list("new").error().message, HasSubstr("new[1] is the number inf"));
  for (const auto* key : {"nan", "nan2", "big"}) {
    EXPECT_EQ(c.f32(key, HfConfig::Infinities::kAccept).error().code, ErrorCode::kConfigKeyInvalid) << key;
    EXPECT_EQ(c.kind(key), HfKind::kNumber) << key;
  }
  EXPECT_EQ(c.string("text").value(), "Infinity -Infinity \" NaN");
  EXPECT_EQ(c.kind("other"), HfKind::kObject);
  EXPECT_EQ(c.object("nan2").error().code, ErrorCode::kConfigKeyInvalid);  // a number in an object's clothes
}

TEST(HfConfig, MessagesNameTheWholePath) {
  const HfConfig c = config(R"({"text_config": {"rope_parameters": {"factor": "auto"}, "head_dim": []}})");
  const HfConfig text = c.object("text_config").value();
  EXPECT_THAT(text.u32("head_dim").error().message, HasSubstr("text_config.head_dim is a list, wanted an integer"));
  EXPECT_THAT(text.object("rope_parameters")->f32("factor").error().message,
              HasSubstr("text_config.rope_parameters.factor is the string 'auto', wanted a finite number"));
  EXPECT_THAT(c.object("nope").error().message, HasSubstr("the key nope is missing"));
}

TEST(HfConfig, ViewsOutliveTheObjectTheyCameFrom) {
  HfConfig text = config(R"({"text_config": {"model_type": "qwen3_vl_text"}})").object("text_config").value();
  const HfConfig copy = text;
  text = config("{}");
  EXPECT_EQ(copy.string("model_type").value(), "qwen3_vl_text");
}

TEST(HfConfig, RefusesWhatIsNoConfiguration) {
  const auto refused = [](std::string_view json, std::string_view what, const HfConfigLimits& limits = {}) {
    const auto parsed = HfConfig::parse(json, "config.json", limits);
    ASSERT_FALSE(parsed) << json;
    EXPECT_EQ(parsed.error().code, ErrorCode::kCorruptFile) << json;
    EXPECT_THAT(parsed.error().message, HasSubstr(std::string(what))) << json;
  };
  refused("", "not valid JSON");
  refused("{", "not valid JSON");
  refused("{\"a\": [1, 2", "not valid JSON");
  refused("[]", "the configuration is a list");
  refused("Infinity", "the configuration is the number inf");
  refused("{} {}", "at byte 3: not valid JSON: something follows");
  refused(R"({"a": Infinity, "b": })", "at byte 21:");
  refused(R"({"a": InfinityNaN})", "not valid JSON");
  refused("{\"a\": \"\xff\"}", "not valid JSON");
  refused("{\"a\": \"\\", "not valid JSON");
  refused("{\"a\": 1}", "8 bytes of configuration, the limit is 7", {.bytes_max = 7});
  refused(R"({"a": {"b": {"c": 1}}})", "not valid JSON", {.depth_max = 2});
  EXPECT_EQ(HfConfig::open("/no/such/config.json").error().code, ErrorCode::kIoError);
}

TEST(HfConfig, ReadsWhatTheLibraryWrites) {
  const std::filesystem::path directory = LLORCH_SOURCE_DIR "/../shared/data/golden";
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << "no directory " << directory;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const auto c = HfConfig::open(entry.path() / "config.json");
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_TRUE(c->string("model_type")) << entry.path();
    if (!c->contains("time_step_limit")) continue;
    const auto limit = c->f32_list("time_step_limit", HfConfig::Infinities::kAccept);
    ASSERT_TRUE(limit) << limit.error().message;
    EXPECT_TRUE(std::isinf(limit->at(1)));
    ++count;
  }
  EXPECT_GE(count, 1);
}

}  // namespace
}  // namespace llorch::engine::io
