// Requests of /v1/completions, and fields that several routes have.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "orchestratord/http/openai/testing/requests.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

// Also the sampling fields, which have values of their own.
TEST(OpenAiRequests, NullOfAnyFieldMeansLeftOut) {
  const auto check = [](const std::string& schema, auto decode, const std::string& body) {
    const auto left_out = decode("{" + body + "}");
    ASSERT_TRUE(left_out) << left_out.error().message;
    const auto described = boost::json::parse(schema);
    for (const auto& field : described.at("properties").as_object()) {
      const std::string name(field.key());
      if (body.find('"' + name + "\":") != std::string::npos) continue;
      const auto request = decode("{" + body + ",\"" + name + "\":null}");
      ASSERT_TRUE(request) << name << ": " << request.error().message;
      EXPECT_EQ(wire::encode(request->submission), wire::encode(left_out->submission)) << name;
    }
  };
  check(wire::json_schema<wire::ChatCompletionRequest>(), decode_chat,
        R"("model":"m","messages":[{"role":"user","content":"hi"}])");
  check(wire::json_schema<wire::TextCompletionRequest>(), decode_completion, R"("model":"m","prompt":"p")");
  check(wire::json_schema<wire::ResponsesRequest>(), decode_response, R"("model":"m","input":"hi")");
  EXPECT_EQ(detail(decode_chat(chat_body(R"("no_such_field":null)")).error(), "reason"), "unknown");
  EXPECT_EQ(detail(decode_response(R"({"model":null,"input":"a"})").error(), "reason"), "missing");
}

// Where several models have names, the gateway refuses it (chat::only_model).
TEST(OpenAiRequests, AChatOrACompletionMayLeaveItsModelToBeFound) {
  for (const char* model : {R"("model":null,)", R"("model":"",)", ""}) {
    const auto turn = decode_chat("{" + std::string(model) + R"("messages":[{"role":"user","content":"hi"}]})");
    ASSERT_TRUE(turn) << turn.error().message;
    EXPECT_FALSE(turn->submission.model);
    EXPECT_EQ(turn->answer.model, "");
    const auto text = decode_completion("{" + std::string(model) + R"("prompt":"p"})");
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_FALSE(text->submission.model);
  }
  EXPECT_EQ(detail(decode_response(R"({"model":"","input":"a"})").error(), "field"), "model");
}

TEST(OpenAiRequests, BelowZeroTokensIsNoLimit) {
  EXPECT_FALSE(chat(R"("max_tokens":-1)").submission.max_tokens);
  EXPECT_FALSE(chat(R"("max_completion_tokens":-2)").submission.max_tokens);
  EXPECT_EQ(chat(R"("max_tokens":-1,"max_completion_tokens":5)").submission.max_tokens, 5);
  EXPECT_EQ(chat(R"("max_tokens":5,"max_completion_tokens":-1)").submission.max_tokens, 5);
  EXPECT_FALSE(completion(R"("max_tokens":-1)").submission.max_tokens) << "16 is of a request without a number";
  const auto response = decode_response(R"({"model":"m","input":"a","max_output_tokens":-1})");
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_FALSE(response->submission.max_tokens);
  EXPECT_NE(response->answer.asked.find(R"("max_output_tokens":null)"), std::string::npos) << response->answer.asked;
  for (const char* none : {R"("max_tokens":0)", R"("max_completion_tokens":0)"}) {
    EXPECT_EQ(detail(decode_chat(chat_body(none)).error(), "reason"), "range") << none;
  }
  EXPECT_EQ(detail(decode_completion(R"({"model":"m","prompt":"p","max_tokens":0})").error(), "reason"), "combination")
      << "only where the prompt is the answer";
}

