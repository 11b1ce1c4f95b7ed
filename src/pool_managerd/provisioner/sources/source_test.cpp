#include "pool_managerd/provisioner/sources/source.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace llorch::pool_managerd::provisioner {
namespace {

using base::ErrorCode;
using sources::parse_source;
using sources::Scheme;

void expect_source(const std::string& text, const sources::Source& wanted) {
  const auto source = parse_source(text);
  ASSERT_TRUE(source) << text;
  EXPECT_EQ(source->scheme, wanted.scheme) << text;
  EXPECT_EQ(source->location, wanted.location) << text;
  EXPECT_EQ(source->revision, wanted.revision) << text;
  EXPECT_EQ(source->selector, wanted.selector) << text;
}

// SYS-2.1.1, ORCH-3090: the references there are.
TEST(Sources, References) {
  expect_source("hf:org/repo", {Scheme::kHub, "org/repo", "", ""});
  expect_source("hf:org/repo@v1:Q4_K_M", {Scheme::kHub, "org/repo", "v1", "Q4_K_M"});
  expect_source("hf:org/repo@abc::file=sub/m.gguf", {Scheme::kHub, "org/repo", "abc", "sub/m.gguf"});
  expect_source("https://host/a.gguf?x=1", {Scheme::kHttps, "https://host/a.gguf?x=1", "", ""});
  expect_source("s3://bucket/dir/m.gguf", {Scheme::kS3, "bucket/dir/m.gguf", "", ""});
  expect_source("oci:qwen3:4b", {Scheme::kOci, "registry.ollama.ai/library/qwen3", "4b", ""});
  expect_source("oci:user/model", {Scheme::kOci, "registry.ollama.ai/user/model", "latest", ""});
  expect_source("oci://localhost:5000/a/b@sha256:00ff", {Scheme::kOci, "localhost:5000/a/b", "sha256:00ff", ""});
  expect_source("pypi:Some_Tale@1.2:tale.gguf", {Scheme::kPypi, "some-tale", "1.2", "tale.gguf"});
}

TEST(Sources, WhatIsNoReference) {
  for (const char* text : {"",
                           "model",
                           "hf:repo",
                           "hf:a/b/c",
                           "hf:../b",
                           "hf:a/..",
                           "hf:a/b@..",
                           "hf:a/b:../x",
                           "ftp://h/x",
                           "s3://bucket",
                           "s3://b/../c",
                           "oci:",
                           "oci:a/../b",
                           "oci:a:b/c",
                           "oci:a:/c",
                           "oci:a@b.example/c",
                           "pypi:",
                           "pypi:a/b",
                           "https://host/a b",
                           "https://host/a\nb",
                           "hf:a/b\xc3\xa4",
                           "file:/x"}) {
    const auto source = parse_source(text);
    ASSERT_FALSE(source) << text;
    EXPECT_EQ(source.error().code, ErrorCode::kInvalidParams);
  }
}

TEST(Sources, OnlyWhatTheEngineReadsKeepsItsDirectory) {
  for (const char* name : {"config.json", "1_Pooling/config.json", "2_Dense/model.safetensors",
                           "additional_chat_templates/tools.jinja", "m.gguf"}) {
    EXPECT_EQ(sources::safe_model_name(name), name);
  }
  EXPECT_EQ(sources::safe_model_name("onnx/model.safetensors"), "model.safetensors");
  EXPECT_EQ(sources::safe_model_name("../1_Pooling/config.json"), "config.json");
  EXPECT_EQ(sources::safe_model_name("/1_Pooling/config.json"), "config.json");
  EXPECT_EQ(sources::safe_model_name("1_Pooling/../config.json"), "config.json");
  EXPECT_EQ(sources::safe_model_name("additional_chat_templates/..\\..jinja"), "additional_chat_templates/jinja");
}

RC_GTEST_PROP(Sources, NoNameLeadsOutOfItsDirectory, ()) {
  const auto text =
      *rc::gen::container<std::string>(rc::gen::element('.', '/', '\\', 'a', '\0', '\xff', '-', '?', '%'));
  const std::string name = sources::safe_file_name(text);
  RC_ASSERT(!name.empty() && name.size() <= 128 && name.front() != '.');
  RC_ASSERT(name.find_first_of("/\\") == std::string::npos && name.find('\0') == std::string::npos);
}

}  // namespace
}  // namespace llorch::pool_managerd::provisioner
