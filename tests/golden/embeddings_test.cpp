// Models of embeddings and of scores against a float64 reference of the same stored weights, and against themselves: chunks, threads,
// instruction sets and neighbours never change a bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "engine/inference/continuous_batch.h"
#include "engine/io/model_digest.h"
#include "engine/models/model.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

using base::TokenId;
using engine::inference::ContinuousBatch;
using engine::inference::SequenceId;

// A directory, or the GGUF file in it.
struct Fixture {
  std::string name;
  bool gguf = false;
};

class Embeddings : public testing::TestWithParam<Fixture> {
 protected:
  std::filesystem::path directory() const { return embeddings_directory(GetParam().name); }
  std::filesystem::path model() const { return GetParam().gguf ? directory() / "model.gguf" : directory(); }

  // Each input alone.
  std::vector<std::vector<float>> run(const RunOptions& options) const {
    Device device(model(), options);
    std::vector<std::vector<float>> vectors;
    for (const Embedded& input : inputs_) {
      EXPECT_TRUE(device.engine().reset(0));
      const auto vector = device.engine().prefill(0, input.tokens).value();
      vectors.emplace_back(vector.begin(), vector.end());
    }
    return vectors;
  }
  void expect_same(const std::vector<std::vector<float>>& got) const {
    ASSERT_EQ(got.size(), reference_.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], reference_[i])) << "input " << i;
  }

  std::vector<Embedded> inputs_ = read_vectors(directory() / "vectors.bin");
  std::vector<std::vector<float>> reference_ = run({});
};

TEST_P(Embeddings, AgreeToRounding) {
  // A score may be near 0 for one input: what counts is how far scores of inputs lie apart.
  float largest = 0;
  for (const Embedded& input : inputs_) largest = std::max(largest, std::abs(input.vector.front()));
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    SCOPED_TRACE(inputs_[i].tokens.size());
    ASSERT_EQ(reference_[i].size(), inputs_[i].vector.size());
    if (inputs_[i].vector.size() > 2) {
      EXPECT_LE(relative_error(reference_[i], inputs_[i].vector), 5e-5);
      continue;
    }
    for (std::size_t e = 0; e < inputs_[i].vector.size(); ++e)
      EXPECT_LE(std::abs(reference_[i][e] - inputs_[i].vector[e]), 5e-5F * largest);
  }
}

// SYS-2.3.2, SYS-2.3.4
TEST_P(Embeddings, OneSetOfBits) {
  for (const std::uint32_t chunk : {1U, 7U, 64U}) {
    SCOPED_TRACE(chunk);
    expect_same(run({.chunk = chunk}));
  }
  expect_same(run({.threads = 2}));
  for (const std::string& isa : processor_isas()) {
    SCOPED_TRACE(isa);
    expect_same(run({.chunk = 9, .isa = isa}));
  }
}

// SYS-2.3.4: 64 inputs over eight slots, so that steps are ragged and neighbours come and go.
TEST_P(Embeddings, ABatchIsEachAlone) {
  Device device(model(), {.chunk = 48, .slots = 8});
  ContinuousBatch batch(device.engine(), {.prefill_chunk = 19});
  std::map<SequenceId, std::vector<float>> got;
  for (std::uint64_t id = 0; id < 64; ++id) {
    const Embedded& input = inputs_[id % inputs_.size()];
    ASSERT_TRUE(batch.add(
        {.id = SequenceId{id}, .prompt = input.tokens, .tokens_max = static_cast<std::uint32_t>(input.tokens.size())}));
  }
  const auto keep = [&](SequenceId id, std::span<const float> vector) {
    got[id].assign(vector.begin(), vector.end());
    batch.remove(id);
  };
  while (batch.step(0, keep).value()) {
  }
  ASSERT_EQ(got.size(), 64U);
  for (const auto& [id, vector] : got) {
    const std::size_t input = static_cast<std::uint64_t>(id) % inputs_.size();
    EXPECT_TRUE(same_bits(vector, reference_[input])) << "input " << input;
  }
}

