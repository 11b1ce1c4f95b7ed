#include "adapter/setup/plan.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "adapter/setup/known_engines.h"
#include "base/file.h"

namespace llorch::adapter::setup {
namespace {

namespace fs = std::filesystem;
using config::EngineConfig;
using config::ProvisioningMode;

const std::string kSum = "sha256:" + std::string(64, 'a');

class PlanTest : public testing::Test {
 protected:
  PlanTest() : dir_(fs::temp_directory_path() / ("llorch_setup_plan_" + std::to_string(::getpid()))) {
    fs::create_directories(dir_ / "bin");
    machine_.path_variable = (dir_ / "bin").string();
    machine_.policy.cache_dir = (dir_ / "engines").string();
  }
  ~PlanTest() override { fs::remove_all(dir_); }

  void add_tool(const std::string& name) {
    std::ofstream(dir_ / "bin" / name) << "#!/bin/sh\n";
    fs::permissions(dir_ / "bin" / name, fs::perms::owner_all);
  }
  static EngineConfig engine(ProvisioningMode mode, std::string device = "cpu") {
    EngineConfig out;
    out.name = "tale";
    out.engine = "llamacpp";
    out.endpoint = "http://127.0.0.1:{port}";
    out.command = {"{engine}/bin/llama-server", "--port", "{port}"};
    out.device = std::move(device);
    out.provisioning.mode = mode;
    out.provisioning.binary = {.url = "https://host/llama.tar.gz", .checksum = kSum};
    out.provisioning.package = {
        .name = "vllm", .version = "1.0", .checksum = kSum, .dependencies = {"numpy==2.0 " + kSum}, .python = {}};
    out.provisioning.container = {.image = "registry.example/llama", .tag = "b1", .digest = kSum, .volumes = {"/srv"}};
    out.provisioning.source = {.repo = "https://host/llama.cpp",
                               .ref = std::string(40, 'b'),
                               .build = {.cmake_flags = {"-DLLAMA_CUBLAS=ON"}, .target = "llama-server"}};
    return out;
  }
  static std::string text(const std::vector<Step>& steps) {
    std::string out;
    for (const Step& step : steps) {
      out += step.kind + " " + step.detail + (step.missing ? " MISSING " + step.what_to_do : "") + "\n";
    }
    return out;
  }
  static std::vector<std::string> missing(const std::vector<Step>& steps) {
    std::vector<std::string> out;
    for (const Step& step : steps) {
      if (step.missing) out.push_back(step.what_to_do);
    }
    return out;
  }

