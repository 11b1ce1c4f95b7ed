#include "config/engine_rules.h"

#include <gtest/gtest.h>

#include <vector>

namespace llorch::config {
namespace {

const std::string kSum = "sha256:" + std::string(64, 'a');

EngineConfig started(std::string kind, std::vector<std::string> command, std::string device = "0") {
  EngineConfig out;
  out.name = "e";
  out.engine = std::move(kind);
  out.command = std::move(command);
  out.device = std::move(device);
  return out;
}
std::string field_of(const EngineConfig& engine) {
  const auto rule = broken_rule(engine);
  return rule ? rule->field : "";
}

// ORCH-3832: on a GPU nothing of a model stays in the host's memory; the CPU runs it where it is named.
TEST(EngineRules, GpuOnly) {
  EXPECT_EQ(field_of(started("llamacpp", {"/x", "--n-gpu-layers", "999"})), "");
  EXPECT_EQ(field_of(started("llamacpp", {"/x", "-ngl", "all"})), "");
  EXPECT_EQ(field_of(started("llamacpp", {"/x", "--gpu-layers=1000"})), "");
  EXPECT_EQ(field_of(started("llamacpp", {"/x"})), "command");
  EXPECT_EQ(field_of(started("llamacpp", {"/x", "-ngl", "32"})), "command");
  EXPECT_EQ(field_of(started("llamacpp", {"/x", "-ngl", "999", "--no-kv-offload"})), "command");
  EXPECT_EQ(field_of(started("llamacpp", {"/x", "-ngl", "999", "--override-tensor=exps=CPU"})), "command");
  EXPECT_EQ(field_of(started("vllm", {"/x", "--cpu-offload-gb", "4"})), "command");
  EXPECT_EQ(field_of(started("vllm", {"/x", "--device", "cpu"})), "command");
  EXPECT_EQ(field_of(started("vllm", {"/x"})), "");
  EXPECT_EQ(field_of(started("llamacpp", {"/x", "-ngl", "0"}, "cpu")), "");
  for (const char* name : {"LLORCH_SPAWN_TOKEN", "CUDA_VISIBLE_DEVICES", "A=B", ""}) {
    auto named = started("vllm", {"/x"});
    named.environment[name] = "1";
    EXPECT_EQ(field_of(named), "environment") << name;
  }
  auto unified = started("llamacpp", {"/x", "-ngl", "999"});
  unified.environment["GGML_CUDA_ENABLE_UNIFIED_MEMORY"] = "1";
  EXPECT_EQ(field_of(unified), "environment");
}

// OC-CONFIG-6025: a URL and a checksum, both
TEST(EngineRules, Binary) {
  auto engine = started("tgi", {"{engine}/bin/x"});
  EXPECT_EQ(field_of(engine), "command");  // nothing is installed that {engine} could be
  engine.provisioning.mode = ProvisioningMode::kBinary;
  EXPECT_EQ(field_of(engine), "provisioning.binary.url");
  engine.provisioning.binary.url = "https://host/x.tar.gz";
  EXPECT_EQ(field_of(engine), "provisioning.binary.checksum");
  engine.provisioning.binary.checksum = kSum;
  EXPECT_EQ(field_of(engine), "");
  engine.provisioning.binary.url = "https://user@host/x.tar.gz";
  EXPECT_EQ(field_of(engine), "provisioning.binary.url");
  engine.device.clear();
  EXPECT_EQ(field_of(engine), "device");
}

// OC-CONFIG-6024: a name, a version and a checksum, and of everything it needs as well
TEST(EngineRules, Package) {
  auto engine = started("vllm", {"{engine}/bin/vllm"});
  engine.provisioning.mode = ProvisioningMode::kPackage;
  engine.provisioning.package = {.name = "vllm", .version = "1.0", .checksum = kSum};
  EXPECT_EQ(field_of(engine), "");
  engine.provisioning.package.dependencies = {"numpy==2.0.1 " + kSum};
  EXPECT_EQ(field_of(engine), "");
  for (const std::string& bad :
       std::vector<std::string>{"numpy==2.0.1", "numpy " + kSum, "-x==1 " + kSum, "numpy==1 md5:aa"}) {
    engine.provisioning.package.dependencies = {bad};
    EXPECT_EQ(field_of(engine), "provisioning.package.dependencies") << bad;
  }
  engine.provisioning.package = {.name = "--index-url=x", .version = "1.0", .checksum = kSum};
  EXPECT_EQ(field_of(engine), "provisioning.package.name");
}

// OC-CONFIG-6023: an image with a tag or, better, a digest
TEST(EngineRules, Container) {
  auto engine = started("tgi", {});
  engine.provisioning.mode = ProvisioningMode::kContainer;
  engine.provisioning.container = {.image = "registry.example/tgi", .tag = "3.0"};
  EXPECT_EQ(field_of(engine), "");
  engine.provisioning.container.tag = "";
  EXPECT_EQ(field_of(engine), "provisioning.container.digest");
  engine.provisioning.container.digest = kSum;
  EXPECT_EQ(field_of(engine), "");
  engine.provisioning.container.volumes = {"/srv:/etc"};
  EXPECT_EQ(field_of(engine), "provisioning.container.volumes");
  engine.provisioning.container = {.image = "--privileged", .tag = "x"};
  EXPECT_EQ(field_of(engine), "provisioning.container.image");
}

// OC-CONFIG-6022: a repository, a commit, and how it is built
TEST(EngineRules, Source) {
  auto engine = started("llamacpp", {"{engine}/build/bin/llama-server"}, "cpu");
  engine.provisioning.mode = ProvisioningMode::kSource;
  engine.provisioning.source = {.repo = "https://host/llama.cpp", .ref = std::string(40, 'b')};
  EXPECT_EQ(field_of(engine), "");
  engine.provisioning.source.build.cmake_flags = {"-DGGML_NATIVE=ON"};
  EXPECT_EQ(field_of(engine), "");
  engine.provisioning.source.build.cmake_flags = {"-P", "evil.cmake"};
  EXPECT_EQ(field_of(engine), "provisioning.source.build.cmake_flags");
  engine.provisioning.source = {.repo = "https://host/llama.cpp", .ref = "master"};
  EXPECT_EQ(field_of(engine), "provisioning.source.ref");
  engine.provisioning.source = {.repo = "ext::sh -c x", .ref = std::string(40, 'b')};
  EXPECT_EQ(field_of(engine), "provisioning.source.repo");
}

}  // namespace
}  // namespace llorch::config
