#include "wire/sampling.h"

#include <gtest/gtest.h>

#include "wire/json.h"
#include "wire/sampling_reset.h"
#include "wire/task.h"
#include "wire/worker.h"

namespace llorch::wire {
namespace {

std::string detail(const base::Error& error, std::string_view name) {
  for (const auto& [key, value] : error.details) {
    if (key == name) return std::get<std::string>(value);
  }
  return "";
}

std::string submission(const std::string& members) {
  return R"({"model":"m","prompt":"p","max_tokens":1)" + (members.empty() ? "" : "," + members) + "}";
}
base::Result<SubmitRequest> parse(const std::string& members) {
  return decode<SubmitRequest>(submission(members), UnknownKeys::kRefuse);
}

// M0-W-1302: every range is closed and every refusal names its field and why.
TEST(Sampling, RefusalsNameTheFieldAndTheReason) {
  struct Case {
    const char* members;
    const char* field;
    const char* reason;
  };
  const Case cases[] = {
      {R"("top_p":1.1)", "top_p", "range"},
      {R"("top_k":-1)", "top_k", "range"},
      {R"("min_p":-0.1)", "min_p", "range"},
      {R"("typical_p":2)", "typical_p", "range"},
      {R"("top_n_sigma":-1)", "top_n_sigma", "range"},
      {R"("xtc_probability":1.5)", "xtc_probability", "range"},
      {R"("xtc_threshold":0.6)", "xtc_threshold", "range"},
      {R"("min_keep":0)", "min_keep", "range"},
      {R"("dynatemp_range":3)", "dynatemp_range", "range"},
      {R"("dynatemp_exponent":-1)", "dynatemp_exponent", "range"},
      {R"("repetition_penalty":2.1)", "repetition_penalty", "range"},
      {R"("frequency_penalty":-2.1)", "frequency_penalty", "range"},
      {R"("presence_penalty":"much")", "presence_penalty", "type"},
      {R"("repetition_scope":"prompt")", "repetition_scope", "enum"},
      {R"("frequency_scope":1)", "frequency_scope", "enum"},
      {R"("penalty_last_n":-1)", "penalty_last_n", "range"},
      {R"("dry_multiplier":11)", "dry_multiplier", "range"},
      {R"("dry_base":0.9)", "dry_base", "range"},
      {R"("dry_allowed_length":0)", "dry_allowed_length", "range"},
      {R"("dry_sequence_breakers":[""])", "dry_sequence_breakers", "length"},
      {R"("dry_sequence_breakers":"x")", "dry_sequence_breakers", "type"},
      {R"("mirostat":3)", "mirostat", "range"},
      {R"("mirostat_tau":-1)", "mirostat_tau", "range"},
      {R"("mirostat_eta":1.1)", "mirostat_eta", "range"},
      {R"("sampler_order":"mine")", "sampler_order", "enum"},
      {R"("logit_bias":[1])", "logit_bias", "type"},
      {R"("logit_bias":{"a":1})", "logit_bias", "key"},
      {R"("logit_bias":{"01":1})", "logit_bias", "key"},
      {R"("logit_bias":{"-1":1})", "logit_bias", "key"},
      {R"("logit_bias":{"+1":1})", "logit_bias", "key"},
      {R"("logit_bias":{"7":101})", "logit_bias", "range"},
      {R"("logit_bias":{"7":null})", "logit_bias", "type"},
      {R"("logprobs":1)", "logprobs", "type"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs", "range"},
      {R"("top_logprobs":3)", "top_logprobs", "combination"},
      {R"("prompt_logprobs":1,"logprobs":true)", "prompt_logprobs", "type"},
      {R"("prompt_logprobs":true)", "prompt_logprobs", "combination"},
      {R"("top_k":3,"min_keep":4)", "top_k", "combination"},
      {R"("temperature":0,"dynatemp_range":1)", "dynatemp_range", "combination"},
      {R"("determinism":"strict","mirostat":2)", "mirostat", "combination"},
      {R"("mirostat":2,"sampler_order":"temperature_last")", "sampler_order", "combination"},
      {R"("mirostat":1,"top_p":0.9)", "top_p", "combination"},
      {R"("mirostat":1,"xtc_probability":0.9)", "xtc_probability", "combination"},
      {R"("mirostat":1,"min_keep":2)", "min_keep", "combination"},
      {R"("json_schema":"{}")", "json_schema", "type"},
      {R"("regex":"")", "regex", "length"},
      {R"("grammar":3)", "grammar", "type"},
      {R"("json_schema":{},"regex":"a")", "regex", "combination"},
      {R"("json_schema":true,"grammar":"root ::= x")", "grammar", "combination"},
      {R"("mirostatt":1)", "mirostatt", "unknown"},
      {R"("sampling":{})", "sampling", "unknown"},
  };
  for (const Case& c : cases) {
    const auto result = parse(c.members);
    ASSERT_FALSE(result.has_value()) << c.members;
    EXPECT_EQ(result.error().code, base::ErrorCode::kInvalidParams) << c.members;
    EXPECT_EQ(detail(result.error(), "field"), c.field) << c.members;
    EXPECT_EQ(detail(result.error(), "reason"), c.reason) << c.members;
  }
}

TEST(Sampling, WorkersRefuseTheSameCombinations) {
  const auto execute = [](const char* members) {
    return decode<ExecuteRequest>(std::string(R"({"job_id":"j","prompt":"p",)") + members + "}", UnknownKeys::kRefuse);
  };
  EXPECT_TRUE(execute(R"("mirostat":2)"));
  EXPECT_EQ(detail(execute(R"("mirostat":2,"temperature":0)").error(), "reason"), "combination");
  EXPECT_EQ(detail(execute(R"("top_logprobs":1)").error(), "field"), "top_logprobs");
  EXPECT_EQ(detail(execute(R"("logprobs":true,"prompt_logprobs":true)").error(), "field"), "prompt_logprobs")
      << "of tokens, and a text is not told as such";
}

TEST(Sampling, LogprobsOfAPromptAreBoundedByTheirEntries) {
  SamplingRequest r{.logprobs = true};
  EXPECT_TRUE(validate_prompt_logprobs(r, 1'000'000)) << "nobody asked";
  r.prompt_logprobs = true;
  EXPECT_TRUE(validate_prompt_logprobs(r, kPromptLogprobsMax));
  EXPECT_FALSE(validate_prompt_logprobs(r, kPromptLogprobsMax + 1));
  r.top_logprobs = 1;
  EXPECT_TRUE(validate_prompt_logprobs(r, kPromptLogprobsMax / 2));
  const auto refused = validate_prompt_logprobs(r, kPromptLogprobsMax / 2 + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_EQ(detail(refused.error(), "field"), "prompt");
  EXPECT_EQ(detail(refused.error(), "reason"), "logprobs");
}

// What is told of the prompt decides nothing of the output; a worker of an older build is not told of it where nobody asks.
TEST(Sampling, LogprobsOfAPromptAreNotOnTheWireUnlessAskedFor) {
  ExecuteRequest request{.job_id = "j", .prompt_tokens = std::vector<std::int32_t>{1, 2, 3}};
  EXPECT_EQ(encode(request).find("prompt_logprobs"), std::string::npos);
  EXPECT_EQ(prompt_events_count(request), 0);
  const std::string parameters = parameters_sha256(request);
  request.sampling.logprobs = true;
  request.sampling.prompt_logprobs = true;
  EXPECT_EQ(prompt_events_count(request), 3);
  EXPECT_EQ(parameters_sha256(request), parameters);
  EXPECT_TRUE(decode<ExecuteRequest>(encode(request), UnknownKeys::kRefuse));
  request.images = {{.file = "AAAA", .width = 1, .height = 1}};
  EXPECT_EQ(detail(decode<ExecuteRequest>(encode(request)).error(), "field"), "prompt_logprobs");
}

TEST(Sampling, ALogitBiasIsAnObjectInIdOrder) {
  const auto request = parse(R"("logit_bias":{"100":-1.5,"7":100,"0":0})").value();
  const std::vector<LogitBias> expected{{0, 0.0}, {7, 100.0}, {100, -1.5}};
  EXPECT_EQ(request.sampling.logit_bias, expected);
  const auto back = decode<SubmitRequest>(encode(request), UnknownKeys::kRefuse).value();
  EXPECT_EQ(back.sampling.logit_bias, expected);
  std::string many = R"("logit_bias":{)";
  for (int i = 0; i < 1025; ++i) many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  EXPECT_EQ(detail(parse(many + "}").error(), "reason"), "length");
}

TEST(Sampling, TheVocabularyHasItsSay) {
  SamplingRequest r;
  r.top_k = 100;
  EXPECT_TRUE(validate_for_vocabulary(r, 100));
  EXPECT_EQ(detail(validate_for_vocabulary(r, 99).error(), "field"), "top_k");
  r = {};
  r.logit_bias = {{3, 1.0}, {99, 1.0}};
  EXPECT_TRUE(validate_for_vocabulary(r, 100));
  EXPECT_EQ(detail(validate_for_vocabulary(r, 99).error(), "field"), "logit_bias");
}

TEST(Sampling, OperatorsSeeWhatWasChangedAndNothingTextLike) {
  SamplingRequest r;
  EXPECT_EQ(changed_sampling_fields(r), "");
  r.top_k = 40;
  r.sampler_order = SamplerOrder::kTemperatureLast;
  r.logit_bias = {{3, 1.0}};
  r.dry_sequence_breakers = {"secret"};
  EXPECT_EQ(changed_sampling_fields(r), R"("top_k":40,"sampler_order":"temperature_last")");
}

TEST(Sampling, AnyFieldCanBeGivenItsDefaultAgain) {
  SamplingRequest r;
  r.top_k = 40;
  r.repetition_scope = PenaltyScope::kOutput;
  r.dry_sequence_breakers = {"x"};
  r.logit_bias = {{3, 1.0}};
  r.json_schema = JsonSchema{"true"};
  r.logprobs = true;
  r.prompt_logprobs = true;
  std::size_t left = names_of_changed_fields(r).size();
  EXPECT_EQ(left, 7u);
  for (const std::string_view name : names_of_changed_fields(r)) {
    reset_field(r, name);
    EXPECT_EQ(names_of_changed_fields(r).size(), --left) << name;
  }
}

// A receipt's parameters and what operators see as changed do not tell the two zeros apart.
TEST(Sampling, MinusZeroIsZero) {
  const auto minus = decode<SamplingRequest>(R"({"presence_penalty": -0.0, "min_p": -0.0})");
  ASSERT_TRUE(minus);
  EXPECT_EQ(changed_sampling_fields(*minus), "");
  EXPECT_EQ(parameters_sha256(0, *minus, {}), parameters_sha256(0, {}, {}));
}

TEST(Sampling, TokenEventsCarryLogprobsOnlyWhenAsked) {
  EXPECT_EQ(encode(TokenEvent{.t = "a", .i = 0}), R"({"t":"a","i":0})");
  TokenEvent event{.t = "a", .i = 0};
  event.logprobs = TokenLogprobs{.id = 5,
                                 .logprob = -0.5,
                                 .token = "a",
                                 .bytes = {97},
                                 .top_logprobs = {{.id = 5, .logprob = -0.5, .token = "a", .bytes = {97}}}};
  const std::string text = encode(event);
  EXPECT_EQ(encode(decode<TokenEvent>(text).value()), text);
  EXPECT_TRUE(text.ends_with(R"("logprobs":{"id":5,"logprob":-5E-1,"token":"a","bytes":[97],)"
                             R"("top_logprobs":[{"id":5,"logprob":-5E-1,"token":"a","bytes":[97]}]}})"))
      << text;
}

TEST(Sampling, EventsOfThePromptSayThatTheyAre) {
  const TokenEvent event{.i = 0, .prompt_logprobs = PromptTokenLogprobs{.id = 5, .token = "a", .bytes = {97}}};
  const std::string text = encode(event);
  EXPECT_EQ(text, R"({"t":"","i":0,"prompt_logprobs":{"id":5,"token":"a","bytes":[97],"top_logprobs":[]}})");
  EXPECT_EQ(encode(decode<TokenEvent>(text, UnknownKeys::kRefuse).value()), text);
}

}  // namespace
}  // namespace llorch::wire
