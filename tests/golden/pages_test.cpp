// Where cache pages lie, whose they were and how a slot came by them never changes a bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "golden_support.h"

namespace llorch::golden {
namespace {

using base::TokenId;
using engine::inference::Engine;
using engine::inference::EngineOptions;
using engine::inference::RowsWanted;
using engine::inference::SlotRows;
namespace paging = engine::inference::paging;

constexpr std::uint32_t kPage = engine::plan::kPageTokens;
constexpr std::uint32_t kLength = 330;

struct PagesCase {
  const char* family;
  Format format;
  std::uint32_t window = 0;
};
void PrintTo(const PagesCase& model, std::ostream* out) { *out << model.family; }

class Pages : public testing::TestWithParam<PagesCase> {
 protected:
  void SetUp() override {
    const std::uint32_t vocab = read_golden(family_directory(GetParam().family) / "golden.bin").vocab;
    std::mt19937 random(5);
    for (std::uint32_t i = 0; i < kLength; ++i)
      tokens_.push_back(TokenId{static_cast<std::uint32_t>(random() % vocab)});
    for (std::uint32_t i = 0; i < kLength; ++i) other_.push_back(TokenId{static_cast<std::uint32_t>(random() % vocab)});
  }
  Engine& load(EngineOptions options) {
    engine_.reset();
    options.prefill_chunk = options.output_rows_max = 64;
    options.kv_dtype = engine::plan::DType::kF16;
    if (!backend_) {
      backend_ =
          engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1ULL << 30}).value();
    }
    engine_ = Engine::load(*family_model(GetParam().family, GetParam().format), options, *backend_).value();
    return *engine_;
  }
  // Appends, and returns the logits of every row.
  static std::vector<float> run(Engine& engine, std::uint32_t slot, std::span<const TokenId> tokens) {
    std::vector<float> all;
    const auto result = engine.score(
        slot, tokens, [&](std::size_t, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
    return all;
  }
  std::vector<float> cold(std::span<const TokenId> tokens) { return run(load({.context_tokens = 384}), 0, tokens); }
  // The rows of `all` that belong to the last `count` tokens of it.
  static std::span<const float> last(std::span<const float> all, std::size_t tokens, std::size_t count) {
    return all.last(all.size() / tokens * count);
  }
  static std::vector<paging::PageKey> keys(std::size_t count) {
    std::vector<paging::PageKey> result(count);
    for (std::size_t i = 0; i < count; ++i) result[i][0] = static_cast<std::uint8_t>(i + 1);
    return result;
  }

  std::vector<TokenId> tokens_, other_;
  std::unique_ptr<engine::plan::Backend> backend_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(Pages, AnyPlace) {
  const std::vector<float> expected = cold(tokens_);
  Engine& engine = load({.context_tokens = 384, .slots = 4});
  std::mt19937 random(11);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::uint32_t> order{0, 1, 2, 3};
    for (std::uint32_t slot : order) run(engine, slot, std::span(other_).first(1 + random() % 300));
    std::ranges::shuffle(order, random);  // released in another order, pages come in another order
    for (std::uint32_t slot : order) ASSERT_TRUE(engine.reset(slot));
    EXPECT_TRUE(same_bits(run(engine, order[0], tokens_), expected)) << "round " << round;
    ASSERT_TRUE(engine.reset(order[0]));
  }
}

// Both go on in one batch, with different tokens, from the middle of a page and from its end.
TEST_P(Pages, ForkThenDiverge) {
  for (std::uint32_t prompt : {150U, 192U}) {
    std::vector<TokenId> second(tokens_.begin(), tokens_.begin() + prompt);
    second.insert(second.end(), other_.begin(), other_.begin() + 100);
    const std::span<const TokenId> first = std::span(tokens_).first(prompt + 100);
    const std::vector<float> expected_first = cold(first), expected_second = cold(second);
    Engine& engine = load({.context_tokens = 384, .slots = 3});
    run(engine, 1, other_);  // what the slot held before must not show
    ASSERT_TRUE(engine.reset(1));
    run(engine, 2, first.first(prompt));
    std::vector<paging::PageCopy> copies;
    ASSERT_TRUE(engine.pages().fork(2, 1, prompt, copies));
    EXPECT_EQ(copies.empty(), prompt % kPage == 0 || engine.pages().groups_count() == 0);
    engine.kv().copy(copies);
    ASSERT_TRUE(engine.fork({.from = 2, .to = 1}));
    std::vector<float> got_first, got_second;
    for (std::uint32_t at = prompt; at < prompt + 100; at += 20) {
      const std::vector<SlotRows> requests{{1, std::span(second).subspan(at, 20), RowsWanted::kAll},
                                           {2, first.subspan(at, 20), RowsWanted::kAll}};
      const auto output = engine.step(requests).value();
      for (std::size_t row = 0; row < 20; ++row)
        got_second.insert(got_second.end(), output.row(row).begin(), output.row(row).end());
      for (std::size_t row = 20; row < 40; ++row)
        got_first.insert(got_first.end(), output.row(row).begin(), output.row(row).end());
    }
    EXPECT_TRUE(same_bits(got_first, last(expected_first, first.size(), 100))) << "prompt " << prompt;
    EXPECT_TRUE(same_bits(got_second, last(expected_second, second.size(), 100))) << "prompt " << prompt;
  }
}

class WholeInPages : public Pages {};
TEST_P(WholeInPages, APrefixOfAnotherSlot) {
  const std::uint32_t full = 4;
  const std::vector<float> expected = cold(tokens_);
  Engine& engine = load({.context_tokens = 384, .slots = 2});
  const auto names = keys(full);
  for (std::uint32_t page = 0; page < full; ++page) {
    run(engine, 0, std::span(tokens_).subspan(page * kPage, kPage));
    engine.pages().publish(0, page, names[page], 0);
  }
  run(engine, 0, std::span(other_).first(60));
  const std::uint32_t held = engine.pages().adopt(1, names, 0);
  ASSERT_EQ(held, full * kPage);
  ASSERT_TRUE(engine.start(1, {.held = held}));
  const auto rest = std::span(tokens_).subspan(held);
  EXPECT_TRUE(same_bits(run(engine, 1, rest), last(expected, tokens_.size(), rest.size())));
  // And once everyone has gone.
  ASSERT_TRUE(engine.reset(0));
  ASSERT_TRUE(engine.reset(1));
  ASSERT_EQ(engine.pages().adopt(0, names, 0), held);
  ASSERT_TRUE(engine.start(0, {.held = held}));
  EXPECT_TRUE(same_bits(run(engine, 0, rest), last(expected, tokens_.size(), rest.size())));
}

TEST_P(Pages, PagesThatMove) {
  const std::vector<float> expected = cold(tokens_);
  Engine& engine = load({.context_tokens = 384, .slots = 4, .kv_tokens = 384, .kv_tokens_max = 4 * 384});
  const std::uint64_t bytes_at_load = engine.kv().bytes();
  for (std::uint32_t slot : {0U, 1U, 2U}) run(engine, slot, other_);
  run(engine, 3, std::span(tokens_).first(200));
  const bool grows = engine.pages().groups_count() > 0;
  EXPECT_EQ(engine.kv().bytes() > bytes_at_load, grows);
  for (std::uint32_t slot : {0U, 1U, 2U}) ASSERT_TRUE(engine.reset(slot));
  EXPECT_EQ(engine.kv().release_idle() > 0, grows);
  EXPECT_EQ(engine.kv().bytes(), bytes_at_load);
  const auto rest = std::span(tokens_).subspan(200);
  EXPECT_TRUE(same_bits(run(engine, 3, rest), last(expected, tokens_.size(), rest.size())));
}

// Layers with a window hold what is in it, however far the sequence runs.
class WithWindows : public Pages {};
TEST_P(WithWindows, AreBounded) {
  Engine& engine = load({.context_tokens = 384, .slots = 2});
  ASSERT_EQ(engine.pages().groups_count(), 2U);
  const paging::PageGroup& windowed = engine.pages().group(1);
  EXPECT_EQ(windowed.window_tokens, GetParam().window);
  const std::uint32_t at_once = windowed.pages_at_once({.tokens = 384, .rows_max = 64});
  EXPECT_LT(at_once, 6U);
  std::uint32_t most = 0;
  for (std::uint32_t at = 0; at < 300; at += 30) {
    run(engine, 0, std::span(tokens_).subspan(at, 30));
    most = std::max(most, engine.pages().pages_held(1, 0));
  }
  EXPECT_LE(most, at_once);
  EXPECT_EQ(engine.pages().pages_held(0, 0), 5U);
  EXPECT_LE(windowed.pages_total, 2 * (2 * 2 + 1) + 1U);
}

const PagesCase kLlama{"llama3", Format::kGguf};
const PagesCase kGemma{"gemma3", Format::kGguf, 24};
const PagesCase kGptOss{"gpt_oss", Format::kGguf, 24};
const PagesCase kMoe{"qwen3_moe", Format::kHuggingFace};
const PagesCase kLatent{"deepseek_v3", Format::kGguf};
const PagesCase kHybrid{"granite_hybrid", Format::kGguf};
const PagesCase kRecurrent{"mamba2", Format::kGguf};
const PagesCase kConvolution{"lfm2", Format::kGguf};
std::string case_name(const testing::TestParamInfo<PagesCase>& test) { return test.param.family; }

INSTANTIATE_TEST_SUITE_P(Families, Pages,
                         testing::Values(kLlama, kGemma, kGptOss, kMoe, kLatent, kHybrid, kRecurrent, kConvolution),
                         case_name);
// Families without state beside the pages.
INSTANTIATE_TEST_SUITE_P(Families, WholeInPages, testing::Values(kLlama, kGemma, kGptOss, kMoe, kLatent), case_name);
INSTANTIATE_TEST_SUITE_P(Families, WithWindows, testing::Values(kGemma, kGptOss), case_name);

}  // namespace
}  // namespace llorch::golden
