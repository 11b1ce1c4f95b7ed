#include "worker/sequence.h"
#include "worker/sampling/constraint.h"

#include <gtest/gtest.h>

#include <cmath>

namespace llorch::worker {
namespace {

using text::TokenizerData;
using text::TokenKind;
using wire::StopReason;

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
  SequenceTest() : tokenizer_(text::Tokenizer::create(byte_vocabulary()).value()) {}

  wire::ExecuteRequest request(std::string prompt = "hi") const {
    return {.job_id = "j", .prompt = std::move(prompt), .max_tokens = 8, .temperature = 0};
  }
  Sequence sequence(const wire::ExecuteRequest& r, std::int64_t context = 64) const {
    return Sequence(make_sequence_spec(r, tokenizer_, context, 7).value(), tokenizer_, context);
  }
  // Runs the sequence as if the model wanted to say exactly `tokens`.
  std::vector<TokenOut> say(Sequence& s, const std::vector<std::uint32_t>& tokens) const {
    std::vector<TokenOut> out;
    for (const std::uint32_t t : tokens) {
      if (s.finished()) break;
      std::vector<float> logits(257, 0.0f);
      logits[t] = 10.0f;
      out.push_back(s.accept(logits).value());
    }
    return out;
  }

  text::Tokenizer tokenizer_;
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
  EXPECT_TRUE(s.finished());
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
  const auto code = [&](wire::ExecuteRequest r, std::int64_t context = 64) {
    return make_sequence_spec(r, tokenizer_, context, 7).error();
  };
  const base::Error too_long = code(request("abcdef"), 6);
  EXPECT_EQ(too_long.code, base::ErrorCode::kInvalidParams);
  EXPECT_EQ(std::get<std::string>(too_long.details.at(0).second), "CONTEXT_TOO_LARGE");
  wire::ExecuteRequest ids{.job_id = "j", .prompt_tokens = std::vector<std::int32_t>{1, 257}};
  EXPECT_EQ(code(ids).code, base::ErrorCode::kInvalidParams);
  auto bad_k = request();
  bad_k.sampling.top_k = 258;
  EXPECT_EQ(code(bad_k).code, base::ErrorCode::kInvalidParams);
  auto bad_stop = request();
  bad_stop.stop = {std::string(40, 's')};
  EXPECT_EQ(code(bad_stop).code, base::ErrorCode::kInvalidParams);
}

// Log-probabilities are the model's, whatever the chain does to its logits.
TEST_F(SequenceTest, LogprobsComeFromTheRawLogits) {
  auto r = request();
  r.sampling.logprobs = true;
  r.sampling.top_logprobs = 2;
  r.sampling.logit_bias = {{'b', 100.0}};
  Sequence s = sequence(r);
  std::vector<float> logits(257, -100.0f);
  logits['a'] = logits['b'] = 0.0f;
  logits[0xE2] = -std::log(2.0f);  // p: 0.4, 0.4, 0.2
  const TokenOut out = s.accept(logits).value();
  EXPECT_EQ(out.text, "b");
  ASSERT_TRUE(out.logprobs);
  EXPECT_EQ(out.logprobs->id, 'b');
  EXPECT_EQ(out.logprobs->token, "b");
  EXPECT_NEAR(out.logprobs->logprob, std::log(0.4), 1e-6);
  ASSERT_EQ(out.logprobs->top_logprobs.size(), 2u);
  EXPECT_EQ(out.logprobs->top_logprobs[0].id, 'a');
  EXPECT_EQ(out.logprobs->top_logprobs[1].id, 'b');
  // Bytes that are no whole character are shown as U+FFFD and told as bytes; a control token spells nothing.
  r.sampling.logit_bias = {{0xE2, 100.0}};
  Sequence partial = sequence(r);
  const TokenOut odd = partial.accept(logits).value();
  EXPECT_EQ(odd.text, "");
  EXPECT_EQ(odd.logprobs->token, "\xEF\xBF\xBD");
  EXPECT_EQ(odd.logprobs->bytes, std::vector<std::uint8_t>{0xE2});
  EXPECT_FALSE(say(s, {'c'})[0].logprobs == std::nullopt);
  Sequence without = sequence(request());
  EXPECT_FALSE(say(without, {'c'})[0].logprobs);
}

// A token of the prompt is told from the logits before it; the output's indices go on behind.
TEST_F(SequenceTest, TokensOfThePromptComeBeforeTheOutput) {
  auto r = request();
  r.sampling.prompt_logprobs = r.sampling.logprobs = true;
  r.sampling.top_logprobs = 1;
  Sequence s = sequence(r);
  const TokenOut first = s.prompt_token(0, {}).value();
  EXPECT_EQ(first.index, 0);
  EXPECT_EQ(first.text, "");
  ASSERT_TRUE(first.prompt_logprobs);
  EXPECT_EQ(first.prompt_logprobs->id, 'h');
  EXPECT_EQ(first.prompt_logprobs->token, "h");
  EXPECT_FALSE(first.prompt_logprobs->logprob);
  EXPECT_TRUE(first.prompt_logprobs->top_logprobs.empty());
  std::vector<float> logits(257, -100.0f);
  logits['i'] = 0.0f;
  logits['j'] = std::log(3.0f);
  const TokenOut second = s.prompt_token(1, logits).value();
  EXPECT_EQ(second.index, 1);
  EXPECT_EQ(second.prompt_logprobs->id, 'i');
  EXPECT_NEAR(*second.prompt_logprobs->logprob, std::log(0.25), 1e-6);
  ASSERT_EQ(second.prompt_logprobs->top_logprobs.size(), 1u);
  EXPECT_EQ(second.prompt_logprobs->top_logprobs[0].id, 'j');
  logits['x'] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(s.prompt_token(1, logits).error().code, base::ErrorCode::kInternal);
  const auto out = say(s, {'a', 'b'});
  EXPECT_EQ(out[0].index, 2);
  EXPECT_EQ(out[1].index, 3);
  EXPECT_FALSE(out[0].prompt_logprobs);
  EXPECT_EQ(s.tokens_out(), 2);
  r.prompt = std::string(wire::kPromptLogprobsMax / 2 + 1, 'a');
  EXPECT_EQ(make_sequence_spec(r, tokenizer_, 1 << 20, 7).error().code, base::ErrorCode::kInvalidParams);
}

TEST_F(SequenceTest, AConstraintRestrictsTheToken) {
  sampling::Constraints constraints(tokenizer_);
  wire::SamplingRequest wanted;
  wanted.regex = "[xyz]{2}";
  SequenceSpec spec = make_sequence_spec(request(), tokenizer_, 64, 7).value();
  spec.constraint = constraints.matcher(wanted).value();
  Sequence s(std::move(spec), tokenizer_, 64);
  std::vector<float> logits(257, 0.0f);
  logits['a'] = 50.0f;
  logits['z'] = 20.0f;
  EXPECT_EQ(s.accept(logits).value().text, "z");
  EXPECT_EQ(s.accept(logits).value().text, "z");
  EXPECT_EQ(s.accept(logits).value().finished, wire::StopReason::kEos) << "nothing else can follow";
}

TEST_F(SequenceTest, WhatConstrainsIsCheckedBeforeTheStart) {
  sampling::Constraints constraints(tokenizer_);
  wire::SamplingRequest wanted;
  EXPECT_FALSE(constraints.matcher(wanted).value()) << "nothing asked";
  wanted.json_schema = wire::JsonSchema{R"({"type": "array", "contains": {}})"};
  const auto refused = constraints.matcher(wanted);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_NE(refused.error().message.find("contains"), std::string::npos);
  EXPECT_EQ(refused.error().details.back().first, "field");
}

// DRY sees prompt and output; a sequence breaker ends a repeat.
TEST_F(SequenceTest, DryKeepsFromRepeatingThePrompt) {
  const auto next = [&](const std::string& prompt, std::vector<std::string> breakers) {
    auto r = request(prompt);
    r.sampling.dry_multiplier = 10;
    r.sampling.dry_sequence_breakers = std::move(breakers);
    Sequence s = sequence(r);
    std::vector<float> logits(257, 0.0f);
    logits['d'] = 5.0f;
    logits['e'] = 4.0f;
    return s.accept(logits).value().text;
  };
  EXPECT_EQ(next("abcd;abc", {"\n"}), "e");
  EXPECT_EQ(next("abcd;abc", {"b"}), "d");
  EXPECT_EQ(next("abcd;abc", {"bc"}), "d");
}

TEST_F(SequenceTest, NonFiniteLogitsAreAnError) {
  Sequence s = sequence(request());
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
