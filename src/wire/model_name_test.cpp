#include "wire/model_name.h"

#include <gtest/gtest.h>

namespace llorch::wire {
namespace {

TEST(ModelName, Characters) {
  for (const char* name : {"a", "qwen3:4b", "Tale_1.5-x", "Llama-3.2-1B-Instruct.Q4_K_M"})
    EXPECT_TRUE(is_model_name(name)) << name;
  for (const char* name : {"", ".a", "a/b", "a b", "hf:x", "file:/x", "pypi:x", "\xc3\xa4"})
    EXPECT_FALSE(is_model_name(name)) << name;
  EXPECT_TRUE(is_model_name(std::string(128, 'a')));
  EXPECT_FALSE(is_model_name(std::string(129, 'a')));
}

TEST(ModelName, NearestToAText) {
  EXPECT_EQ(model_name_from("Qwen2.5-0.5B"), "Qwen2.5-0.5B");
  EXPECT_EQ(model_name_from("my model (1)"), "my-model--1-");
  EXPECT_EQ(model_name_from("hf:x"), "model");
  EXPECT_EQ(model_name_from(".gguf"), "model");
  EXPECT_EQ(model_name_from(""), "model");
  EXPECT_EQ(model_name_from(std::string(200, 'a')), std::string(128, 'a'));
}

}  // namespace
}  // namespace llorch::wire
