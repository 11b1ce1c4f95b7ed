#include "engine/inference/paging/prefix_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "engine/plan/state.h"

namespace llorch::engine::inference::paging {
namespace {

using base::TokenId;
using plan::kPageTokens;

std::vector<TokenId> some_tokens(std::size_t count) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(TokenId{static_cast<std::uint32_t>(i * i + 7)});
  return tokens;
}

std::vector<PageKey> keys_of(std::string_view salt, std::span<const TokenId> tokens) {
  PrefixKeys keys(std::as_bytes(std::span(salt)));
  keys.extend(tokens);
  return {keys.keys().begin(), keys.keys().end()};
}

TEST(PrefixKeys, OnlyFullPagesHaveKeys) {
  EXPECT_EQ(keys_of("s", some_tokens(0)).size(), 0u);
  EXPECT_EQ(keys_of("s", some_tokens(kPageTokens - 1)).size(), 0u);
  EXPECT_EQ(keys_of("s", some_tokens(kPageTokens)).size(), 1u);
  EXPECT_EQ(keys_of("s", some_tokens(3 * kPageTokens + 5)).size(), 3u);
}

TEST(PrefixKeys, GrowingATokenAtATimeGivesTheSameKeys) {
  const std::vector<TokenId> tokens = some_tokens(5 * kPageTokens + 1);
  PrefixKeys keys(std::as_bytes(std::span("salt")));
  for (std::size_t n = 1; n <= tokens.size(); ++n) keys.extend(std::span(tokens).first(n));
  PrefixKeys whole(std::as_bytes(std::span("salt")));
  whole.extend(tokens);
  EXPECT_TRUE(std::ranges::equal(keys.keys(), whole.keys()));
}

TEST(PrefixKeys, AKeyNamesEverythingBeforeIt) {
  const std::vector<TokenId> tokens = some_tokens(4 * kPageTokens);
  const std::vector<PageKey> keys = keys_of("salt", tokens);
  for (const std::size_t changed : {std::size_t{0}, std::size_t{63}, std::size_t{64}, std::size_t{200}}) {
    std::vector<TokenId> other = tokens;
    other[changed] = TokenId{1u << 20};
    const std::vector<PageKey> others = keys_of("salt", other);
    for (std::size_t page = 0; page < keys.size(); ++page) {
      EXPECT_EQ(keys[page] == others[page], page < changed / kPageTokens) << changed << ", page " << page;
    }
  }
  // The same tokens on another page are another page.
  std::vector<TokenId> twice(tokens.begin(), tokens.begin() + kPageTokens);
  twice.insert(twice.end(), tokens.begin(), tokens.begin() + kPageTokens);
  EXPECT_NE(keys_of("salt", twice)[0], keys_of("salt", twice)[1]);
}

TEST(PrefixKeys, AnotherSaltIsAnotherWorldAndNoneSharesNothing) {
  const std::vector<TokenId> tokens = some_tokens(2 * kPageTokens);
  EXPECT_NE(keys_of("a", tokens)[0], keys_of("b", tokens)[0]);
  EXPECT_TRUE(keys_of("", tokens).empty());
  // A salt that continues with bytes a key could have does not reach into the chain.
  std::string longer = "a";
  longer.append(sizeof(PageKey), '\0');
  EXPECT_NE(keys_of("a", tokens)[0], keys_of(longer, tokens)[0]);
}

// The chain is a contract between a page and everybody who looks for it; the value was made with Python's hashlib.
TEST(PrefixKeys, FirstKeyIsTheDocumentedHash) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < kPageTokens; ++i) tokens.push_back(TokenId{i});
  EXPECT_EQ(base::to_hex(keys_of("salt", tokens)[0]),
            "2095e059642a3c1c7fd3fe1f62cbbd00af7d3152fe3b5065e534da3fcdc24f8c");
}

}  // namespace
}  // namespace llorch::engine::inference::paging