TEST_P(Embeddings, MemoryIsPredictedToTheByte) {
  using engine::inference::Engine;
  const engine::inference::EngineOptions options{.context_tokens = 100, .slots = 3, .prefill_chunk = 7, .draws = true};
  const auto backend =
      engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1ULL << 30}).value();
  const auto predicted = Engine::predict(model(), options, *backend).value();
  const auto engine = Engine::load(model(), options, *backend).value();
  EXPECT_EQ(predicted.total_bytes(), backend->memory_used_bytes());
}

// A model that pools all rows computes them in one step, and says so when it is asked for more of a sequence.
TEST_P(Embeddings, AWholeSequenceTakesNoMore) {
  Device device(model(), {});
  ASSERT_TRUE(device.engine().prefill(0, inputs_[2].tokens));
  const auto more = device.engine().prefill(0, inputs_[2].tokens);
  EXPECT_EQ(more.has_value(), !device.engine().facts().whole_sequences);
  EXPECT_TRUE(more || more.error().code == base::ErrorCode::kInvalidParams);
}

// A directory under another description of its pooling.
class Pooling : public testing::Test {
 protected:
  Pooling() {
    char name[] = "/tmp/llorch-pooling-XXXXXX";
    directory_ = mkdtemp(name);
    std::filesystem::copy(embeddings_directory("qwen3_last"), directory_, std::filesystem::copy_options::recursive);
  }
  ~Pooling() override { std::filesystem::remove_all(directory_); }

  base::Result<engine::plan::Pooling> read(std::string_view json) const {
    std::ofstream(directory_ / "1_Pooling/config.json") << json;
    const auto files = engine::io::ModelFiles::open(directory_);
    if (!files) return base::fail(files.error());
    const auto model = engine::models::compile_model(*files, engine::plan::DType::kF32);
    if (!model) return base::fail(model.error());
    return model->config.pooling;
  }
  std::filesystem::path directory_;
};

TEST_F(Pooling, IsANameOrTheOneFlagThatIsSet) {
  using enum engine::plan::Pooling;
  EXPECT_EQ(read(R"({"pooling_mode":"mean"})"), kMean);
  EXPECT_EQ(read(R"({"pooling_mode":"cls"})"), kFirst);
  EXPECT_EQ(read(R"({"pooling_mode":"lasttoken"})"), kLast);
  EXPECT_EQ(read(R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false})"), kFirst);
}

TEST_F(Pooling, OfOtherKindsOrOfSeveralIsRefused) {
  for (const char* json :
       {R"({"pooling_mode":"max"})", R"({"pooling_mode":["mean","cls"]})", R"({"pooling_mode_max_tokens":true})",
        R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true})", "{}",
        R"({"pooling_mode_cls_token":"yes"})"})
    EXPECT_EQ(read(json).error().code, base::ErrorCode::kConfigKeyInvalid) << json;
  std::filesystem::create_directory(directory_ / "3_Dense");  // and no 2_Dense before it
  EXPECT_EQ(read(R"({"pooling_mode":"mean"})").error().code, base::ErrorCode::kUnsupportedFormatVersion);
}

// Two directories that differ in their pooling alone are two models.
TEST_F(Pooling, IsPartOfTheDigest) {
  const auto digest = [&](std::string_view json) {
    std::ofstream(directory_ / "1_Pooling/config.json") << json;
    return engine::io::model_digest(directory_).value();
  };
  EXPECT_NE(digest(R"({"pooling_mode":"mean"})"), digest(R"({"pooling_mode":"cls"})"));
}

std::vector<Fixture> fixtures() {
  std::vector<Fixture> all;
  for (const char* name :
       {"qwen3_last", "qwen3_mean", "bert_mean", "bert_cls", "roberta_mean", "nomic_mean", "nomic_cls",
        "embeddinggemma", "embeddinggemma_wide", "bert_rank", "roberta_rank", "qwen3_rank", "qwen3_answers"}) {
    all.push_back({name});
    if (std::filesystem::exists(embeddings_directory(name) / "model.gguf")) all.push_back({name, true});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Golden, Embeddings, testing::ValuesIn(fixtures()),
                         [](const auto& test) { return test.param.name + (test.param.gguf ? "_gguf" : "_hf"); });

}  // namespace
}  // namespace llorch::golden
