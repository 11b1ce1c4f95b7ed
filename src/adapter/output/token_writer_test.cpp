#include "adapter/output/token_writer.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <utility>

#include "base/utf8.h"
#include "net/sse/sse.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace llorch::adapter::output {
namespace {

using testing::ElementsAre;

std::vector<std::string> texts_of(const std::string& bytes) {
  net::sse::Decoder decoder;
  std::vector<net::sse::Event> events;
  EXPECT_TRUE(decoder.feed(bytes, events));
  std::vector<std::string> texts;
  for (const auto& event : events) {
    const auto token = wire::decode<wire::WorkerTokenEvent>(event.data);
    EXPECT_TRUE(token.has_value());
    EXPECT_EQ(token->i, static_cast<std::int64_t>(texts.size()));
    texts.push_back(token->t);
  }
  return texts;
}

TEST(TokenWriter, EveryPieceIsAnEventOfItsTokens) {
  TokenWriter writer(10);
  std::string out;
  ASSERT_TRUE(writer.add("one", 1, {}, out));
  ASSERT_TRUE(writer.add("", 1, {}, out));
  ASSERT_TRUE(writer.add("two three", 2, {}, out));
  EXPECT_TRUE(writer.began());
  ASSERT_TRUE(writer.finish(4, out));
  EXPECT_THAT(texts_of(out), ElementsAre("one", "", "two three", ""));
  EXPECT_EQ(writer.tokens_out(), 4);
  EXPECT_EQ(writer.sha256(), base::to_hex(base::sha256("onetwo three")));
}

// An event of the piece each, and the last of all with the place that is kept.
TEST(TokenWriter, LogprobsGoWithTheirTokens) {
  TokenWriter writer(4);
  std::string out;
  const auto of = [](std::int64_t id) { return wire::TokenLogprobs{.id = id, .logprob = -1, .token = "x"}; };
  const std::vector two{of(1), of(2)}, one{of(3)}, late{of(4), of(5)};
  ASSERT_TRUE(writer.add("ab", 2, two, out));
  ASSERT_TRUE(writer.add("c", 1, one, out));
  ASSERT_TRUE(writer.add("d", 1, late, out));
  ASSERT_TRUE(writer.finish(4, out));
  net::sse::Decoder decoder;
  std::vector<net::sse::Event> events;
  ASSERT_TRUE(decoder.feed(out, events));
  std::vector<std::int64_t> ids;
  for (const auto& event : events) ids.push_back(wire::decode<wire::WorkerTokenEvent>(event.data)->logprobs->id);
  EXPECT_THAT(ids, ElementsAre(1, 2, 3, 4));
}

TEST(TokenWriter, CountsWhatTheEngineCounts) {
  TokenWriter writer(10);
  std::string out;
  ASSERT_TRUE(writer.add("ab", 1, {}, out));
  ASSERT_TRUE(writer.finish(5, out));
  EXPECT_THAT(texts_of(out), ElementsAre("ab", "", "", "", ""));
}

// A number of a few bytes is no reason for many events at once.
TEST(TokenWriter, WritesCountedTokensInParts) {
  constexpr std::size_t kBytesMax = 128 << 10;
  TokenWriter writer(50'000);
  std::string out, all;
  ASSERT_TRUE(writer.add("a", 1'000'000'000, {}, out));
  EXPECT_LE(out.size(), kBytesMax);
  while (writer.tokens_out() < 50'000) {
    all += std::exchange(out, {});
    ASSERT_TRUE(writer.finish(1'000'000'000, out));
    ASSERT_FALSE(out.empty());
    EXPECT_LE(out.size(), kBytesMax);
  }
  all += out;
  EXPECT_EQ(texts_of(all).size(), 50'000u);
  EXPECT_EQ(writer.sha256(), base::to_hex(base::sha256("a")));
}

TEST(TokenWriter, NeverHasMoreEventsThanTokens) {
  TokenWriter writer(2);
  std::string out;
  for (const char* piece : {"a", "b", "c", "d"}) ASSERT_TRUE(writer.add(piece, 1, {}, out));
  ASSERT_TRUE(writer.finish(4, out));
  EXPECT_THAT(texts_of(out), ElementsAre("a", "bcd"));
}

TEST(TokenWriter, WithOneTokenAllTextIsItsOwn) {
  TokenWriter writer(1);
  std::string out;
  ASSERT_TRUE(writer.add("ab", 1, {}, out));
  EXPECT_TRUE(out.empty());
  EXPECT_TRUE(writer.began());
  ASSERT_TRUE(writer.finish(0, out));
  EXPECT_THAT(texts_of(out), ElementsAre("ab"));
}

TEST(TokenWriter, RefusesMoreTextThanItsTokensHave) {
  TokenWriter writer(1);
  std::string out;
  const auto added = writer.add(std::string(TokenWriter::kHeldBytesMax + 1, 'x'), 1, {}, out);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, base::ErrorCode::kInternal);
}

TEST(TokenWriter, CutsLongTextAtCodePoints) {
  TokenWriter writer(100);
  std::string text, out;
  while (text.size() < 3 * TokenWriter::kTextBytesMax) text += "a\xc3\xa4\xe2\x82\xac";
  ASSERT_TRUE(writer.add(text, 1, {}, out));
  ASSERT_TRUE(writer.finish(0, out));
  std::string joined;
  for (const std::string& part : texts_of(out)) {
    EXPECT_LE(part.size(), TokenWriter::kTextBytesMax);
    EXPECT_TRUE(base::is_valid_utf8(part));
    joined += part;
  }
  EXPECT_EQ(joined, text);
}

RC_GTEST_PROP(TokenWriter, KeepsEveryByteWithinItsTokens, (std::vector<std::string> pieces)) {
  const auto tokens_max = *rc::gen::inRange<std::int64_t>(1, 20);
  const auto counted = *rc::gen::inRange<std::int64_t>(0, 30);
  TokenWriter writer(tokens_max);
  std::string out, wanted;
  for (std::string& piece : pieces) {
    std::erase_if(piece, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    RC_ASSERT(writer.add(piece, *rc::gen::inRange<std::int64_t>(1, 4), {}, out).has_value());
    wanted += piece;
  }
  RC_ASSERT(writer.finish(counted, out).has_value());
  std::string joined;
  for (const std::string& text : texts_of(out)) joined += text;
  RC_ASSERT(joined == wanted);
  RC_ASSERT(writer.tokens_out() <= tokens_max);
  RC_ASSERT(writer.tokens_out() >= std::min(counted, tokens_max));
}

}  // namespace
}  // namespace llorch::adapter::output
