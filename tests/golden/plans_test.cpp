// The compiled plan of every family in both formats as text. LLORCH_UPDATE_GOLDEN=1 rewrites the files.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "engine/models/model.h"
#include "engine/models/plan_compiler/dump.h"
#include "engine/models/plan_compiler/physical.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

using namespace engine::plan;
using engine::models::CompiledModel;

std::string dump_of(const CompiledModel& model, const CompiledPlan& plan) {
  std::vector<std::string> names;
  for (const engine::models::BoundTensor& tensor : model.tensors) names.push_back(tensor.name);
  const StepLimits limits{.rows_max = 512, .output_rows_max = 1, .slots_max = 1, .context_tokens_max = 512};
  AdapterCapabilities capabilities;
  capabilities[static_cast<std::size_t>(Opcode::kResidualAdd)].may_alias_output = true;
  return engine::models::dump(plan, names) +
         engine::models::dump(engine::models::map_registers(plan, capabilities, limits, *model.arena));
}

std::string dump_of(const std::filesystem::path& path) {
  const auto files = engine::io::ModelFiles::open(path);
  EXPECT_TRUE(files) << files.error().message;
  const auto model = engine::models::compile_model(*files, DType::kF16);
  return model ? dump_of(*model, model->plans.decoder_prefill) : model.error().message;
}

void expect_golden(const std::string& name, const std::string& text) {
  const std::filesystem::path path = repository() / "tests/golden/plans" / name;
  if (std::getenv("LLORCH_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(base::write_file_atomic(path, text, 0644));
    return;
  }
  const auto expected = base::read_file(path, 1U << 20);
  ASSERT_TRUE(expected) << expected.error().message;
  EXPECT_EQ(text, *expected) << name;
}

class Plans : public testing::TestWithParam<const char*> {};

TEST_P(Plans, MatchTheGoldenText) {
  const std::string family = GetParam();
  if (const auto gguf = family_model(family, Format::kGguf)) expect_golden(family + ".txt", dump_of(*gguf));
  expect_golden(family + "_hf.txt", dump_of(*family_model(family, Format::kHuggingFace)));
}

// Plans of models that take images: the tower's, and the prefill's with its scatters.
class VisionPlans : public testing::TestWithParam<const char*> {};

TEST_P(VisionPlans, MatchTheGoldenText) {
  const std::string family = GetParam();
  const auto files = engine::io::ModelFiles::open(*family_model(family, Format::kHuggingFace)).value();
  const auto model = engine::models::compile_model(files, DType::kF16, {.image_rows_max = 64, .image_token = {}});
  ASSERT_TRUE(model) << model.error().message;
  expect_golden(family + "_hf.txt", dump_of(*model, model->plans.decoder_prefill));
  expect_golden(family + "_hf_vision.txt", dump_of(*model, *model->plans.vision_encode));
}

INSTANTIATE_TEST_SUITE_P(Families, VisionPlans, testing::Values("qwen3_vl", "qwen3_vl_moe"),
                         [](const auto& test) { return std::string(test.param); });

INSTANTIATE_TEST_SUITE_P(Families, Plans,
                         testing::Values("llama3", "llama_tied", "mistral", "qwen2", "qwen3", "phi3", "gemma2",
                                         "gemma3", "qwen3_moe", "qwen3_moe_sparse", "gpt_oss", "granite_hybrid",
                                         "mamba2", "lfm2", "deepseek_v2", "deepseek_v3"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace llorch::golden
