#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "orchestratord/http/llamacpp/answers.h"
#include "orchestratord/http/llamacpp/completion/renderer.h"
#include "orchestratord/http/llamacpp/completion/request.h"
#include "text/test_vocabularies.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::llamacpp {
namespace {

namespace json = boost::json;

std::string reason(const base::Error& error) {
  std::string out;
  for (const auto& [key, value] : error.details) {
    if (key == "field" || key == "reason") out += (out.empty() ? "" : " ") + std::get<std::string>(value);
  }
  return out;
}

CompletionCall completion(const std::string& members) {
  auto call = decode_completion(R"({"prompt":"p",)" + members + "}");
  EXPECT_TRUE(call) << call.error().message;
  return call ? *std::move(call) : CompletionCall{};
}

TEST(LlamaCppCompletion, WhatIsLeftOutIsAsThatServerHasIt) {
  const CompletionCall call =
      completion(R"("unknown":1,"top_p":null,"n_indent":2,"t_max_predict_ms":1,"cache_prompt":true)");
  const wire::SubmitRequest& submission = call.submission;
  EXPECT_FALSE(submission.model || submission.max_tokens || submission.seed || submission.suffix);
  EXPECT_EQ(submission.temperature, 0.8);
  EXPECT_EQ(submission.sampling.top_k, 40);
  EXPECT_EQ(submission.sampling.top_p, 0.95);
  EXPECT_EQ(submission.sampling.min_p, 0.05);
  EXPECT_EQ(submission.sampling.sampler_order, wire::SamplerOrder::kTemperatureLast);
  EXPECT_EQ(submission.sampling.penalty_last_n, 0) << "an engine that knows no penalties takes the request";
  EXPECT_FALSE(submission.sampling.logprobs || call.answer.stream || call.answer.is_filtered);
}

TEST(LlamaCppCompletion, FieldsReachTheSubmission) {
  const CompletionCall call = completion(
      R"("model":"m","n_predict":7,"stream":true,"seed":5,"temperature":0.5,"top_k":3,"top_p":0.5,"min_p":0.1,)"
      R"("typical_p":0.9,"top_n_sigma":2,"xtc_probability":0.1,"xtc_threshold":0.2,"repeat_last_n":-1,"repeat_penalty":1.1,)"
      R"("presence_penalty":0.2,"frequency_penalty":0.3,"dry_multiplier":0.8,"dry_penalty_last_n":9,"min_keep":2,)"
      R"("stop":["a","b"],"n_probs":2,"return_tokens":true,"logit_bias":[[9,false],[4,1.5]],"grammar":"root ::= [a]",)"
      R"("response_fields":["content","timings/prompt_n"])");
  const wire::SubmitRequest& submission = call.submission;
  EXPECT_EQ(submission.model, "m");
  EXPECT_EQ(submission.max_tokens, 7);
  EXPECT_EQ(submission.seed, 5u);
  EXPECT_EQ(submission.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(
      wire::changed_sampling_fields(submission.sampling),
      R"("top_p":5E-1,"top_k":3,"min_p":1E-1,"typical_p":9E-1,"top_n_sigma":2E0,"xtc_probability":1E-1,)"
      R"("xtc_threshold":2E-1,"min_keep":2,"repetition_penalty":1.1E0,"frequency_penalty":3E-1,"presence_penalty":2E-1,)"
      R"("frequency_scope":"all","dry_multiplier":8E-1,"dry_last_n":9,"sampler_order":"temperature_last",)"
      R"("logprobs":true,"top_logprobs":2)");
  EXPECT_EQ(submission.sampling.logit_bias, (std::vector<wire::LogitBias>{{4, 1.5}, {9, -100}}));
  EXPECT_EQ(submission.sampling.grammar, "root ::= [a]");
  EXPECT_TRUE(call.answer.stream && call.answer.return_tokens && call.answer.logprobs && call.answer.is_filtered);
  EXPECT_EQ(call.answer.stopping_word, "") << "of several nobody says which it was";
  EXPECT_EQ(completion(R"("stop":["a"])").answer.stopping_word, "a");
}

TEST(LlamaCppCompletion, SpecialNumbersMeanWhatTheyMeanThere) {
  EXPECT_FALSE(completion(R"("n_predict":-1)").submission.max_tokens);
  const CompletionCall none = completion(R"("n_predict":0)");
  EXPECT_EQ(none.submission.max_tokens, 1);
  EXPECT_TRUE(none.answer.hides_output);
  EXPECT_FALSE(completion(R"("seed":-1)").submission.seed);
  EXPECT_FALSE(completion(R"("seed":4294967295)").submission.seed);
  const auto greedy = completion(R"("temperature":-1,"mirostat":2,"dynatemp_range":1)").submission;
  EXPECT_EQ(greedy.temperature, 0.0);
  EXPECT_EQ(greedy.sampling.top_k + greedy.sampling.mirostat, 0);
  const auto mirostat = completion(R"("mirostat":2,"mirostat_tau":4)").submission.sampling;
  EXPECT_EQ(mirostat.top_k, 0);
  EXPECT_EQ(mirostat.mirostat_tau, 4);
  EXPECT_EQ(mirostat.sampler_order, wire::SamplerOrder::kTemperatureFirst);
  EXPECT_EQ(completion(R"("presence_penalty":1)").submission.sampling.penalty_last_n, 64);
  EXPECT_EQ(completion(R"("presence_penalty":1,"repeat_last_n":-1)").submission.sampling.penalty_last_n, 0);
  EXPECT_EQ(completion(R"("repeat_last_n":0,"repeat_penalty":1.5)").submission.sampling.repetition_penalty, 1.0);
  EXPECT_EQ(completion(R"("dry_multiplier":1,"dry_penalty_last_n":0)").submission.sampling.dry_multiplier, 0.0);
  EXPECT_EQ(completion(R"("top_k":-1)").submission.sampling.top_k, 0);
  EXPECT_EQ(completion(R"("grammar":"")").submission.sampling.grammar, std::nullopt);
}

// As servers did that did not know the field yet.
TEST(LlamaCppCompletion, OneCompletionIsMadeHoweverManyAreAskedFor) {
  const CompletionCall one = completion(R"("n_predict":4)");
  const CompletionCall several = completion(R"("n_predict":4,"n_cmpl":3)");
  EXPECT_EQ(wire::encode(several.submission), wire::encode(one.submission));
  EXPECT_EQ(several.answer.settings, one.answer.settings) << "n_cmpl tells how many were made";
  EXPECT_TRUE(decode_infill(R"({"input_prefix":"p","input_suffix":"s","n_cmpl":3})"));
}

// As editors list them.
TEST(LlamaCppCompletion, ASamplerThatIsNotListedIsOff) {
  const auto submission = completion(R"("samplers":["top_k","top_p","infill"],"repeat_penalty":1.5)").submission;
  EXPECT_EQ(submission.temperature, 1.0);
  EXPECT_EQ(submission.sampling.top_k, 40);
  EXPECT_EQ(submission.sampling.top_p, 0.95);
  EXPECT_EQ(submission.sampling.min_p, 0.0);
  EXPECT_EQ(submission.sampling.repetition_penalty, 1.0);
  const auto order = [](const std::string& list) {
    return completion(R"("samplers":)" + list).submission.sampling.sampler_order;
  };
  EXPECT_EQ(order(R"(["top_k","temperature"])"), wire::SamplerOrder::kTemperatureLast);
  EXPECT_EQ(order(R"(["dry","temperature","top_k"])"), wire::SamplerOrder::kTemperatureFirst);
}

TEST(LlamaCppCompletion, RefusalsNameTheFieldAndTheReason) {
  const std::pair<const char*, const char*> completions[] = {
      {R"({})", "prompt missing"},
      {R"({"prompt":[]})", "prompt length"},
      {R"({"prompt":5})", "prompt type"},
      {R"({"prompt":["a","b"]})", "prompt unsupported"},
      {R"({"prompt":[[1],[2]]})", "prompt unsupported"},
      {R"({"prompt":[1,-1]})", "prompt[1] range"},
      {R"({"prompt":[1,{}]})", "prompt[1] type"},
      {R"({"prompt":"p","n_predict":"5"})", "n_predict type"},
      {R"({"prompt":"p","temperature":5})", "temperature range"},
      {R"({"prompt":"p","ignore_eos":true})", "ignore_eos unsupported"},
      {R"({"prompt":"p","post_sampling_probs":true})", "post_sampling_probs unsupported"},
      {R"({"prompt":"p","n_cmpl":0})", "n_cmpl range"},
      {R"({"prompt":"p","lora":[{"id":0}]})", "lora unsupported"},
      {R"({"prompt":"p","logit_bias":[["a",1]]})", "logit_bias type"},
      {R"({"prompt":"p","logit_bias":[[1,1],[1,2]]})", "logit_bias duplicate"},
      {R"({"prompt":"p","logit_bias":[[1,1000]]})", "logit_bias range"},
      {R"({"prompt":"p","grammar":"root ::= [a]","json_schema":{}})", "grammar combination"},
      {R"({"prompt":"p","stop":["","a"]})", "stop length"},
  };
  for (const auto& [body, wanted] : completions) {
    const auto refused = decode_completion(body);
    ASSERT_FALSE(refused) << body;
    EXPECT_EQ(reason(refused.error()), wanted) << body << ": " << refused.error().message;
  }
  const std::pair<const char*, const char*> infills[] = {
      {R"({"input_suffix":"s"})", "input_prefix missing"},
      {R"({"input_prefix":"p"})", "input_suffix missing"},
      {R"({"input_prefix":"p","input_suffix":"s","prompt":[1]})", "prompt type"},
      {R"({"input_prefix":"p","input_suffix":"s","input_extra":[{"filename":"f"}]})", "input_extra[0].text missing"},
      {R"({"input_prefix":"p","input_suffix":"s","input_extra":"x"})", "input_extra type"},
  };
  for (const auto& [body, wanted] : infills) {
    const auto refused = decode_infill(body);
    ASSERT_FALSE(refused) << body;
    EXPECT_EQ(reason(refused.error()), wanted) << body << ": " << refused.error().message;
  }
}

TEST(LlamaCppInfill, TheBeginOfTheLineFollowsOnThePrefix) {
  const auto call = decode_infill(R"({"input_prefix":"p\n","input_suffix":"s","prompt":"  b","n_predict":4,)"
                                  R"("input_extra":[{"filename":"f","text":"x"},{"text":"y","time":1}]})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->submission.prompt->text, "p\n  b");
  EXPECT_EQ(call->submission.suffix, "s");
  EXPECT_EQ(call->submission.max_tokens, 4);
  ASSERT_EQ(call->submission.extra_files->size(), 2u);
  EXPECT_EQ(call->submission.extra_files->front().name, "f");
  EXPECT_EQ(call->submission.extra_files->back().name, "tmp");
  EXPECT_EQ(call->submission.extra_files->back().text, "y");
  EXPECT_EQ(decode_infill(R"({"input_prefix":"","input_suffix":""})")->submission.prompt->text, "");
}

// Bytes are their own ids.
TEST(LlamaCppCompletion, APromptIsTextsAndIdsInARow) {
  auto data = text::byte_bpe_data({}, {{"<s>", text::TokenKind::kControl}});
  data.bos = text::TokenId{256};
  data.add_bos = true;
  const auto tokenizer = text::Tokenizer::create(std::move(data)).value();
  const auto ids = [&](const std::string& prompt) {
    auto call = decode_completion(R"({"prompt":)" + prompt + "}");
    EXPECT_TRUE(call) << call.error().message;
    EXPECT_TRUE(set_prompt(*call, &tokenizer));
    return call->submission.prompt->tokens;
  };
  using Ids = std::vector<std::int32_t>;
  for (const char* prompt : {R"("ab")", R"(["ab"])"}) {
    auto call = decode_completion(std::string(R"({"prompt":)") + prompt + "}").value();
    ASSERT_TRUE(set_prompt(call, &tokenizer));
    EXPECT_EQ(call.submission.prompt->text, "ab");
    EXPECT_EQ(call.submission.parse_special, true) << "what a client spells is its own";
  }
  EXPECT_EQ(ids(R"("")"), Ids{256});
  EXPECT_EQ(ids(R"([97,98])"), (Ids{97, 98}));
  EXPECT_EQ(ids(R"([[97,98]])"), (Ids{97, 98}));
  EXPECT_EQ(ids(R"(["a",98,99,"d"])"), (Ids{256, 97, 98, 99, 100}));
  EXPECT_EQ(ids(R"([98,"d<s>"])"), (Ids{98, 100, 256})) << "what a client spells is its own";
}

TEST(LlamaCppCompletion, AllTextsOfAPromptShareOneBudgetOfSteps) {
  auto data = text::byte_bpe_data({});
  data.tokens.emplace_back(text::TokenizerLimits::kStringBytesMax, 'a');  // looked for at each place of the texts
  data.kinds.push_back(text::TokenKind::kUserDefined);
  const auto tokenizer = text::Tokenizer::create(std::move(data)).value();
  const auto takes = [&](int count) {
    std::string parts = "0";
    for (int i = 0; i < count; ++i) parts += ",\"" + std::string(4'000, 'a') + '"';
    auto call = decode_completion(R"({"prompt":[)" + parts + "]}").value();
    return set_prompt(call, &tokenizer).has_value();
  };
  EXPECT_TRUE(takes(1));
  EXPECT_FALSE(takes(20));
}

TEST(LlamaCppCompletion, ALongPromptIsRefusedBeforeItIsRead) {
  const auto call = decode_completion(R"({"prompt":["abc",1,"d"]})");
  EXPECT_TRUE(check_bytes(call->prompt, 8));
  EXPECT_EQ(reason(check_bytes(call->prompt, 7).error()), "prompt CONTEXT_TOO_LARGE");
}

TEST(LlamaCppCompletion, AnotherSystemsEngineTakesOneText) {
  CompletionCall call = completion(R"("presence_penalty":1)");
  ASSERT_TRUE(set_prompt(call, nullptr));
  EXPECT_EQ(call.submission.prompt->text, "p");
  EXPECT_EQ(wire::names_of_changed_fields(call.submission.sampling),
            (std::vector<std::string_view>{"top_p", "top_k", "min_p", "presence_penalty", "penalty_last_n"}))
      << "what llama.cpp itself knows";
  auto of_ids = decode_completion(R"({"prompt":[1]})").value();
  EXPECT_EQ(reason(set_prompt(of_ids, nullptr).error()), "prompt engine");
}

const chat::AnswerIdentity kIdentity{.job_id = base::JobId("0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b"),
                                     .correlation_id = base::CorrelationId("corr-1")};
constexpr std::string_view kLogprobs =
    R"({"id":1,"logprob":-0.5,"token":"H","bytes":[72],"top_logprobs":[{"id":1,"logprob":-0.5,"token":"H","bytes":[72]}]})";

std::string transcript(CompletionCall call, wire::StopReason stop = wire::StopReason::kEos) {
  CompletionOptions options = std::move(call.answer);
  options.model = "tale";
  options.tokens_in = 11;
  CompletionRenderer renderer(options, kIdentity);
  std::string out;
  renderer.queued({.job_id = kIdentity.job_id.value, .queue_position = 2, .predicted_start_ms = 1500}, {}, out);
  renderer.started({.job_id = kIdentity.job_id.value, .seed = 7, .queue_wait_ms = 100}, {}, out);
  std::int64_t i = 0;
  for (const std::string_view text : {"H\xC3\xA9", " \"a\"\n", ""}) {
    const base::TokenId id{static_cast<std::uint32_t>(100 + i)};
    renderer.token({.t = text, .i = i++, .logprobs = options.logprobs ? kLogprobs : "", .id = id}, {}, out);
  }
  renderer.end({.job_id = kIdentity.job_id.value,
                .tokens_in = 11,
                .tokens_out = 3,
                .decode_time_ms = 40,
                .first_token_ms = 5,
                .stop_reason = stop},
               {}, out);
  EXPECT_EQ(renderer.head().status, 200);
  return out;
}

void expect_golden(const std::string& name, const std::string& actual) {
  const std::string path =
      std::string(LLORCH_SOURCE_DIR) + "/src/orchestratord/http/llamacpp/completion/golden/" + name;
  if (std::getenv("LLORCH_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << actual;
  const auto expected = base::read_file(path, 1 << 20);
  ASSERT_TRUE(expected) << path;
  EXPECT_EQ(actual, *expected) << "run with LLORCH_UPDATE_GOLDEN=1 after a meant change";
}

TEST(LlamaCppRenderer, AnswersAreThoseOfThatServer) {
  expect_golden("completion.json", transcript(completion(R"("seed":7)")));
  expect_golden("completion_probs.json", transcript(completion(R"("n_probs":1,"return_tokens":true)")));
  expect_golden("completion_stream.sse", transcript(completion(R"("stream":true)")));
  expect_golden("completion_stream_probs.sse",
                transcript(completion(R"("stream":true,"n_probs":1,"return_tokens":true)")));
}

TEST(LlamaCppRenderer, AWaitIsToldByWhatKeepsTheStreamAlive) {
  CompletionRenderer renderer(completion(R"("stream":true)").answer, kIdentity);
  std::string out;
  renderer.queued({.job_id = kIdentity.job_id.value, .queue_position = 2, .predicted_start_ms = 1500}, {}, out);
  EXPECT_EQ(out, "");
  renderer.keep_alive(out);
  EXPECT_EQ(out, ": queued: 2 before this one when it came, its start was expected 1500 ms later\n\n");
  renderer.started({.job_id = kIdentity.job_id.value, .seed = 7}, {}, out);
  out.clear();
  renderer.keep_alive(out);
  EXPECT_EQ(out, ": keep-alive\n\n");
}

TEST(LlamaCppRenderer, WhyItStopped) {
  const auto told = [](wire::StopReason stop, const std::string& stops = R"(["END"])") {
    const auto answer = json::parse(transcript(completion(R"("stop":)" + stops), stop)).as_object();
    return std::string(answer.at("stop_type").as_string()) + " " + std::string(answer.at("stopping_word").as_string());
  };
  EXPECT_EQ(told(wire::StopReason::kEos), "eos ");
  EXPECT_EQ(told(wire::StopReason::kMaxTokens), "limit ");
  EXPECT_EQ(told(wire::StopReason::kContext), "limit ");
  EXPECT_EQ(told(wire::StopReason::kStop), "word END");
  EXPECT_EQ(told(wire::StopReason::kStop, R"(["END","."])"), "word ");
}

TEST(LlamaCppRenderer, OnlyWhatAClientListsIsTold) {
  const std::string listed =
      R"("response_fields":["content","timings/prompt_n","timings/none","none","","generation_settings/top_k"])";
  EXPECT_EQ(transcript(completion(listed)),
            "{\"content\":\"H\xC3\xA9 \\\"a\\\"\\n\",\"timings/prompt_n\":11,\"generation_settings/top_k\":40}");
  EXPECT_EQ(transcript(completion(R"("response_fields":[])")), "{}");
}

TEST(LlamaCppRenderer, APromptThatIsOnlyReadHasNoOutput) {
  const auto answer = json::parse(transcript(completion(R"("n_predict":0,"n_probs":1)"))).as_object();
  EXPECT_EQ(answer.at("content").as_string(), "");
  EXPECT_TRUE(answer.at("completion_probabilities").as_array().empty());
  EXPECT_EQ(answer.at("tokens_predicted").as_int64(), 0);
  EXPECT_EQ(answer.at("tokens_evaluated").as_int64(), 11);
}

TEST(LlamaCppRenderer, AFailedJobIsAnErrorOfThatApi) {
  for (const bool stream : {false, true}) {
    CompletionRenderer renderer({.stream = stream}, kIdentity);
    std::string out;
    renderer.error({.code = "RETRY_EXHAUSTED", .message = "gone"}, std::nullopt, out);
    if (stream) {
      ASSERT_TRUE(out.starts_with("data: ") && out.ends_with("\n\n")) << out;
      out = out.substr(6);
    }
    EXPECT_EQ(json::parse(out).at("error").at("llorch").at("code").as_string(), "RETRY_EXHAUSTED");
    EXPECT_EQ(renderer.head().status, stream ? 200 : 500);
  }
}

TEST(LlamaCppProps, SayWhatTheModelHas) {
  models::KnownModel model;
  model.facts.slots = 4;
  const auto props = json::parse(props_body("coder", model, 2048));
  EXPECT_FALSE(props.as_object().contains("chat_template"));
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx").as_int64(), 2048);
  EXPECT_EQ(props.at("default_generation_settings").at("params").at("top_k").as_int64(), 40);
  EXPECT_EQ(props.at("total_slots").as_int64(), 4);
  EXPECT_EQ(props.at("model_alias").as_string(), "coder");
  EXPECT_FALSE(props.at("modalities").at("vision").as_bool());
  EXPECT_FALSE(props.at("llorch").at("infill").as_bool());
}

// As the file has it, if it is one.
TEST(LlamaCppProps, HaveTheChatTemplate) {
  const auto told = [](std::string chat_template) {
    text::TokenizerData data;
    data.chat_template = std::move(chat_template);
    models::KnownModel model;
    model.chat = std::make_shared<text::Chat>(data);
    const json::object props = json::parse(props_body("coder", model, 2048)).as_object();
    return props.contains("chat_template") ? std::string(props.at("chat_template").as_string()) : "none";
  };
  EXPECT_EQ(told("{{ \"a\\n\" }}\n"), "{{ \"a\\n\" }}\n");
  EXPECT_EQ(told(""), "none");
  EXPECT_EQ(told("{% if %}"), "none") << "it is no template";
  EXPECT_EQ(told("a\xff"), "none");
}

}  // namespace
}  // namespace llorch::orchestratord::http::llamacpp
