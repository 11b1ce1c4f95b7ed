#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/base64.h"
#include "worker/embedding/embedding_job.h"
#include "worker/embedding/vector_text.h"

namespace llorch::worker::embedding {
namespace {

constexpr EmbeddingModel kModel{.vocab = 10, .context_tokens = 4, .dimensions = 3};

wire::ExecuteRequest request(std::vector<std::int64_t> input_tokens, std::optional<std::int64_t> dimensions = {}) {
  wire::ExecuteRequest out{.job_id = "job", .prompt_tokens = std::vector<std::int32_t>{}, .seed = 5};
  std::int64_t total = 0;
  for (const std::int64_t count : input_tokens) total += count;
  for (std::int64_t i = 0; i < total; ++i) out.prompt_tokens->push_back(static_cast<std::int32_t>(i % 10));
  out.embedding = {.input_tokens = std::move(input_tokens), .dimensions = dimensions};
  return out;
}

std::vector<float> floats(const std::string& text) {
  const std::string bytes = base::base64_decode(text).value();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(VectorText, IsOneLongAfterWhatIsCutOff) {
  EXPECT_EQ(floats(vector_text(std::vector{3.0f, 4.0f, 12.0f}, 2).value()), (std::vector{0.6f, 0.8f}));
  EXPECT_EQ(floats(vector_text(std::vector{0.0f, -2.0f}, {}).value()), (std::vector{0.0f, -1.0f}));
  EXPECT_EQ(floats(vector_text(std::vector{0.0f, 0.0f}, {}).value()), (std::vector{0.0f, 0.0f}));
}

TEST(VectorText, HugeElementsHaveALengthAndEndlessOnesHaveNone) {
  EXPECT_EQ(floats(vector_text(std::vector{3e38f, 0.0f}, {}).value()), (std::vector{1.0f, 0.0f}));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_EQ(vector_text(std::vector{1.0f, bad}, {}).error().code, base::ErrorCode::kInternal);
    EXPECT_TRUE(vector_text(std::vector{1.0f, bad}, 1));  // what is cut off is nobody's concern
  }
}

TEST(ScoreText, IsTheSigmoidOfOneLogitOrOfTwo) {
  EXPECT_EQ(score_text(std::vector{0.0f}).value(), "0.5");
  EXPECT_EQ(score_text(std::vector{1.0f}).value(), "0.7310586");
  EXPECT_EQ(score_text(std::vector{-1.0f}).value(), "0.26894143");
  EXPECT_EQ(score_text(std::vector{3.0f, 2.0f}).value(), score_text(std::vector{1.0f}).value()) << "yes less no";
  EXPECT_EQ(score_text(std::vector{200.0f}).value(), "1");
  EXPECT_EQ(static_cast<float>(std::stod(score_text(std::vector{-200.0f}).value())), std::exp(-100.0f));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")})
    EXPECT_EQ(score_text(std::vector{bad}).error().code, base::ErrorCode::kInternal);
}

TEST(EmbeddingSpec, TakesTheTypesOfTokensThatTheModelHas) {
  wire::ExecuteRequest pair = request({3});
  pair.prompt_tokens->back() |= 1 << wire::kTokenTypeShift;
  EXPECT_FALSE(make_embedding_spec(pair, kModel));
  EmbeddingModel typed = kModel;
  typed.token_types = 2;
  ASSERT_TRUE(make_embedding_spec(pair, typed));
  EXPECT_EQ(index(make_embedding_spec(pair, typed)->prompt.back()) >> wire::kTokenTypeShift, 1U);
  pair.prompt_tokens->back() |= 2 << wire::kTokenTypeShift;
  EXPECT_FALSE(make_embedding_spec(pair, typed));
}

TEST(EmbeddingJob, GivesScoresWhereTheyAreWanted) {
  wire::ExecuteRequest wanted = request({1, 1});
  wanted.embedding->scores = true;
  EmbeddingJob job(make_embedding_spec(wanted, kModel).value());
  EXPECT_TRUE(job.accept(1, std::vector{1.0f}).value().empty());
  const auto all = job.accept(0, std::vector{0.0f}).value();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].text, "0.5");
  EXPECT_EQ(all[1].text, "0.7310586");
}

TEST(EmbeddingSpec, CutsThePromptIntoItsInputs) {
  const EmbeddingSpec spec = make_embedding_spec(request({2, 4, 1}), kModel).value();
  ASSERT_EQ(spec.inputs_count(), 3U);
  EXPECT_EQ(spec.input(0).size(), 2U);
  EXPECT_EQ(spec.input(1).front(), base::TokenId{2});
  EXPECT_EQ(spec.input(2).front(), base::TokenId{6});
}

TEST(EmbeddingSpec, RefusesWhatTheModelCannotTake) {
  const auto code = [](const wire::ExecuteRequest& r) { return make_embedding_spec(r, kModel).error().code; };
  EXPECT_EQ(code(request({5})), base::ErrorCode::kInvalidParams);
  EXPECT_EQ(code(request({1}, 4)), base::ErrorCode::kInvalidParams);
  wire::ExecuteRequest outside = request({2});
  outside.prompt_tokens->back() = 10;
  EXPECT_EQ(code(outside), base::ErrorCode::kInvalidParams);
  outside.prompt_tokens->back() = -1;
  EXPECT_EQ(code(outside), base::ErrorCode::kInvalidParams);
  EXPECT_TRUE(make_embedding_spec(request({4}, 3), kModel));
}

// Whichever input is computed first, the output and its hash are the same: a run again says what the first one said.
TEST(EmbeddingJob, HandsVectorsOutInTheOrderOfTheInputs) {
  const std::vector<std::vector<float>> rows{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  EmbeddingJob in_order(make_embedding_spec(request({1, 1, 1}), kModel).value());
  std::vector<std::string> expected;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto out = in_order.accept(i, rows[i]).value();
    ASSERT_EQ(out.size(), 1U);
    expected.push_back(out[0].text);
  }
  EXPECT_TRUE(in_order.finished());

  EmbeddingJob job(make_embedding_spec(request({1, 1, 1}), kModel).value());
  EXPECT_TRUE(job.accept(2, rows[2]).value().empty());
  EXPECT_TRUE(job.accept(1, rows[1]).value().empty());
  EXPECT_FALSE(job.finished());
  EXPECT_EQ(job.tokens_out(), 0);
  const auto all = job.accept(0, rows[0]).value();
  ASSERT_EQ(all.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all[i].text, expected[i]);
    EXPECT_EQ(all[i].index, static_cast<std::int64_t>(i));
  }
  EXPECT_TRUE(job.finished());
  EXPECT_EQ(job.output_sha256(), in_order.output_sha256());
}

}  // namespace
}  // namespace llorch::worker::embedding
