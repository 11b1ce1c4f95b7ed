// Models in FP8, made from the families' fixtures: on the emulated device, which keeps the bytes, against the CPU device, which
// widens them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <fstream>

#include "cuda_support.h"
#include "engine/compute/cuda/backend.h"
#include "engine/inference/parallel/host_collective.h"
#include "engine/io/model_files.h"
#include "engine/io/quant/dequant.h"
#include "engine/io/quant/fp8.h"
#include "pool_managerd/model_catalog/model_inspector.h"

namespace llorch::cuda_test {
namespace {

using engine::compute::cuda::emulation::make_backend;
using engine::plan::DType;
using engine::plan::MemoryPurpose;
using golden::relative_error;
using golden::same_bits;

constexpr std::uint64_t kBlock = 128;
constexpr float kLargest = 448;

// The code next to a value.
std::uint8_t f8_of(float value) {
  std::uint8_t best = 0;
  for (std::uint8_t code = 1; code < 0x7F; ++code)
    if (std::fabs(engine::io::f8_e4m3_to_f32(code) - std::fabs(value)) <
        std::fabs(engine::io::f8_e4m3_to_f32(best) - std::fabs(value)))
      best = code;
  return value < 0 ? static_cast<std::uint8_t>(best | 0x80) : best;
}

struct Entry {
  std::string name, type, shape;
  std::vector<std::byte> bytes;
};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto view = std::as_bytes(std::span(values));
  return {view.begin(), view.end()};
}

// A matrix as codes, and a scale for every 128 x `of_scale` of them.
void add_f8(const engine::io::FileTensor& tensor, std::uint64_t of_scale, std::vector<Entry>& entries) {
  const std::uint64_t rows = tensor.dims[0], cols = tensor.dims[1], across = (cols + of_scale - 1) / of_scale;
  std::vector<float> values(rows * cols), scales((rows + kBlock - 1) / kBlock * across);
  engine::io::dequantize_row(*engine::io::dtype_of(tensor.type), tensor.data.read_all().value(), values);
  const auto scale_of = [&](std::uint64_t i) -> float& {
    return scales[i / cols / kBlock * across + i % cols / of_scale];
  };
  for (std::uint64_t i = 0; i < values.size(); ++i)
    scale_of(i) = std::max(scale_of(i), std::fabs(values[i]) / kLargest);
  const std::string name(tensor.name);
  if (name.find(".attn.w") != name.npos || name.find(".ffn.") != name.npos)  // as these models have them
    for (float& scale : scales) scale = std::exp2(std::ceil(std::log2(scale)));
  std::vector<std::uint8_t> codes;
  for (std::uint64_t i = 0; i < values.size(); ++i) codes.push_back(f8_of(values[i] / scale_of(i)));
  entries.push_back({name, "F8_E4M3", fmt::format("[{},{}]", rows, cols), bytes_of(codes)});
  entries.push_back(
      {name + "_scale_inv", "F32", fmt::format("[{},{}]", scales.size() / across, across), bytes_of(scales)});
}

bool is_projection(std::string_view name) {
  return name.ends_with("_proj.weight") || name.find(".attn.w") != name.npos || name.find("experts.") != name.npos;
}

// The fixture with its projections in FP8, as the models that come in it are stored.
Model in_f8(const std::string& name, std::uint64_t of_scale = kBlock) {
  Model model = read_model(name);
  const auto files = engine::io::ModelFiles::open(model.path).value();
  std::vector<Entry> entries;
  for (const engine::io::FileTensor& tensor : files.tensors()) {
    if (tensor.rank == 2 && is_projection(tensor.name)) {
      add_f8(tensor, of_scale, entries);
      continue;
    }
    entries.push_back({std::string(tensor.name), std::string(engine::io::stored_type_info(tensor.type).name),
                       fmt::format("[{}]", fmt::join(tensor.shape(), ",")), tensor.data.read_all().value()});
  }
  std::string header;
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", header.empty() ? "{" : ",",
                          entry.name, entry.type, entry.shape, at, at + entry.bytes.size());
    at += entry.bytes.size();
  }
  header += "}";
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / fmt::format("f8_{}_{}_{}", name, of_scale, ::getpid());
  std::filesystem::create_directories(directory);
  std::ofstream weights(directory / "model.safetensors", std::ios::binary);
  const std::uint64_t length = header.size();
  weights.write(reinterpret_cast<const char*>(&length), sizeof length);
  weights << header;
  for (const Entry& entry : entries)
    weights.write(reinterpret_cast<const char*>(entry.bytes.data()), static_cast<std::streamsize>(entry.bytes.size()));
  std::ifstream stored(model.path / "config.json");
  std::string config(std::istreambuf_iterator<char>(stored), {});
  config.insert(
      config.find('{') + 1,
      fmt::format(R"("quantization_config":{{"quant_method":"fp8","weight_block_size":[128,{}]}},)", of_scale));
  std::ofstream(directory / "config.json") << config;
  model.path = directory;
  return model;
}

