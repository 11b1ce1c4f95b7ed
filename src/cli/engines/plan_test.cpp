#include "cli/engines/plan.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace llorch::cli::engines {
namespace {

namespace fs = std::filesystem;

class PlanTest : public testing::Test {
 protected:
  PlanTest() : dir_(fs::temp_directory_path() / ("llorch_engine_plan_" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
    std::ofstream(dir_ / "x.gguf") << "GGUF";
    std::ofstream(dir_ / "llama-server") << "#!/bin/sh\n";
    fs::permissions(dir_ / "llama-server", fs::perms::owner_all);
  }
  ~PlanTest() override { fs::remove_all(dir_); }
  fs::path dir_;
};

// ORCH-3207#plan: the same configuration gives the same steps, before anything runs
TEST_F(PlanTest, OfAStartedEngine) {
  const auto engine =
      llama_server({.model = (dir_ / "x.gguf").string(), .name = "x", .cpu = true}, "/nowhere:" + dir_.string());
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->command[0], (dir_ / "llama-server").string());
  EXPECT_THAT(engine->command, testing::Contains("--no-cont-batching"));
  EXPECT_EQ(engine->device, "cpu");
  const auto steps = plan(*engine);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].kind, "memory");
  EXPECT_EQ(steps[1].kind, "start");
  EXPECT_FALSE(steps[1].missing);
  EXPECT_EQ(steps[2].kind, "self-test");
}

// ORCH-3202#guidance: what is missing is named, with what to do
TEST_F(PlanTest, SaysWhatIsMissing) {
  const auto none = llama_server({.model = (dir_ / "x.gguf").string(), .name = "x"}, "/nowhere");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("--engine-binary"), std::string::npos);
  config::EngineConfig engine{
      .name = "e", .engine = "openai", .endpoint = "https://x", .api_key_file = (dir_ / "key").string()};
  EXPECT_TRUE(plan(engine)[0].missing);
  std::ofstream(dir_ / "key") << "k";
  fs::permissions(dir_ / "key", fs::perms::owner_read | fs::perms::others_read);
  EXPECT_EQ(plan(engine)[0].what_to_do, "chmod 600 " + (dir_ / "key").string());
  fs::permissions(dir_ / "key", fs::perms::owner_read);
  EXPECT_FALSE(plan(engine)[0].missing);
  engine.command = {"/no/such/program"};
  EXPECT_TRUE(plan(engine)[2].missing);
}

TEST_F(PlanTest, OnAGpuEveryLayerIsThere) {
  const auto engine = llama_server({.model = (dir_ / "x.gguf").string(), .name = "x", .slots = 2}, dir_.string());
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->device, "0");
  EXPECT_THAT(engine->command, testing::Contains("999"));
  EXPECT_THAT(engine->command, testing::Not(testing::Contains("--no-cont-batching")));
}

}  // namespace
}  // namespace llorch::cli::engines
