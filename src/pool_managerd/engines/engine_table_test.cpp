#include "pool_managerd/engines/engine_table.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "adapter/setup/installation.h"
#include "base/file.h"

namespace llorch::pool_managerd::engines {
namespace {

namespace fs = std::filesystem;
namespace setup = adapter::setup;

// ORCH-3207#ready: an engine whose program is not here yet serves nothing, and the refusal says what to do
TEST(EngineTable, WaitsForItsInstallation) {
  const fs::path dir = fs::temp_directory_path() / ("llorch_engine_table_" + std::to_string(::getpid()));
  config::InstallPolicyConfig policy;
  policy.cache_dir = dir.string();
  config::EngineConfig engine;
  engine.name = "tale";
  engine.engine = "llamacpp";
  engine.endpoint = "http://127.0.0.1:{port}";
  engine.command = {"{engine}/bin/serve", "--dir", "{engine}"};
  engine.environment = {{"A", "b"}};
  engine.device = "cpu";
  engine.provisioning.mode = config::ProvisioningMode::kBinary;
  engine.provisioning.binary = {.url = "https://x/y", .checksum = "sha256:" + std::string(64, 'a')};
  const EngineTable table({engine}, policy);
  const auto refused = table.describe("engine:tale");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kPoolUnready);
  EXPECT_NE(refused.error().message.find("llorch engine install tale"), std::string::npos);
  EXPECT_FALSE(table.plan("engine:tale"));

  const fs::path installed = setup::directory_of(engine, policy);
  fs::create_directories(installed);
  ASSERT_TRUE(
      base::write_file_atomic(installed / "engine.json", setup::to_json(setup::new_installation(engine, installed))));
  const auto facts = table.describe("engine:tale");
  ASSERT_TRUE(facts);
  EXPECT_TRUE(table.plan("engine:tale"));
  EXPECT_EQ(table.command("engine:tale", {}),
            (std::vector<std::string>{(installed / "bin/serve").string(), "--dir", installed.string()}));
  EXPECT_EQ(table.environment("engine:tale").at("A"), "b");

  engine.provisioning.binary.checksum[10] = 'b';
  EXPECT_NE(EngineTable({engine}, policy).describe("engine:tale").has_value(), true);  // other bytes are another engine
  fs::remove_all(dir);
}

// What it says is in its worker's log.
TEST(EngineTable, VllmIsToldToLogNoPrompts) {
  config::EngineConfig started;
  started.name = "tale";
  started.engine = "vllm";
  started.endpoint = "http://127.0.0.1:{port}";
  started.command = {"/opt/vllm", "serve"};
  config::EngineConfig loud = started, elsewhere = started, other = started;
  loud.name = "loud", loud.environment = {{"VLLM_LOGGING_LEVEL", "INFO"}};
  elsewhere.name = "elsewhere", elsewhere.command.clear();
  other.name = "other", other.engine = "llamacpp";
  const EngineTable table({started, loud, elsewhere, other}, {});
  using Variables = std::map<std::string, std::string>;
  EXPECT_EQ(table.environment("engine:tale"), (Variables{{"VLLM_LOGGING_LEVEL", "WARNING"}}));
  EXPECT_EQ(table.environment("engine:loud"), (Variables{{"VLLM_LOGGING_LEVEL", "INFO"}}));
  EXPECT_EQ(table.environment("engine:elsewhere"), Variables());
  EXPECT_EQ(table.environment("engine:other"), Variables());
}

TEST(EngineTable, TellsTheAdapterTheServersFieldNames) {
  config::EngineConfig engine;
  engine.name = "hosted";
  engine.engine = "openai";
  engine.endpoint = "https://api.example/v1";
  engine.field_names = {{"max_tokens", "max_completion_tokens"}};
  const auto arguments = EngineTable({engine}, {}).arguments("engine:hosted");
  const auto flag = std::ranges::find(arguments, "--field-name");
  ASSERT_NE(flag, arguments.end());
  EXPECT_EQ(*std::next(flag), "max_tokens=max_completion_tokens");
}

// An image has a program of its own, and a container none of this process's variables but those that are named to its runtime.
TEST(EngineTable, VllmInAContainerIsToldToLogNoPrompts) {
  config::EngineConfig engine;
  engine.name = "tale";
  engine.engine = "vllm";
  engine.endpoint = "http://127.0.0.1:{port}";
  engine.device = "cpu";
  engine.provisioning.mode = config::ProvisioningMode::kContainer;
  engine.provisioning.container.image = "registry.example/vllm";
  const auto level = [&] {
    const EngineTable table({engine}, {});
    EXPECT_THAT(table.command("engine:tale", {}), testing::IsSupersetOf({"--env", "VLLM_LOGGING_LEVEL"}));
    return table.environment("engine:tale")["VLLM_LOGGING_LEVEL"];
  };
  EXPECT_EQ(level(), "WARNING");
  ASSERT_EQ(::setenv("VLLM_LOGGING_LEVEL", "ERROR", 1), 0);
  EXPECT_EQ(level(), "ERROR");
  engine.command = {"serve"};
  EXPECT_EQ(level(), "ERROR");
  ASSERT_EQ(::unsetenv("VLLM_LOGGING_LEVEL"), 0);
  EXPECT_EQ(level(), "WARNING");
}

}  // namespace
}  // namespace llorch::pool_managerd::engines
