// Predicted memory against the growth of a process that loads the model and fills every slot.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/compute/cpu/backend.h"
#include "engine/inference/engine.h"
#include "engine/models/gguf_write/write_gguf.h"
#include "engine/models/synth/synth_model.h"

namespace llorch {
namespace {

using base::Result;
using base::TokenId;
using engine::inference::Engine;
using engine::inference::EngineOptions;
using engine::models::SynthShape;
using engine::plan::DType;

constexpr std::uint64_t kBytesMin = 500'000'000;  // below, what a process takes for itself would count

struct Setting {
  const char* name;
  const char* architecture;
  SynthShape shape;
  DType type;
  EngineOptions options;
  bool cheap = false;
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

// clang-format off
const Setting kSettings[] = {
    {"cache_of_two_slots", "llama", {.layers = 8, .width = 512, .heads = 8, .kv_heads = 8, .head_dim = 64, .ffn = 1024, .vocab = 512, .context = 65536}, DType::kF16,
     {.context_tokens = 20000, .slots = 2}, true},
    {"windows_of_sixteen_slots", "gemma3", {.layers = 12, .width = 512, .heads = 4, .kv_heads = 2, .head_dim = 128, .ffn = 1024, .vocab = 512, .context = 65536, .window = 1024}, DType::kF16,
     {.context_tokens = 16384, .slots = 16, .prefill_chunk = 64}, true},
    {"dense_q8_0", "llama", {.layers = 16, .width = 2048, .heads = 32, .kv_heads = 8, .ffn = 8192, .vocab = 128256, .context = 131072, .tied = true}, DType::kQ8_0,
     {.context_tokens = 4096, .slots = 8, .prefill_chunk = 64}},
    {"dense_f16_shared_cache", "qwen3", {.layers = 28, .width = 1024, .heads = 16, .kv_heads = 8, .head_dim = 128, .ffn = 3072, .vocab = 151936, .context = 40960, .tied = true}, DType::kF16,
     {.context_tokens = 4096, .slots = 8, .kv_tokens = 8192}},
    {"dense_q4_0_f32_cache", "qwen2", {.layers = 24, .width = 896, .heads = 14, .kv_heads = 2, .ffn = 4864, .vocab = 151936, .context = 32768, .tied = true}, DType::kQ4_0,
     {.context_tokens = 8192, .slots = 2, .kv_dtype = DType::kF32}},
    {"mixture_q4_k", "qwen3moe", {.layers = 6, .width = 1024, .heads = 16, .kv_heads = 4, .head_dim = 128, .ffn = 3072, .vocab = 32000, .context = 40960, .experts = 64, .experts_used = 8, .expert_ffn = 768}, DType::kQ4_K,
     {.context_tokens = 8192, .slots = 4, .prefill_chunk = 256}},
    {"mixture_with_windows", "gpt-oss", {.layers = 6, .width = 1440, .heads = 16, .kv_heads = 4, .head_dim = 64, .vocab = 64000, .context = 131072, .experts = 16, .experts_used = 4, .expert_ffn = 1440, .window = 128}, DType::kQ8_0,
     {.context_tokens = 32768, .slots = 3}},
    {"latent_attention", "deepseek2", {.layers = 8, .width = 1024, .heads = 16, .ffn = 4096, .vocab = 64000, .context = 65536, .experts = 16, .experts_used = 4, .expert_ffn = 768, .shared_experts = 2, .dense_layers = 1, .q_rank = 0, .kv_rank = 512}, DType::kQ8_0,
     {.context_tokens = 32768, .slots = 2, .prefill_chunk = 128}},
    {"hybrid", "granitehybrid", {.layers = 10, .width = 1024, .heads = 8, .kv_heads = 4, .vocab = 64000, .context = 131072, .experts = 32, .experts_used = 6, .expert_ffn = 512, .shared_experts = 2, .state = 128, .mixer_heads = 32, .attention_period = 5, .tied = true}, DType::kQ8_0,
     {.context_tokens = 16384, .slots = 12}},
    {"recurrent_slots", "mamba2", {.layers = 24, .width = 1024, .vocab = 50288, .state = 128, .mixer_heads = 32, .tied = true}, DType::kQ8_0,
     {.context_tokens = 4096, .slots = 24}},
};
// clang-format on

std::vector<Setting> settings() {
  std::vector<Setting> result;
  for (const Setting& setting : kSettings) {
    if (setting.cheap || std::getenv("LLORCH_ALL_MEMORY_SETTINGS") != nullptr) result.push_back(setting);
  }
  return result;
}

Result<> write_model(const Setting& setting, const std::filesystem::path& path) {
  const auto model =
      TRY(engine::models::synth_model({.architecture = setting.architecture, .shape = setting.shape, .seed = 1}));
  const auto types = TRY(engine::models::choose_types(model, {.type = setting.type}));
  TRY(engine::models::write_gguf(model, types, setting.type, path, {.threads = 2}));
  return {};
}

// Private memory of this process, without mapped files.
std::int64_t rss_anon_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

struct Measured {
  std::int64_t predicted_bytes = 0;
  std::int64_t grown_bytes = 0;
};

// Loads, runs a prompt in every slot and a step of all.
Result<Measured> measure(const std::filesystem::path& model, const EngineOptions& options) {
  auto backend = TRY(engine::compute::cpu::make_cpu_backend({.threads_count = 2, .memory_budget_bytes = 1ULL << 40}));
  const std::int64_t before = rss_anon_bytes();
  auto engine = TRY(Engine::load(model, options, *backend));
  std::vector<TokenId> prompt(70, TokenId{7});
  for (std::uint32_t slot = 0; slot < options.slots; ++slot) TRY(engine->prefill(slot, prompt));
  std::vector<engine::inference::SlotRows> all;
  for (std::uint32_t slot = 0; slot < options.slots; ++slot) all.push_back({slot, std::span(prompt).first(1)});
  TRY(engine->step(all));
  return Measured{.predicted_bytes = static_cast<std::int64_t>(engine->memory_plan().total_bytes()),
                  .grown_bytes = rss_anon_bytes() - before};
}

// In a process of its own, so that nothing was freed before that could be used again.
Measured measure_apart(const std::filesystem::path& model, const EngineOptions& options) {
  int fds[2];
  EXPECT_EQ(::pipe(fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto measured = measure(model, options);
    if (!measured) {
      fmt::print(stderr, "{}\n", measured.error().message);
      ::_exit(1);
    }
    ::_exit(::write(fds[1], &*measured, sizeof *measured) == sizeof *measured ? 0 : 1);
  }
  ::close(fds[1]);
  Measured measured;
  EXPECT_EQ(::read(fds[0], &measured, sizeof measured), static_cast<ssize_t>(sizeof measured));
  ::close(fds[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return measured;
}

class Prediction : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    char name[] = "/tmp/llorch-memory-XXXXXX";
    directory_ = ::mkdtemp(name);
    const auto written = write_model(GetParam(), file());
    ASSERT_TRUE(written) << written.error().message;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path file() const { return directory_ / "model.gguf"; }

  std::filesystem::path directory_;
};

TEST_P(Prediction, IsWhatTheProcessGrowsBy) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory counts";
#endif
  const Setting& setting = GetParam();
  const Measured measured = measure_apart(file(), setting.options);
  EXPECT_GE(measured.predicted_bytes, static_cast<std::int64_t>(kBytesMin));
  const double off = static_cast<double>(measured.grown_bytes - measured.predicted_bytes) /
                     static_cast<double>(measured.predicted_bytes);
  EXPECT_LT(std::fabs(off), 0.03) << measured.predicted_bytes << " predicted, " << measured.grown_bytes << " grown";
  RecordProperty("off", fmt::format("{:+.2f} %", 100 * off));
  if (const char* rows = std::getenv("LLORCH_MEMORY_ROWS")) {
    std::ofstream(rows, std::ios::app) << fmt::format("| {} | {} | {} | {} | {} | {} | {:+.2f} % |\n", setting.name,
                                                      setting.architecture, setting.options.context_tokens,
                                                      setting.options.slots, measured.predicted_bytes,
                                                      measured.grown_bytes, 100 * off);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Prediction, testing::ValuesIn(settings()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace llorch