// Of the second from the first, mean over rows.
double mean_kl(std::span<const float> p, std::span<const float> q, std::uint32_t vocab) {
  double sum = 0;
  for (std::size_t row = 0; row < p.size(); row += vocab) {
    const auto log_sum = [&](std::span<const float> logits) {
      double total = 0;
      for (std::uint32_t i = 0; i < vocab; ++i) total += std::exp(double{logits[row + i]});
      return std::log(total);
    };
    const double p_sum = log_sum(p), q_sum = log_sum(q);
    for (std::uint32_t i = 0; i < vocab; ++i)
      sum += std::exp(p[row + i] - p_sum) * (p[row + i] - p_sum - (q[row + i] - q_sum));
  }
  return sum * vocab / static_cast<double>(p.size());
}

class F8 : public testing::TestWithParam<std::string> {
 protected:
  Model model_ = in_f8(GetParam());
};

// The bounds that every model has: mean KL 1e-4, and 1e-2 of the largest logit. What differs here is the CPU device's
// rounding of code times scale to the eight bits of BF16 (docs/internals/numerics-cuda.md). One row at a time, threads
// backwards, graphs: the same bits.
TEST_P(F8, AgreesWithTheCpuDevice) {
  const auto cpu =
      engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1u << 30}).value();
  const std::vector<float> expected = logits_of(model_, {}, *cpu);
  const auto device = make_backend({}), backwards = make_backend({.backwards = true});
  const std::vector<float> logits = logits_of(model_, {}, *device);
  const double error = relative_error(logits, expected), kl = mean_kl(expected, logits, model_.reference.vocab);
  RecordProperty("relative_error", fmt::format("{:.3g}", error));
  RecordProperty("mean_kl", fmt::format("{:.3g}", kl));
  EXPECT_LE(error, 1e-2);
  EXPECT_LE(kl, 1e-4);
  EXPECT_GT(error, 0);
  EXPECT_TRUE(same_bits(logits_of(model_, {.chunk = 1}, *backwards), logits));
  EXPECT_TRUE(same_bits(logits_of(model_, {.chunk = 7}, *device), logits));
}

// Its stacks are stored as one matrix. From the twentieth row on an index chooses by rounding.
TEST(F8OfCompressedAttention, StaysAByteAWeight) {
  const Model model = in_f8("deepseek_v4_mixed_hf");
  const auto cpu =
      engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1u << 30}).value();
  const auto device = make_backend({});
  const std::size_t count = std::size_t{20} * model.reference.vocab;
  const std::vector<float> expected = logits_of(model, {}, *cpu), logits = logits_of(model, {}, *device);
  EXPECT_LE(relative_error(std::span(logits).first(count), std::span(expected).first(count)), 1e-2);
  const auto engine = load(model, {}, {.backends = {device.get()}});
  EXPECT_EQ(engine->memory_plan(0).widened_bytes, 0U);
  EXPECT_EQ(engine->memory_plan(0).weight_dtype, DType::kF8_E4M3);
}

// Each has whole blocks of scales, or a part of one, and nothing is widened.
TEST_P(F8, IsSharedByTwoDevices) {
  const auto first = make_backend({}), second = make_backend({.backwards = true}), alone = make_backend({});
  const std::array<engine::plan::Backend*, 2> backends{first.get(), second.get()};
  engine::inference::parallel::HostCollective sums(backends);
  const auto score = [&](std::uint32_t chunk) {
    const auto engine = load(model_, {.chunk = chunk}, {.backends = {first.get(), second.get()}, .collective = &sums});
    for (const std::uint32_t rank : {0U, 1U}) {
      const auto& plan = engine->memory_plan(rank);
      EXPECT_EQ(plan.widened_bytes, 0U);
      EXPECT_EQ(plan.weight_dtype, DType::kF8_E4M3);
      EXPECT_EQ(plan.total_bytes() - plan.sums_bytes, backends[rank]->memory_used_bytes());  // summed on the host
    }
    std::vector<float> logits;
    EXPECT_TRUE(engine->score(0, model_.reference.tokens, [&](std::size_t, std::span<const float> row) {
      logits.insert(logits.end(), row.begin(), row.end());
    }));
    return logits;
  };
  const std::vector<float> logits = score(128);
  EXPECT_LE(relative_error(logits, logits_of(model_, {}, *alone)), 1e-2);
  EXPECT_TRUE(same_bits(score(7), logits));
}

