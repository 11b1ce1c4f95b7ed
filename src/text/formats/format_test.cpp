#include "text/formats/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

namespace fs = std::filesystem;

TEST(Format, NamesReadBack) {
  for (const Format format : all_formats()) EXPECT_EQ(parse_format(name_of(format)), format) << name_of(format);
  EXPECT_FALSE(parse_format("Hermes"));
  EXPECT_FALSE(parse_format(""));
}

// A marker that another one begins with could never be read.
TEST(Format, NoMarkerBeginsWithAnother) {
  for (const Format format : all_formats()) {
    for (const std::string_view a : markers(format)) {
      for (const std::string_view b : markers(format)) EXPECT_FALSE(a != b && b.starts_with(a)) << a << " " << b;
    }
  }
}

TEST(Format, MarkersAreWhatACallIsSpelledWith) {
  EXPECT_THAT(markers(Format::kMistralV11),
              ::testing::IsSupersetOf({"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"}));
  EXPECT_THAT(markers(Format::kGptOss),
              ::testing::UnorderedElementsAre("<|channel|>", "<|start|>", "<|message|>", "<|constrain|>", "<|end|>",
                                              "<|return|>", "<|call|>"));
  EXPECT_THAT(markers(Format::kFunctionGemma),
              ::testing::UnorderedElementsAre("<start_function_call>", "<end_function_call>", "<escape>"));
  EXPECT_THAT(markers(Format::kLlama3), ::testing::ElementsAre("<|python_tag|>"));
}

TEST(Format, ThePromptMayOpenAThought) {
  EXPECT_TRUE(prompt_opens_thought(Format::kDeepseekV31, "<｜Assistant｜><think>"));
  EXPECT_TRUE(prompt_opens_thought(Format::kHermes, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(prompt_opens_thought(Format::kHermes, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(prompt_opens_thought(Format::kGptOss, "<|start|>assistant"));
  EXPECT_FALSE(prompt_opens_thought(Format::kLlama3, "<think>"));
  EXPECT_FALSE(prompt_opens_thought(Format::kHermes, ""));
}

TEST(Format, DetectedFromWhatTemplatesSpell) {
  EXPECT_EQ(detect(""), Format::kGeneric);
  EXPECT_EQ(detect("{{ messages }}"), Format::kGeneric);
  EXPECT_EQ(detect("<tool_call>\\n<function=example>\\n<parameter=p>"), Format::kQwen3Coder);
  EXPECT_EQ(detect("[TOOL_CALLS]' + name + '[ARGS]"), Format::kMistralV11);
  EXPECT_EQ(detect("<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + name + '\\n```json"), Format::kDeepseek);
  EXPECT_EQ(detect("<|system|> ... <|tool|>' + message['tools'] + '<|/tool|>"), Format::kPhi);
  EXPECT_EQ(detect("<start_of_turn>model <start_function_call>call:"), Format::kFunctionGemma);
  EXPECT_EQ(detect("<|turn>model <|tool_call>call:"), Format::kGemma4);
}

// Every template of the collection, by name.
TEST(Format, DetectedInTemplatesOfRealModels) {
  const fs::path directory = fs::path(LLORCH_SOURCE_DIR) / "../shared/data/templates";
  if (!fs::is_directory(directory)) GTEST_SKIP() << directory << " is not there";
  const std::map<std::string, Format> expected{
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", Format::kCommand},
      {"HuggingFaceTB-SmolLM3-3B", Format::kGeneric},
      {"Kimi-K2-Instruct", Format::kKimi},
      {"LFM2-8B-A1B", Format::kLfm2},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", Format::kHermes},
      {"Qwen-Qwen2.5-7B-Instruct", Format::kHermes},
      {"Qwen-Qwen3-0.6B", Format::kHermes},
      {"deepseek-ai-DeepSeek-V3.1", Format::kDeepseekV31},
      {"google-gemma-2-2b-it", Format::kGemma3},
      {"ibm-granite-granite-3.3-2B-Instruct", Format::kGranite},
      {"meta-llama-Llama-3.1-8B-Instruct", Format::kLlama3},
      {"microsoft-Phi-3.5-mini-instruct", Format::kGeneric},
      {"mistralai-Mistral-Nemo-Instruct-2407", Format::kMistral},
      {"openai-gpt-oss-120b", Format::kGptOss},
  };
  std::size_t seen = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream source;
    source << file.rdbuf();
    const std::string name = entry.path().stem().string();
    ASSERT_TRUE(expected.contains(name)) << name << " is not in the table";
    EXPECT_EQ(name_of(detect(source.str())), name_of(expected.at(name))) << name;
    ++seen;
  }
  EXPECT_EQ(seen, expected.size());
}

}  // namespace
}  // namespace llorch::text::formats
