#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "wire/json.h"
#include "worker/sampling/break_tracker.h"
#include "worker/sampling/wire.h"

namespace llorch::worker::sampling {
namespace {

TEST(BreakTracker, ABreakerMayBeginInAnEarlierToken) {
  BreakTracker t({"\n", "###"});
  EXPECT_FALSE(t.push("one #"));
  EXPECT_FALSE(t.push("#"));
  EXPECT_TRUE(t.push("# two"));
  EXPECT_FALSE(t.push("three"));
  EXPECT_TRUE(t.push("a\nb"));
  EXPECT_FALSE(t.push("##"));
  EXPECT_TRUE(t.push(""));
  EXPECT_FALSE(t.push("#"));  // no breaker reaches over a control token
}

// The same answer as a search in the whole text.
TEST(BreakTracker, EqualsASearchInTheWholeText) {
  EXPECT_TRUE(rc::check("breaks", [] {
    const auto word = [](int length_max) {
      std::string out;
      for (int i = *rc::gen::inRange(1, length_max + 1); i > 0; --i) out += *rc::gen::element('a', 'b');
      return out;
    };
    const std::vector<std::string> breakers{word(4), word(6)};
    BreakTracker tracker(breakers);
    std::string text;
    for (int i = 0; i < 30; ++i) {
      const std::string token = word(3);
      const std::size_t before = text.size();
      text += token;
      bool expected = false;
      for (std::size_t end = before + 1; end <= text.size(); ++end) {
        for (const auto& b : breakers) expected |= std::string_view(text).substr(0, end).ends_with(b);
      }
      RC_ASSERT(tracker.push(token) == expected);
    }
  }));
}

// Every field reaches the sampler: a request in which all differ from the defaults.
TEST(EngineParams, CarryEveryField) {
  const auto request = wire::decode<wire::ExecuteRequest>(
      R"({"job_id":"j","prompt":"p","temperature":0.5,"top_p":0.25,"top_k":9,"min_p":0.125,"typical_p":0.75,
          "top_n_sigma":2,"xtc_probability":0.5,"xtc_threshold":0.25,"min_keep":3,"dynatemp_range":0.25,
          "dynatemp_exponent":2,"repetition_penalty":1.5,"frequency_penalty":-1,"presence_penalty":1,
          "repetition_scope":"output","frequency_scope":"all","penalty_last_n":64,"dry_multiplier":0.5,"dry_base":2,
          "dry_allowed_length":4,"dry_last_n":32,"mirostat_tau":3,"mirostat_eta":0.5,
          "sampler_order":"temperature_last","logit_bias":{"7":-2}})",
      wire::UnknownKeys::kRefuse);
  ASSERT_TRUE(request) << request.error().message;
  const engine::sampling::SamplingParams p = engine_params(*request, 11);
  EXPECT_EQ(p.temperature, 0.5f);
  EXPECT_EQ(p.top_p, 0.25f);
  EXPECT_EQ(p.top_k, 9u);
  EXPECT_EQ(p.min_p, 0.125f);
  EXPECT_EQ(p.typical_p, 0.75f);
  EXPECT_EQ(p.top_n_sigma, 2.0f);
  EXPECT_EQ(p.xtc_probability, 0.5f);
  EXPECT_EQ(p.xtc_threshold, 0.25f);
  EXPECT_EQ(p.min_keep, 3u);
  EXPECT_EQ(p.dynatemp_range, 0.25f);
  EXPECT_EQ(p.dynatemp_exponent, 2.0f);
  EXPECT_EQ(p.repetition_penalty, 1.5f);
  EXPECT_EQ(p.frequency_penalty, -1.0f);
  EXPECT_EQ(p.presence_penalty, 1.0f);
  EXPECT_EQ(p.repetition_scope, engine::sampling::PenaltyScope::kOutput);
  EXPECT_EQ(p.frequency_scope, engine::sampling::PenaltyScope::kAll);
  EXPECT_EQ(p.penalty_last_n, 64u);
  EXPECT_EQ(p.dry_multiplier, 0.5f);
  EXPECT_EQ(p.dry_base, 2.0f);
  EXPECT_EQ(p.dry_allowed_length, 4u);
  EXPECT_EQ(p.dry_last_n, 32u);
  EXPECT_EQ(p.mirostat, 0u);
  EXPECT_EQ(p.mirostat_tau, 3.0f);
  EXPECT_EQ(p.mirostat_eta, 0.5f);
  EXPECT_EQ(p.order, engine::sampling::SamplerOrder::kTemperatureLast);
  ASSERT_EQ(p.logit_bias.size(), 1u);
  EXPECT_EQ(index(p.logit_bias[0].token), 7u);
  EXPECT_EQ(p.logit_bias[0].bias, -2.0f);
  EXPECT_EQ(p.seed, 11u);
}

// The defaults of the wire and of the sampler are the same, and the wire's ranges are inside the sampler's.
TEST(EngineParams, DefaultsAndRangesAgree) {
  const engine::sampling::SamplingParams from_wire = engine_params({}, 0), own;
  EXPECT_EQ(from_wire.temperature, own.temperature);
  EXPECT_EQ(from_wire.xtc_threshold, own.xtc_threshold);
  EXPECT_EQ(from_wire.min_keep, own.min_keep);
  EXPECT_EQ(from_wire.dynatemp_exponent, own.dynatemp_exponent);
  EXPECT_EQ(from_wire.repetition_scope, own.repetition_scope);
  EXPECT_EQ(from_wire.frequency_scope, own.frequency_scope);
  EXPECT_EQ(from_wire.dry_base, own.dry_base);
  EXPECT_EQ(from_wire.dry_allowed_length, own.dry_allowed_length);
  EXPECT_EQ(from_wire.mirostat_tau, own.mirostat_tau);
  EXPECT_EQ(from_wire.mirostat_eta, own.mirostat_eta);
  EXPECT_EQ(from_wire.order, own.order);
  for (const char* ends :
       {R"("temperature":2,"top_p":1,"min_p":1,"typical_p":1,"top_n_sigma":100,"xtc_probability":1,"xtc_threshold":0.5,
           "dynatemp_range":2,"dynatemp_exponent":10,"repetition_penalty":2,"frequency_penalty":2,"presence_penalty":2,
           "dry_multiplier":10,"dry_base":4,"mirostat_tau":20,"mirostat_eta":1,"logit_bias":{"1":100}})",
        R"("temperature":0,"top_p":0,"min_p":0,"typical_p":0,"top_n_sigma":0,"xtc_probability":0,"xtc_threshold":0,
           "dynatemp_range":0,"dynatemp_exponent":0,"repetition_penalty":0,"frequency_penalty":-2,
           "presence_penalty":-2,"dry_multiplier":0,"dry_base":1,"mirostat_tau":0,"mirostat_eta":0,
           "logit_bias":{"1":-100}})"}) {
    const auto request = wire::decode<wire::ExecuteRequest>(std::string(R"({"job_id":"j","prompt":"p",)") + ends);
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_TRUE(engine::sampling::validate(engine_params(*request, 0), 10));
  }
}

}  // namespace
}  // namespace llorch::worker::sampling
