#include "engine/inference/devices/open_devices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "engine/compute/cuda/backend.h"
#include "engine/inference/engine.h"
#include "engine/inference/testing/tiny_engine.h"

namespace llorch::engine::inference::devices {
namespace {

TEST(DeviceNames, AreTheCpuOrNumbersOfGpus) {
  for (const char* names : {"cpu", "cpu,cpu", "0", "cuda:0", "0,1", "cuda:0,1", "3,2,1,0"})
    EXPECT_EQ(check_names(names), "") << names;
  for (const char* names : {"", "cpu,", "cpu,0", "0,cpu", "0,0", "gpu", "0,,1"})
    EXPECT_NE(check_names(names), "") << names;
  EXPECT_EQ(check_names("0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"), "names 17 devices; at most 16 can share a model");
  EXPECT_TRUE(names_cpu("cpu,cpu"));
  EXPECT_FALSE(names_cpu("0,1"));
}

TEST(OpenDevices, OneCpuHasNoCollective) {
  const OpenDevices open = open_devices({.names = "cpu", .cpu_threads_count = 2}).value();
  EXPECT_EQ(open.backends.size(), 1U);
  EXPECT_EQ(open.of_engine().collective, nullptr);
  EXPECT_EQ(open.memory_used_bytes(), std::vector<std::uint64_t>{0});
}

TEST(OpenDevices, SeveralCpusHaveACollective) {
  const OpenDevices open =
      open_devices({.names = "cpu,cpu,cpu", .cpu_threads_count = 2, .memory_budget_bytes = {1000, 2000}}).value();
  ASSERT_EQ(open.backends.size(), 3U);
  EXPECT_EQ(devices_count("cpu,cpu,cpu"), 3U);
  EXPECT_EQ(open.of_engine().collective->ranks(), 3U);
  EXPECT_EQ(open.backends[0]->memory_budget_bytes(), 1000U);
  EXPECT_EQ(open.backends[1]->memory_budget_bytes(), 2000U);
  EXPECT_GT(open.backends[2]->memory_budget_bytes(), 1ULL << 60) << "nobody has limited the third";
  std::byte* const memory = open.backends[1]->allocate(640, plan::MemoryPurpose::kState).value();
  EXPECT_EQ(open.memory_used_bytes(), (std::vector<std::uint64_t>{0, 640, 0}));
  open.backends[1]->release(memory);
}

// SYS-3.3.1: devices need not have the same room; each rank has as much as its own part takes and not a byte more.
TEST(OpenDevices, EveryRankHasABudgetOfItsOwn) {
  const testing::ModelFile file(models::testing::TinyLlama{
      .layers = 1, .types = {{"blk.0.ffn_down.weight", plan::DType::kQ8_0}}});  // three blocks: two and one
  const auto open = [](std::vector<std::uint64_t> budgets) {
    return open_devices({.names = "cpu,cpu", .cpu_threads_count = 2, .memory_budget_bytes = std::move(budgets)})
        .value();
  };
  const auto plans = Engine::predict(file.path(), {.slots = 2}, open({}).of_engine()).value();
  const std::vector<std::uint64_t> needs{plans[0].required_bytes(), plans[1].required_bytes()};
  ASSERT_GT(needs[0], needs[1]);
  const OpenDevices enough = open(needs);
  const auto engine = Engine::load(file.path(), {.slots = 2}, enough.of_engine());
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ(enough.memory_used_bytes(), needs);
  EXPECT_EQ((*engine)->memory_used_bytes(), needs);
  for (const std::uint32_t rank : {0U, 1U}) {
    std::vector<std::uint64_t> budgets = needs;
    --budgets[rank];
    const OpenDevices small = open(budgets);
    const auto refused = Engine::load(file.path(), {.slots = 2}, small.of_engine());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kOutOfDeviceMemory);
    EXPECT_TRUE(refused.error().message.starts_with("device " + std::to_string(rank) + " of 2: "))
        << refused.error().message;
    EXPECT_EQ(small.memory_used_bytes(), (std::vector<std::uint64_t>{0, 0}));
  }
}

// Without the GPU it names there is no other.
TEST(OpenDevices, NoDeviceStandsInForAnother) {
  const auto open = open_devices({.names = "97,98"});
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, base::ErrorCode::kGpuUnavailable);
}

