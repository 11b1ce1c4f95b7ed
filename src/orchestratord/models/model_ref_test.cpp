#include "orchestratord/models/model_ref.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace llorch::orchestratord::models {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

class ModelRefTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("llorch-model-ref-" + std::to_string(::getpid()));
    fs::create_directories(dir_ / "models/sub");
    fs::create_directories(dir_ / "models-other");
    std::ofstream(dir_ / "models/a.gguf") << "x";
    std::ofstream(dir_ / "models-other/b.gguf") << "x";
    fs::create_symlink(dir_ / "models-other/b.gguf", dir_ / "models/link.gguf");
    fs::create_symlink(dir_ / "models", dir_ / "directory-link");
    config_.cache_dir = (dir_ / "cache").string();
    config_.allowed_roots = {(dir_ / "models").string()};
  }
  void TearDown() override { fs::remove_all(dir_); }
  base::Result<std::string> resolve(const std::string& model) {
    return resolve_model_ref(model, {{"demo", "file:" + (dir_ / "models/a.gguf").string()}, {"cloud", "hf:org/repo"}},
                             allowed_roots(config_, {}));
  }
  std::string file(const std::string& path) const { return "file:" + (dir_ / path).string(); }

  fs::path dir_;
  config::ModelsConfig config_;
};

TEST_F(ModelRefTest, AliasesAndFilesBecomeCanonicalPaths) {
  EXPECT_EQ(resolve("demo").value(), file("models/a.gguf"));
  EXPECT_EQ(resolve(file("models/sub/../a.gguf")).value(), file("models/a.gguf"));
  EXPECT_EQ(resolve(file("models/not-there-yet.gguf")).value(), file("models/not-there-yet.gguf"));
  EXPECT_EQ(resolve(file("cache/c.gguf")).value(), file("cache/c.gguf"));
}

// Whether a link leads into a root shows on the disk alone, and nobody looks there on a path outside of all roots.
TEST_F(ModelRefTest, NobodyLooksWhereAPathOutsideLeads) {
  EXPECT_EQ(resolve(file("directory-link/a.gguf")).error().code, ErrorCode::kForbidden);
  config_.allowed_roots = {(dir_ / "directory-link").string() + "/"};  // as it is spelled, and where it leads
  EXPECT_EQ(resolve(file("directory-link/a.gguf")).value(), file("models/a.gguf"));
  EXPECT_EQ(resolve(file("directory-link/sub/../a.gguf")).value(), file("models/a.gguf"));
  EXPECT_EQ(resolve(file("models/a.gguf")).value(), file("models/a.gguf"));
  EXPECT_EQ(resolve(file("directory-link/link.gguf")).error().code, ErrorCode::kForbidden);
  EXPECT_EQ(resolve(file("directory-link/../models-other/b.gguf")).error().code, ErrorCode::kForbidden);
}

TEST_F(ModelRefTest, LinksMayBeLeftAsTheyAreSpelled) {
  const auto leave = [&](const std::string& model) {
    return resolve_model_ref(model, {}, allowed_roots(config_, {}), Links::kLeave);
  };
  EXPECT_EQ(leave(file("models/sub/../link.gguf")).value(), file("models/link.gguf"));
  EXPECT_EQ(leave(file("models-other/b.gguf")).error().code, ErrorCode::kForbidden);
  EXPECT_EQ(leave("nobody").error().code, ErrorCode::kModelNotFound);
}

// The operator's own path leads where it leads.
TEST_F(ModelRefTest, AnAliasMayBeginOutside) {
  const auto alias = [&](const std::string& path) {
    return resolve_model_ref("demo", {{"demo", file(path)}}, allowed_roots(config_, {}));
  };
  EXPECT_EQ(alias("directory-link/a.gguf").value(), file("models/a.gguf"));
  EXPECT_EQ(alias("models-other/b.gguf").error().code, ErrorCode::kForbidden);
}

// ORCH-3052: one split for a model, whatever it is called.
TEST_F(ModelRefTest, ASplitIsOfTheFile) {
  const auto devices = [&](const std::string& ref) {
    return ModelSettings(config_, allowed_roots(config_, {})).devices(ref);
  };
  EXPECT_EQ(devices(file("models/a.gguf")), 1);
  config_.aliases = {{"demo", file("directory-link/a.gguf")}};
  config_.tensor_split = {{"demo", 2}, {file("models/sub/../b.gguf"), 4}, {"file:/etc/passwd", 8}, {"engine:x", 2}};
  EXPECT_EQ(devices(file("models/a.gguf")), 2);
  EXPECT_EQ(devices(file("models/b.gguf")), 4);
  EXPECT_EQ(devices(file("models/c.gguf")), 1);
  EXPECT_EQ(devices("engine:x"), 1) << "a pool has one device for it";
}

// OC-CORE-1022: so has it one limit.
TEST_F(ModelRefTest, ATimeoutIsOfTheFile) {
  const auto timeout_ms = [&](const std::string& ref) {
    return ModelSettings(config_, allowed_roots(config_, {})).timeout_ms(ref);
  };
  config_.aliases = {{"demo", file("directory-link/a.gguf")}};
  config_.timeout_ms = {{"demo", 900'000}};
  EXPECT_EQ(timeout_ms(file("models/a.gguf")), 900'000);
  EXPECT_EQ(timeout_ms(file("models/b.gguf")), std::nullopt);
}

// They are asked for where nobody may wait for a disk.
TEST_F(ModelRefTest, SettingsFollowLinksOnce) {
  config_.aliases = {{"demo", file("directory-link/a.gguf")}};
  config_.timeout_ms = {{"demo", 900'000}, {file("directory-link/c.gguf"), 5}};
  config_.chat_format = {{"demo", "chatml"}};
  const ModelSettings settings(config_, allowed_roots(config_, {}));
  fs::remove(dir_ / "directory-link");
  EXPECT_EQ(settings.timeout_ms(file("models/a.gguf")), 900'000);
  EXPECT_EQ(settings.timeout_ms(file("models/c.gguf")), 5);
  EXPECT_EQ(settings.chat_format(file("models/a.gguf")), "chatml");
}

// VALID: a path is canonical before it is compared with the allowed roots.
TEST_F(ModelRefTest, NothingOutsideTheRoots) {
  for (const std::string& bad : {file("models/../models-other/b.gguf"), file("models/link.gguf"),
                                 file("models-other/b.gguf"), std::string("file:/etc/passwd"), file("models")}) {
    const auto result = resolve(bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().code, ErrorCode::kForbidden) << bad;
    EXPECT_EQ(result.error().message.find(dir_.string()), std::string::npos) << "the path is repeated";
  }
}

TEST_F(ModelRefTest, WhatCannotBeResolvedSaysWhatToDo) {
  EXPECT_EQ(resolve("nobody").error().code, ErrorCode::kModelNotFound);
  EXPECT_EQ(resolve("hf:org/repo").error().code, ErrorCode::kModelNotFound);
  for (const char* model : {"nobody", "hf:org/repo"})
    EXPECT_NE(resolve(model).error().message.find("llorch pull"), std::string::npos) << model;
  EXPECT_EQ(resolve("cloud").error().code, ErrorCode::kModelNotFound);
  EXPECT_EQ(resolve("file:relative.gguf").error().code, ErrorCode::kInvalidParams);
  EXPECT_EQ(resolve("").error().code, ErrorCode::kModelNotFound);
}

}  // namespace
}  // namespace llorch::orchestratord::models