// A byte a weight, as was predicted.
TEST_P(F8, IsNotWidenedOnTheDevice) {
  using engine::inference::Engine;
  const engine::inference::EngineOptions options{.context_tokens = 64};
  const auto predicted = Engine::predict(model_.path, options, *engine::compute::cuda::make_cuda_planner()).value();
  const auto backend = make_backend({});
  const auto engine = Engine::load(model_.path, options, *backend).value();
  EXPECT_EQ(predicted.total_bytes(), backend->memory_used_bytes());
  const auto files = engine::io::ModelFiles::open(model_.path).value();
  std::uint64_t others = 0, f8 = 0;
  for (const engine::io::FileTensor& tensor : files.tensors()) {
    if (tensor.type != engine::io::StoredType::kF8_E4M3) {
      others += tensor.data.size();
      continue;
    }
    // Whole groups of sixteen rows, whole blocks of columns.
    f8 += (tensor.dims[0] + 15) / 16 * 16 * ((tensor.dims[1] + kBlock - 1) / kBlock * (kBlock + 2) + 4);
  }
  EXPECT_GT(f8, 0U);
  EXPECT_GE(backend->used_bytes(MemoryPurpose::kWeights), f8);
  // The rest: sixteen bits as they are in rows of whole 128 columns, vectors in f32.
  EXPECT_LE(backend->used_bytes(MemoryPurpose::kWeights), f8 + 4 * others);
}

// What has two scales in 128 columns is BF16, and is said to be; so is all of it on a device without kernels for FP8. Of either
// kind the prediction is what a load takes.
TEST_P(F8, IsCountedWhereItIsWidened) {
  using engine::inference::Engine;
  const engine::inference::EngineOptions options{.context_tokens = 64};
  const Model odd = in_f8(GetParam(), 80);
  const auto gpu = make_backend({});
  const auto cpu =
      engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1u << 30}).value();
  const auto plan_on = [&](const Model& model, engine::plan::Backend& backend) {
    const auto plan = Engine::predict(model.path, options, backend).value();
    const auto engine = Engine::load(model.path, options, backend).value();
    EXPECT_EQ(plan.total_bytes(), backend.memory_used_bytes());
    EXPECT_EQ(engine->memory_plan().widened_bytes, plan.widened_bytes);
    EXPECT_EQ(engine->facts().weight_type, engine::plan::dtype_info(plan.weight_dtype).name);
    return plan;
  };
  const auto kept = plan_on(model_, *gpu), part = plan_on(odd, *gpu), none = plan_on(model_, *cpu);
  EXPECT_EQ(kept.widened_bytes, 0U);
  EXPECT_GT(part.widened_bytes, 0U);
  EXPECT_GT(part.weights_bytes, kept.weights_bytes);
  EXPECT_LT(part.widened_bytes, part.weights_bytes);
  EXPECT_GT(none.widened_bytes, part.widened_bytes / 2);
  EXPECT_EQ(kept.weight_dtype, DType::kF8_E4M3);
  EXPECT_EQ(none.weight_dtype, DType::kBF16);
}

// ORCH-3052: what is said of a model is what its weights are where it runs.
TEST_P(F8, TheCatalogueNamesTheTypeOnTheDevice) {
  using pool_managerd::model_catalog::DeviceKind;
  const auto inspector = pool_managerd::model_catalog::make_engine_inspector({.threads_count = 1});
  const auto on_gpu = inspector->inspect(model_.path, {}, DeviceKind::kCuda).value();
  EXPECT_EQ(on_gpu.quant_kind, "F8_E4M3");
  EXPECT_EQ(on_gpu.memory[0].widened_bytes, 0);
  const auto on_cpu = inspector->inspect(model_.path, {}, DeviceKind::kCpu).value();
  EXPECT_EQ(on_cpu.quant_kind, "BF16");
  EXPECT_GT(on_cpu.memory[0].widened_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Cuda, F8, testing::Values("llama3_hf", "qwen3_moe_sparse_hf", "deepseek_v3_hf"),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

}  // namespace
}  // namespace llorch::cuda_test
