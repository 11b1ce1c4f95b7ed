#include "cli/engines/llama_server.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "adapter/setup/plan.h"

namespace llorch::cli::engines {
namespace {

namespace fs = std::filesystem;

class LlamaServerTest : public testing::Test {
 protected:
  LlamaServerTest() : dir_(fs::temp_directory_path() / ("llorch_engine_plan_" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
    std::ofstream(dir_ / "x.gguf") << "GGUF";
    std::ofstream(dir_ / "llama-server") << "#!/bin/sh\n";
    fs::permissions(dir_ / "llama-server", fs::perms::owner_all);
  }
  ~LlamaServerTest() override { fs::remove_all(dir_); }
  fs::path dir_;
};

TEST_F(LlamaServerTest, IsAnEntryThatStarts) {
  const auto engine =
      llama_server({.model = (dir_ / "x.gguf").string(), .name = "x", .cpu = true}, "/nowhere:" + dir_.string());
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->command[0], (dir_ / "llama-server").string());
  EXPECT_THAT(engine->command, testing::Contains("--no-cont-batching"));
  EXPECT_EQ(engine->device, "cpu");
  const auto steps = adapter::setup::plan(*engine, {.policy = {}, .path_variable = {}});
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].kind, "memory");
  EXPECT_EQ(steps[1].kind, "start");
  EXPECT_FALSE(steps[1].missing);
  EXPECT_EQ(steps[2].kind, "self-test");
}

TEST_F(LlamaServerTest, SaysWhatIsMissing) {
  const std::string model = (dir_ / "x.gguf").string();
  const auto none = llama_server({.model = model, .name = "x"}, "/nowhere");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("--engine-binary"), std::string::npos);
  EXPECT_FALSE(llama_server({.binary = "/no/such", .model = model, .name = "x", .cpu = true}, "/nowhere"));
  const auto known = llama_server({.model = model, .name = "x", .cpu = true, .context_tokens = 99}, "/nowhere");
  ASSERT_TRUE(known);
  EXPECT_TRUE(adapter::setup::is_installed_here(*known));
  EXPECT_THAT(known->command, testing::IsSupersetOf({model, std::string("99"), std::string("{port}")}));
  EXPECT_NE(as_setting(*known).find("\"mode\":\"package\""), std::string::npos);
}

TEST_F(LlamaServerTest, OnAGpuEveryLayerIsThere) {
  const auto engine = llama_server({.model = (dir_ / "x.gguf").string(), .name = "x", .slots = 2}, dir_.string());
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->device, "0");
  EXPECT_THAT(engine->command, testing::Contains("999"));
  EXPECT_THAT(engine->command, testing::Not(testing::Contains("--no-cont-batching")));
}

}  // namespace
}  // namespace llorch::cli::engines
