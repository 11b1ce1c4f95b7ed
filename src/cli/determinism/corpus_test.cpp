#include "cli/determinism/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/sha256.h"
#include "engine/plan/state.h"

namespace llorch::cli::determinism {
namespace {

std::vector<Request> corpus(const ModelShape& model = {.vocab = 384, .context_tokens = 512}) {
  return make_corpus(corpus_json(), model).value();
}

// OC-TEST-7003: at least 64 seeds, from 1001 up, and the same ones for ever: a changed request would make old proofs
// something else. New ones come at the end; then, and only then, this hash changes.
TEST(Corpus, IsStable) {
  const std::vector<Request> requests = corpus();
  ASSERT_GE(requests.size(), 64U);
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(requests[i].seed, 1001 + i);
  EXPECT_EQ(base::to_hex(base::sha256(corpus_json())),
            "db5314c7366a5bd2472d54c792b94f1afb3676a5708a4e312ad6662151a5abc7");
  base::Sha256 prompts;
  for (const Request& request : requests) {
    for (const base::TokenId token : request.prompt) prompts.update_u32_le(static_cast<std::uint32_t>(token));
  }
  EXPECT_EQ(base::to_hex(prompts.digest()), "064c3f2325f58499211dd08a3fd57dccd0ff68542fa485f27439c5d21184506e");
}

TEST(Corpus, CoversWhatCanGoWrong) {
  const std::vector<Request> requests = corpus();
  const auto count = [&](auto predicate) { return std::ranges::count_if(requests, predicate); };
  EXPECT_GE(count([](const Request& r) { return r.sampling.temperature == 0; }), 4);
  EXPECT_GE(count([](const Request& r) { return r.sampling.temperature > 0; }), 32);
  EXPECT_GE(count([](const Request& r) { return r.sampling.top_p < 1; }), 3);
  EXPECT_GE(count([](const Request& r) { return r.sampling.repetition_penalty != 1; }), 3);
  EXPECT_GE(count([](const Request& r) { return r.sampling.frequency_penalty != 0; }), 3);
  EXPECT_GE(count([](const Request& r) { return r.sampling.dry_multiplier > 0; }), 3);
  EXPECT_GE(count([](const Request& r) { return r.sampling.mirostat != 0; }), 3);
  constexpr std::uint32_t kPage = engine::plan::kPageTokens;
  EXPECT_GE(count([](const Request& r) { return r.prompt.size() > kPage; }), 32);
  EXPECT_GE(count([](const Request& r) { return r.prompt.size() > 2 * kPage; }), 16);
  EXPECT_GE(count([](const Request& r) { return r.prompt.size() % kPage == 0; }), 3) << "exactly full pages";
  EXPECT_GE(count([](const Request& r) { return r.prompt.size() / kPage != r.tokens_max() / kPage; }), 8)
      << "decoding over a page's end";
  EXPECT_TRUE(std::ranges::any_of(requests, [](const Request& r) { return r.prompt.size() == 1; }));
  std::set<std::vector<base::TokenId>> first_pages;
  std::size_t shared = 0;
  for (const Request& r : requests) {
    if (r.prompt.size() >= kPage) shared += !first_pages.emplace(r.prompt.begin(), r.prompt.begin() + kPage).second;
  }
  EXPECT_GE(shared, 8U) << "a prefix cache has something to find";
}

TEST(Corpus, FitsTheModel) {
  for (const ModelShape& model : {ModelShape{64, 64}, ModelShape{151'936, 131'072}}) {
    for (const Request& request : corpus(model)) {
      EXPECT_LE(request.tokens_max(), model.context_tokens);
      EXPECT_GE(request.max_tokens, 1U);
      for (const base::TokenId token : request.prompt) EXPECT_LT(static_cast<std::uint32_t>(token), model.vocab);
    }
  }
  EXPECT_FALSE(make_corpus(corpus_json(), {.vocab = 32, .context_tokens = 63}));
}

TEST(Corpus, AnEvenChoiceOfIt) {
  const std::vector<Request> chosen = thin_out(corpus(), 16);
  ASSERT_EQ(chosen.size(), 16U);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(chosen[i].seed, 1001 + 4 * i);
  EXPECT_EQ(thin_out(corpus(), 0).size(), corpus().size());
  EXPECT_EQ(thin_out(corpus(), 1000).size(), corpus().size());
}

TEST(Corpus, AMistakeInItIsFound) {
  const ModelShape model{.vocab = 384, .context_tokens = 512};
  for (const char* bad :
       {"", "[]", "{}", R"({"requests":[]})", R"({"requests":[1]})", R"({"requests":[{"seed":1,"max_tokens":1}]})",
        R"({"requests":[{"prompt":{"tokens":4},"max_tokens":1}]})",
        R"({"requests":[{"seed":1,"prompt":{"tokens":0},"max_tokens":1}]})",
        R"({"requests":[{"seed":1,"prompt":{"tokens":4},"max_tokens":1,"tempreature":0}]})",
        R"({"requests":[{"seed":1,"prompt":{"tokens":4,"shared":{"seed":2}},"max_tokens":1}]})"}) {
    EXPECT_FALSE(make_corpus(bad, model)) << bad;
  }
}

}  // namespace
}  // namespace llorch::cli::determinism