TEST(OpenAiRequests, ASeedBelow0IsTheOneOfTheSameBits) {
  EXPECT_EQ(chat(R"("seed":-1)").submission.seed, 0xffff'ffff'ffff'ffffU);
  EXPECT_EQ(chat(R"("seed":-9223372036854775808)").submission.seed, 0x8000'0000'0000'0000U);
  EXPECT_EQ(completion(R"("seed":18446744073709551615)").submission.seed, 0xffff'ffff'ffff'ffffU);
  EXPECT_EQ(detail(decode_chat(chat_body(R"("seed":1.5)")).error(), "reason"), "type");
}

// What clients of llama.cpp's server always send changes no job.
TEST(OpenAiRequests, FieldsOfLlamaCppThatChangeNothing) {
  const std::string members =
      R"("cache_prompt":true,"id_slot":0,"timings_per_token":true,"return_progress":true,"reasoning_format":"auto",
         "backend_sampling":false,"samplers":"edkypmxt","dynatemp_range":0,"dynatemp_exponent":1,"typical_p":1,"typ_p":1,
         "xtc_probability":0,"xtc_threshold":0.1,"repeat_last_n":64,"repeat_penalty":1,"presence_penalty":0,
         "frequency_penalty":0,"dry_multiplier":0,"dry_base":1.75,"dry_allowed_length":2,"dry_penalty_last_n":-1)";
  EXPECT_EQ(wire::encode(chat(members).submission), wire::encode(chat("").submission));
  EXPECT_EQ(wire::encode(completion(members).submission), wire::encode(completion("").submission));
}

TEST(OpenAiRequests, SamplingHasTheNamesOfLlamaCppToo) {
  const auto changed = [](const std::string& members) {
    return wire::changed_sampling_fields(chat(members).submission.sampling);
  };
  EXPECT_EQ(changed(R"("repeat_penalty":1.5)"), R"("repetition_penalty":1.5E0)");
  EXPECT_EQ(changed(R"("repeat_penalty":1.5,"repeat_last_n":32)"), R"("repetition_penalty":1.5E0,"penalty_last_n":32)");
  EXPECT_EQ(changed(R"("repeat_penalty":1.5,"repeat_last_n":-1)"), R"("repetition_penalty":1.5E0)");
  EXPECT_EQ(changed(R"("repeat_penalty":1.5,"presence_penalty":1,"repeat_last_n":0)"), "");
  EXPECT_EQ(changed(R"("presence_penalty":1,"repeat_last_n":32)"), R"("presence_penalty":1E0,"penalty_last_n":32)");
  EXPECT_EQ(changed(R"("typ_p":0.5)"), R"("typical_p":5E-1)");
  EXPECT_EQ(changed(R"("dry_multiplier":0.5,"dry_penalty_last_n":9)"), R"("dry_multiplier":5E-1,"dry_last_n":9)");
  EXPECT_EQ(changed(R"("dry_multiplier":0.5,"dry_penalty_last_n":-1)"), R"("dry_multiplier":5E-1)");
  EXPECT_EQ(changed(R"("dry_multiplier":0.5,"dry_penalty_last_n":0)"), "");
  EXPECT_EQ(wire::changed_sampling_fields(completion(R"("repeat_penalty":1.5)").submission.sampling),
            R"("repetition_penalty":1.5E0)");
}

// What clients of vLLM always send makes the job that a request without it makes.
TEST(OpenAiRequests, NeutralFieldsOfVllmAreLeftOut) {
  const std::string neutral =
      R"("top_k":-1,"min_p":0,"repetition_penalty":1.0,"length_penalty":1.0,"use_beam_search":false,"best_of":1,)"
      R"("early_stopping":false,"skip_special_tokens":true,"spaces_between_special_tokens":true,)"
      R"("include_stop_str_in_output":false,"min_tokens":0,"ignore_eos":false,"truncate_prompt_tokens":null,"priority":0)";
  EXPECT_EQ(wire::encode(chat(neutral).submission), wire::encode(chat("").submission));
  EXPECT_EQ(wire::encode(completion(neutral).submission), wire::encode(completion("").submission));
  EXPECT_EQ(chat(R"("top_k":7,"length_penalty":1)").submission.sampling.top_k, 7);
  EXPECT_EQ(completion(R"("top_k":7,"samplers":["top_p"])").submission.sampling.top_k, 0);
}

// As in vLLM, they go with include_usage.
TEST(OpenAiRequests, EveryChunkMayCount) {
  const auto counts = [](const char* options) {
    return chat(std::string(R"("stream":true,"stream_options":)") + options).answer.continuous_usage;
  };
  EXPECT_TRUE(counts(R"({"include_usage":true,"continuous_usage_stats":true})"));
  EXPECT_FALSE(counts(R"({"continuous_usage_stats":true})"));
  EXPECT_FALSE(counts(R"({"include_usage":true,"continuous_usage_stats":null})"));
}

TEST(OpenAiRequests, ASamplerThatIsNotListedIsOff) {
  const std::string all = R"("temperature":0.5,"top_k":40,"top_p":0.9,"min_p":0.1,"repeat_penalty":1.5,"samplers":)";
  const wire::SubmitRequest listed = chat(all + R"(["top_k","infill","temperature"])").submission;
  EXPECT_EQ(wire::changed_sampling_fields(listed.sampling), R"("top_k":40)");
  EXPECT_EQ(listed.temperature, 0.5);
  const wire::SubmitRequest letters = chat(all + R"("ep")").submission;
  EXPECT_EQ(wire::changed_sampling_fields(letters.sampling), R"("top_p":9E-1,"repetition_penalty":1.5E0)");
  EXPECT_EQ(letters.temperature, 1.0);
  EXPECT_EQ(wire::changed_sampling_fields(chat(all + "[]").submission.sampling), "");
}

TEST(OpenAiCompletion, SeveralChoicesMayBeWanted) {
  EXPECT_EQ(completion("").answer.choices, 1);
  EXPECT_EQ(completion(R"("n":16)").answer.choices, 16);
  EXPECT_EQ(completion(R"("n":3,"best_of":3)").answer.choices, 3);
}

TEST(OpenAiCompletion, FieldsReachTheSubmission) {
  Request request = completion("");
  EXPECT_EQ(request.submission.prompt->text, "p");
  EXPECT_EQ(request.submission.max_tokens, 16);
  EXPECT_EQ(request.answer.echo, "");
  request = completion(R"("max_tokens":5,"logprobs":0,"best_of":1,"user":"u")");
  EXPECT_EQ(request.submission.max_tokens, 5);
  EXPECT_TRUE(request.submission.sampling.logprobs);
  EXPECT_EQ(request.submission.sampling.top_logprobs, 0);
  EXPECT_EQ(completion(R"("echo":true)").answer.echo, "p");
  EXPECT_EQ(decode_completion(R"({"model":"m","prompt":["only"]})")->submission.prompt->text, "only");
  const auto several = decode_completion(R"({"model":"m","prompt":["a","b"],"n":3})").value();
  ASSERT_EQ(several.prompts.size(), 2u);
  EXPECT_EQ(several.prompts[1].text, "b");
  EXPECT_EQ(several.submission.prompt->text, "a");
  EXPECT_EQ(several.answer.choices, 6);
  EXPECT_EQ(decode_completion(R"({"model":"m","prompt":[5,6]})")->submission.prompt->tokens, (std::vector{5, 6}));
  const auto ids = decode_completion(R"({"model":"m","prompt":[[5,6],"b",[7]]})").value();
  ASSERT_EQ(ids.prompts.size(), 3u);
  EXPECT_EQ(ids.submission.prompt->tokens, (std::vector{5, 6}));
  EXPECT_EQ(ids.prompts[1].text, "b");
  EXPECT_EQ(ids.prompts[2].tokens, std::vector{7});
  EXPECT_EQ(several.answer.choices_per_prompt, 3);
}

// As lm-evaluation-harness asks for the log-probabilities of a text.
TEST(OpenAiCompletion, AnEchoWithLogprobsTellsThoseOfThePrompt) {
  const auto scored = decode_completion(
      R"({"model":"m","prompt":[[5,6],"b"],"max_tokens":1,"logprobs":1,"echo":true,"seed":1234,"temperature":0})");
  ASSERT_TRUE(scored) << scored.error().message;
  EXPECT_EQ(scored->submission.sampling.prompt_logprobs, true);
  EXPECT_TRUE(scored->submission.sampling.logprobs);
  EXPECT_EQ(scored->submission.sampling.top_logprobs, 1);
  EXPECT_TRUE(scored->answer.echo_logprobs);
  EXPECT_EQ(scored->answer.echo, "");
  EXPECT_FALSE(scored->answer.hides_output);
  EXPECT_FALSE(completion(R"("echo":true)").submission.sampling.prompt_logprobs);
  EXPECT_FALSE(completion(R"("logprobs":1)").submission.sampling.prompt_logprobs);
  const Request prompt_alone = completion(R"("echo":true,"logprobs":20,"max_tokens":0)");
  EXPECT_TRUE(prompt_alone.answer.hides_output);
  EXPECT_EQ(prompt_alone.answer.echo, "p");
  EXPECT_EQ(prompt_alone.submission.max_tokens, 1);
}

// The worker tells with each token as many of the likeliest as the prompt's or the output's are to have, whichever is more.
TEST(OpenAiCompletion, PromptLogprobsAreThoseOfVllm) {
  const Request prompt_only = completion(R"("prompt_logprobs":5)");
  EXPECT_TRUE(prompt_only.submission.sampling.logprobs);
  EXPECT_EQ(prompt_only.submission.sampling.prompt_logprobs, true);
  EXPECT_EQ(prompt_only.submission.sampling.top_logprobs, 5);
  EXPECT_EQ(prompt_only.answer.prompt_logprobs, 5);
  EXPECT_FALSE(prompt_only.answer.logprobs) << "nobody asked for those of the output";
  EXPECT_FALSE(prompt_only.answer.echo_logprobs);
  const Request both = completion(R"("prompt_logprobs":5,"logprobs":2)");
  EXPECT_TRUE(both.answer.logprobs);
  EXPECT_EQ(both.answer.top_logprobs_max, 2);
  const Request fewer = completion(R"("prompt_logprobs":0,"logprobs":2)");
  EXPECT_EQ(fewer.submission.sampling.top_logprobs, 2);
  EXPECT_EQ(fewer.answer.prompt_logprobs, 0);
  EXPECT_FALSE(fewer.answer.top_logprobs_max);
  EXPECT_TRUE(completion(R"("prompt_logprobs":0,"max_tokens":0)").answer.hides_output);
  const Request null = completion(R"("prompt_logprobs":null)");
  EXPECT_FALSE(null.answer.prompt_logprobs);
  EXPECT_EQ(wire::encode(null.submission), wire::encode(completion("").submission));
}

TEST(OpenAiCompletion, TheOutputStandsBetweenPromptAndSuffix) {
  const auto request = decode_completion(R"({"model":"m","prompt":"","suffix":"s"})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->submission.prompt->text, "");
  EXPECT_EQ(request->submission.suffix, "s");
  EXPECT_FALSE(request->submission.parse_special);
  const auto whole = decode_completion(R"({"model":"m","prompt":"p","suffix":""})");
  EXPECT_FALSE(whole->submission.suffix);
  EXPECT_EQ(whole->submission.parse_special, true);
  EXPECT_EQ(decode_completion(R"({"model":"m","prompt":"p","max_tokens":2147483647})")->submission.max_tokens,
            1'000'000);
  EXPECT_EQ(decode_completion(R"({"model":"m","prompt":["p",""],"suffix":"s"})")->prompts.size(), 2u);
}

TEST(OpenAiCompletion, RefusalsNameTheFieldAndTheReason) {
  struct Case {
    const char* body;
    const char* field;
    const char* reason;
  };
  const Case cases[] = {
      {R"({"model":"m"})", "prompt", "missing"},
      {R"({"model":"m","prompt":7})", "prompt", "type"},
      {R"({"model":"m","prompt":[1,"a"]})", "prompt[1]", "type"},
      {R"({"model":"m","prompt":[1,2.5]})", "prompt[1]", "type"},
      {R"({"model":"m","prompt":[1,4294967296]})", "prompt[1]", "range"},
      {R"({"model":"m","prompt":[[1],[]]})", "prompt[1]", "length"},
      {R"({"model":"m","prompt":[[1],[[2]]]})", "prompt[1][0]", "type"},
      {R"({"model":"m","prompt":[1],"echo":true})", "echo", "combination"},
      {R"({"model":"m","prompt":[]})", "prompt", "range"},
      {R"({"model":"m","prompt":["a",""]})", "prompt[1]", "length"},
      {R"({"model":"m","prompt":["a","b","c","d","e"],"n":16})", "n", "range"},
      {R"({"model":"m","prompt":""})", "prompt", "length"},
      {R"({"model":"m","prompt":"p","best_of":2})", "best_of", "unsupported"},
      {R"({"model":"m","prompt":"p","n":2,"best_of":1})", "best_of", "unsupported"},
      {R"({"model":"m","prompt":[1],"suffix":"s"})", "suffix", "combination"},
      {R"({"model":"m","prompt":["p",[1]],"suffix":"s"})", "suffix", "combination"},
      {R"({"model":"m","prompt":"p","suffix":5})", "suffix", "type"},
      {R"({"model":"m","prompt":"","suffix":""})", "prompt", "length"},
      {R"({"model":"m","prompt":"p","logprobs":21})", "logprobs", "range"},
      {R"({"model":"m","prompt":"p","logprobs":1,"echo":true,"suffix":"s"})", "suffix", "combination"},
      {R"({"model":"m","prompt":"p","prompt_logprobs":true})", "prompt_logprobs", "type"},
      {R"({"model":"m","prompt":"p","prompt_logprobs":21})", "prompt_logprobs", "range"},
      {R"({"model":"m","prompt":"p","prompt_logprobs":-1})", "prompt_logprobs", "range"},
      {R"({"model":"m","prompt":"p","prompt_logprobs":0,"stream":true})", "prompt_logprobs", "combination"},
      {R"({"model":"m","prompt":"p","prompt_logprobs":0,"suffix":"s"})", "suffix", "combination"},
      {"[", "", "json"},
      {"\xff", "", "utf8"},
  };
  for (const Case& c : cases) {
    const auto request = decode_completion(c.body);
    ASSERT_FALSE(request) << c.body;
    EXPECT_EQ(detail(request.error(), "field"), c.field) << request.error().message;
    EXPECT_EQ(detail(request.error(), "reason"), c.reason) << request.error().message;
    EXPECT_EQ(request.error().message.find("\"p\""), std::string::npos);
  }
}

}  // namespace
}  // namespace llorch::orchestratord::http::openai