  fs::path dir_;
  Machine machine_;
};

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// ORCH-3207#plan, ORCH-3201, OC-CONFIG-6020: the same configuration gives the same steps, of every mode, before anything runs
TEST_F(PlanTest, OfEachModeIsTheSameEachTime) {
  for (const auto mode : {ProvisioningMode::kExternal, ProvisioningMode::kSource, ProvisioningMode::kContainer,
                          ProvisioningMode::kPackage, ProvisioningMode::kBinary}) {
    const std::string once = text(plan(engine(mode), machine_));
    EXPECT_EQ(once, text(plan(engine(mode), machine_)));
    EXPECT_THAT(once, HasSubstr("self-test Ready once"));
  }
  EXPECT_FALSE(fs::exists(dir_ / "engines"));
}

// ORCH-3202#guidance, ORCH-3805#toolkit: what is missing is named, with what to do.
// ORCH-3206: installs and downloads are off until they are allowed
TEST_F(PlanTest, PoliciesAreOffAndToolsAreLookedFor) {
  add_tool("tar");
  auto steps = installation_plan(engine(ProvisioningMode::kBinary), machine_);
  EXPECT_THAT(missing(steps), ElementsAre(HasSubstr("allow_binary_downloads: true")));
  EXPECT_TRUE(steps[0].refused);
  machine_.policy.allow_binary_downloads = true;
  EXPECT_THAT(missing(installation_plan(engine(ProvisioningMode::kBinary), machine_)), IsEmpty());
  auto local = engine(ProvisioningMode::kBinary);
  local.provisioning.binary.url = "file:/srv/llama.tar.gz";
  machine_.policy.allow_binary_downloads = false;
  EXPECT_THAT(missing(installation_plan(local, machine_)), IsEmpty());  // nothing is downloaded

  EXPECT_THAT(missing(installation_plan(engine(ProvisioningMode::kPackage), machine_)),
              ElementsAre(HasSubstr("allow_package_installs"), HasSubstr("apt install python3-venv")));
  EXPECT_THAT(
      missing(installation_plan(engine(ProvisioningMode::kContainer, "0"), machine_)),
      ElementsAre(HasSubstr("allow_container_pulls"), HasSubstr("podman"), HasSubstr("nvidia-container-toolkit")));
  EXPECT_THAT(missing(installation_plan(engine(ProvisioningMode::kSource), machine_)),
              ElementsAre(HasSubstr("allow_source_builds"), HasSubstr("git"), HasSubstr("cmake"), HasSubstr("g++")));
  for (const char* tool : {"git", "cmake", "c++"}) add_tool(tool);
  machine_.policy.allow_source_builds = true;
  EXPECT_THAT(missing(installation_plan(engine(ProvisioningMode::kSource), machine_)), IsEmpty());
  EXPECT_THAT(missing(installation_plan(engine(ProvisioningMode::kSource, "0"), machine_)),
              ElementsAre(HasSubstr("nvidia-cuda-toolkit")));
}

TEST_F(PlanTest, AQueryOfAUrlIsNotTold) {
  auto signed_one = engine(ProvisioningMode::kBinary);
  signed_one.provisioning.binary.url = "https://bucket.example/llama.tar.gz?X-Amz-Signature=secret";
  machine_.policy.allow_binary_downloads = true;
  const std::string told = text(installation_plan(signed_one, machine_));
  EXPECT_THAT(told, HasSubstr("https://bucket.example/llama.tar.gz is fetched"));
  EXPECT_THAT(told, Not(HasSubstr("secret")));
}

std::vector<std::string> command_of(const Step& step) { return std::get<RunCommand>(step.action).command; }

// OC-CONFIG-6024: packages come from the index by their checksums, and pip itself asks nobody
TEST_F(PlanTest, APackageIsFetchedBeforePipRuns) {
  add_tool("python3");
  machine_.policy.allow_package_installs = true;
  const auto steps = installation_plan(engine(ProvisioningMode::kPackage), machine_);
  EXPECT_EQ(std::get<FetchWheel>(steps[2].action).project, "vllm");
  EXPECT_EQ(std::get<FetchWheel>(steps[3].action).project, "numpy");
  EXPECT_THAT(command_of(steps[4]), Contains("venv"));
  EXPECT_THAT(command_of(steps[5]),
              testing::AllOf(Contains("--no-index"), Contains("vllm==1.0"), Contains("numpy==2.0")));
}

// OC-CONFIG-6022, ORCH-3805#source: a commit is fetched and built, for the CPU or for the GPU that its entry names
TEST_F(PlanTest, ASourceIsBuiltForItsDevice) {
  for (const char* tool : {"git", "cmake", "c++", "nvcc"}) add_tool(tool);
  const std::string gpu = text(installation_plan(engine(ProvisioningMode::kSource, "0"), machine_));
  EXPECT_THAT(gpu, HasSubstr("-DLLAMA_BUILD_SERVER=ON -DGGML_CUDA=ON\n"));
  EXPECT_THAT(gpu, Not(HasSubstr("CUBLAS")));
  EXPECT_THAT(gpu, HasSubstr(std::string(40, 'b')));
  EXPECT_THAT(gpu, HasSubstr("--target llama-server"));
  EXPECT_NE(directory_of(engine(ProvisioningMode::kSource, "0"), machine_.policy),
            directory_of(engine(ProvisioningMode::kSource), machine_.policy));
}

// OC-CONFIG-6023, ORCH-3805#container, ORCH-3805#digest: podman before docker; an image by its digest, and a tag alone is warned of
TEST_F(PlanTest, AContainerIsPulledByItsDigestAndSeesItsGpuAlone) {
  add_tool("docker");
  auto wanted = engine(ProvisioningMode::kContainer, "1");
  wanted.command = {"--port", "{port}"};
  wanted.environment = {{"TOKEN", "secret"}};
  EXPECT_THAT(start_command(wanted, machine_.policy, machine_.path_variable), Contains("device=1"));
  add_tool("podman");
  const auto command = start_command(wanted, machine_.policy, machine_.path_variable);
  EXPECT_EQ(command[0], (dir_ / "bin/podman").string());
  EXPECT_THAT(command, testing::IsSupersetOf(std::vector<std::string>{"--rm", "{container}", "nvidia.com/gpu=1",
                                                                      "127.0.0.1:{port}:{port}", "/srv:/srv:ro",
                                                                      "registry.example/llama@" + kSum, "TOKEN"}));
  EXPECT_THAT(command, Not(Contains(HasSubstr("secret"))));
  EXPECT_EQ(command.back(), "{port}");
  EXPECT_THAT(text(installation_plan(wanted, machine_)), Not(HasSubstr("another image")));
  wanted.provisioning.container.digest = "";
  EXPECT_THAT(text(installation_plan(wanted, machine_)), HasSubstr("another image"));
  wanted.provisioning.container.runtime = "docker";
  EXPECT_EQ(start_command(wanted, machine_.policy, machine_.path_variable)[0], (dir_ / "bin/docker").string());
}

TEST_F(PlanTest, WhatIsInstalledIsNotInstalledAgain) {
  const auto wanted = engine(ProvisioningMode::kBinary);
  const fs::path directory = directory_of(wanted, machine_.policy);
  fs::create_directories(directory);
  EXPECT_FALSE(find_installation(directory));
  ASSERT_TRUE(base::write_file_atomic(directory / "engine.json", to_json(new_installation(wanted, directory))));
  const auto steps = plan(wanted, machine_);
  EXPECT_EQ(steps[0].kind, "installed");
  EXPECT_EQ(installations(machine_.policy).size(), 1u);
  EXPECT_EQ(start_command(wanted, machine_.policy, "")[0], (directory / "bin/llama-server").string());
  ASSERT_TRUE(base::write_file_atomic(directory / "engine.json", "{"));
  EXPECT_FALSE(find_installation(directory));
}

// ORCH-3205: what is known comes whole: pinned, with a command that has every place filled
TEST_F(PlanTest, AKnownEngineIsAnEntry) {
  auto known = known_engine("llama.cpp", "cpu");
  ASSERT_TRUE(known);
  EXPECT_FALSE(known_engine("llama.cpp", "gpu"));
  EXPECT_FALSE(known_engine("other", "cpu"));
  for (const auto& [name, value] :
       {std::pair{"model", "/m/{x}.gguf"}, std::pair{"context", "512"}, std::pair{"slots", "1"}}) {
    fill_in(known->entry, name, value);
  }
  EXPECT_THAT(known->entry.command, testing::IsSupersetOf({"/m/{x}.gguf", "512", "1", "{port}"}));
  EXPECT_THAT(known->entry.command, Not(Contains("{model}")));
  EXPECT_EQ(known->entry.provisioning.mode, ProvisioningMode::kPackage);
}

TEST_F(PlanTest, KeysAreReadableByNobodyElse) {
  EngineConfig hosted;
  hosted.name = "e";
  hosted.engine = "openai";
  hosted.endpoint = "https://x";
  hosted.api_key_file = (dir_ / "key").string();
  EXPECT_TRUE(plan(hosted, machine_)[0].missing);
  std::ofstream(dir_ / "key") << "k";
  fs::permissions(dir_ / "key", fs::perms::owner_read | fs::perms::others_read);
  EXPECT_EQ(plan(hosted, machine_)[0].what_to_do, "chmod 600 " + (dir_ / "key").string());
  fs::permissions(dir_ / "key", fs::perms::owner_read);
  EXPECT_FALSE(plan(hosted, machine_)[0].missing);
  hosted.command = {"/no/such/program"};
  hosted.device = "cpu";
  EXPECT_TRUE(plan(hosted, machine_)[2].missing);
}

}  // namespace
}  // namespace llorch::adapter::setup