// Kernels of a GPU hold a row's scores, choices and groups in arrays of their own: who only plans for one hears of it too.
TEST(Planner, MoreExpertsThanAGpusKernelsHoldAreRefused) {
  const auto code_of = [](std::uint32_t experts, plan::Backend& backend) {
    const std::map<std::string, std::vector<std::uint64_t>> shapes{{"blk.0.ffn_gate_inp.weight", {64, experts}},
                                                                   {"blk.0.ffn_gate_exps.weight", {64, 1, experts}},
                                                                   {"blk.0.ffn_up_exps.weight", {64, 1, experts}},
                                                                   {"blk.0.ffn_down_exps.weight", {1, 64, experts}}};
    const testing::ModelFile file(models::testing::TinyLlama{
        .layers = 1,
        .ffn = 1,
        .overrides = {{"llama.expert_count", experts}, {"llama.expert_used_count", std::uint32_t{2}}},
        .without = {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"},
        .shapes = shapes});
    const auto predicted = Engine::predict(file.path(), {}, backend);
    return predicted ? "" : std::string(predicted.error().name()) + ": " + predicted.error().message;
  };
  const auto cpu = open_devices({.names = "cpu", .cpu_threads_count = 1}).value();
  const auto gpu = compute::cuda::make_cuda_planner();
  EXPECT_EQ(code_of(1025, *cpu.backends[0]), "");
  EXPECT_EQ(code_of(1024, *gpu), "");
  EXPECT_EQ(code_of(1025, *gpu),
            "UNSUPPORTED_OPCODE: moe with more than 1024 experts, 64 choices of a row or 64 groups is not supported by "
            "the CUDA device");
}

// A directory that is gone with the object.
struct KeptDirectory {
  KeptDirectory() {
    char name[] = "/tmp/llorch-kept-XXXXXX";
    path = mkdtemp(name);
  }
  ~KeptDirectory() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

// Weights that were kept as packed give the bits that packing them gives, on one device and on two that share the
// model; damaged ones are never computed with.
TEST(KeptWeights, GiveTheSameBitsOrAreNotUsed) {
  const testing::ModelFile file(
      models::testing::TinyLlama{.layers = 2, .types = {{"blk.0.ffn_down.weight", plan::DType::kQ8_0}}});
  for (const char* names : {"cpu", "cpu,cpu"}) {
    SCOPED_TRACE(names);
    const KeptDirectory directory;
    const repack_cache::RepackCache cache({.directory = directory.path, .bytes_max = 1 << 30, .free_bytes_min = 0});
    const std::string digest(64, 'a');
    std::vector<std::uint64_t> used;
    const auto load = [&](const OpenDevices& open) {
      auto engine =
          Engine::load(file.path(), {.repack_cache = &cache, .model_digest = digest}, open.of_engine()).value();
      EXPECT_TRUE(used.empty() || used == engine->memory_used_bytes());
      used = engine->memory_used_bytes();
      return engine;
    };
    const auto bits = [](Engine& engine) {
      const auto logits = std::as_bytes(engine.prefill(0, testing::many(9)).value());
      return std::vector<std::byte>(logits.begin(), logits.end());
    };
    const OpenDevices open = open_devices({.names = names, .cpu_threads_count = 2}).value();
    std::vector<std::byte> packed;
    {
      const auto engine = load(open);
      EXPECT_FALSE(engine->facts().weights_were_kept);
      EXPECT_NE(engine->facts().weights_not_kept_why.find("are kept yet"), std::string::npos);
      packed = bits(*engine);
      EXPECT_GT(engine->keep_weights(cache, digest, {}).value().bytes, 0U);
      EXPECT_TRUE(engine->keep_weights(cache, digest, {}).value().already);
    }
    {
      const auto engine = load(open);
      EXPECT_TRUE(engine->facts().weights_were_kept) << engine->facts().weights_not_kept_why;
      EXPECT_EQ(bits(*engine), packed);
    }
    for (const auto& entry : std::filesystem::directory_iterator(directory.path)) {
      if (entry.path().extension() != ".packed") continue;
      std::fstream damaged(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      damaged.seekp(-1, std::ios::end);
      damaged.put('\x55');
    }
    const auto engine = load(open);
    EXPECT_FALSE(engine->facts().weights_were_kept);
    EXPECT_NE(engine->facts().weights_not_kept_why.find("checksum"), std::string::npos)
        << engine->facts().weights_not_kept_why;
    EXPECT_EQ(bits(*engine), packed);
    EXPECT_EQ(cache.used_bytes(), 0U) << "what is damaged is removed";
  }
}

// A model whose digest nobody knows is loaded from its files.
TEST(KeptWeights, NeedADigest) {
  const testing::ModelFile file;
  const KeptDirectory directory;
  const repack_cache::RepackCache cache({.directory = directory.path, .bytes_max = 1 << 30, .free_bytes_min = 0});
  const OpenDevices open = open_devices({.names = "cpu"}).value();
  const auto engine = Engine::load(file.path(), {.repack_cache = &cache}, open.of_engine()).value();
  EXPECT_NE(engine->facts().weights_not_kept_why.find("digest"), std::string::npos);
}

}  // namespace
}  // namespace llorch::engine::inference::devices
