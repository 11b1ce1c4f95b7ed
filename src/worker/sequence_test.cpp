#include "worker/sequence.h"

#include <gtest/gtest.h>

namespace llorch::worker {
namespace {

using contract::StopReason;
using engine::text::TokenizerData;
using engine::text::TokenKind;

// A byte-level vocabulary: ids 0..255 are the bytes, 256 is the end of text.
TokenizerData byte_vocabulary() {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  std::uint32_t next_private = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const std::uint32_t c = printable ? static_cast<std::uint32_t>(b) : next_private++;
    std::string s;
    if (c < 0x80) {
      s = {static_cast<char>(c)};
    } else {
      s = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    }
    data.tokens.push_back(s);
    data.kinds.push_back(TokenKind::kNormal);
  }
  data.tokens.push_back("<|endoftext|>");
  data.kinds.push_back(TokenKind::kControl);
  data.eos = TokenId{256};
  data.add_bos = false;
  return data;
}

class SequenceTest : public testing::Test {
 protected:
  SequenceTest() : tokenizer_(engine::text::Tokenizer::create(byte_vocabulary()).value()) {}

  contract::ExecuteRequest request(std::string prompt = "hi") const {
    return {.job_id = "j", .prompt = std::move(prompt), .max_tokens = 8, .temperature = 0};
  }
  Sequence sequence(const contract::ExecuteRequest& r, std::int64_t context = 64) const {
    return Sequence(make_sequence_spec(r, tokenizer_, context, 7).value(), tokenizer_, context);
  }
  // Runs the sequence as if the model wanted to say exactly `tokens`.
  std::vector<TokenOut> say(Sequence& s, const std::vector<std::uint32_t>& tokens) const {
    std::vector<TokenOut> out;
    for (const std::uint32_t t : tokens) {
      if (s.finished()) break;
      s.consumed(s.pending().size());
      std::vector<float> logits(257, 0.0f);
      logits[t] = 10.0f;
      out.push_back(s.accept(logits).value());
    }
    return out;
  }

  engine::text::Tokenizer tokenizer_;
};

TEST_F(SequenceTest, EveryTokenIsOneEventAndTheEndCarriesTheReason) {
  Sequence s = sequence(request());
  const auto out = say(s, {'a', 'b', 256});
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].text, "a");
  EXPECT_EQ(out[1].index, 1);
  EXPECT_EQ(out[2].finished, StopReason::kEos);
  EXPECT_EQ(out[2].text, "");
  EXPECT_EQ(s.tokens_out(), 3);
  EXPECT_EQ(s.output_sha256(), base::to_hex(base::sha256("ab")));
  EXPECT_TRUE(s.pending().empty());
}

// M0-W-1824: only whole code points leave; the last event carries what was held back.
TEST_F(SequenceTest, HeldBackBytesComeWithTheLastToken) {
  auto r = request();
  r.max_tokens = 2;
  Sequence s = sequence(r);
  const auto out = say(s, {0xE2, 0x82});
  EXPECT_EQ(out[0].text, "");
  EXPECT_EQ(out[1].text, "\xEF\xBF\xBD");
  EXPECT_EQ(out[1].finished, StopReason::kMaxTokens);
}

TEST_F(SequenceTest, StopStringEndsTheTextBeforeIt) {
  auto r = request();
  r.stop = {"END"};
  Sequence s = sequence(r);
  const auto out = say(s, {'x', 'E', 'N', 'D'});
  ASSERT_EQ(out.size(), 4u);
  EXPECT_EQ(out[0].text + out[1].text + out[2].text + out[3].text, "x");
  EXPECT_EQ(out[3].finished, StopReason::kStop);
}

TEST_F(SequenceTest, AFullContextEndsTheJob) {
  auto r = request("abc");
  r.max_tokens = 100;
  Sequence s = sequence(r, 5);
  const auto out = say(s, {'a', 'b', 'c'});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].finished, StopReason::kContext);
}

// M0-W-1302, ORCH-3016: refused up front, never truncated.
TEST_F(SequenceTest, RefusesWhatItCannotRun) {
  const auto code = [&](contract::ExecuteRequest r, std::int64_t context = 64) {
    return make_sequence_spec(r, tokenizer_, context, 7).error();
  };
  const base::Error too_long = code(request("abcdef"), 6);
  EXPECT_EQ(too_long.code, base::ErrorCode::kInvalidParams);
  EXPECT_EQ(std::get<std::string>(too_long.details.at(0).second), "CONTEXT_TOO_LARGE");
  contract::ExecuteRequest ids{.job_id = "j", .prompt_tokens = std::vector<std::int32_t>{1, 257}};
  EXPECT_EQ(code(ids).code, base::ErrorCode::kInvalidParams);
  auto bad_k = request();
  bad_k.top_k = 258;
  EXPECT_EQ(code(bad_k).code, base::ErrorCode::kInvalidParams);
  auto bad_stop = request();
  bad_stop.stop = {std::string(40, 's')};
  EXPECT_EQ(code(bad_stop).code, base::ErrorCode::kInvalidParams);
}

TEST_F(SequenceTest, NonFiniteLogitsAreAnError) {
  Sequence s = sequence(request());
  s.consumed(s.pending().size());
  std::vector<float> logits(257, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(s.accept(logits).error().code, base::ErrorCode::kInternal);
}

// OC-CORE-1034, M0-W-1310: a seed that was not given is chosen once and known.
TEST_F(SequenceTest, SeedIsTheRequestsOrTheGivenOne) {
  auto r = request();
  EXPECT_EQ(make_sequence_spec(r, tokenizer_, 64, 7).value().sampling.seed, 7u);
  r.seed = 9;
  EXPECT_EQ(make_sequence_spec(r, tokenizer_, 64, 7).value().sampling.seed, 9u);
}

}  // namespace
}  // namespace llorch::worker
