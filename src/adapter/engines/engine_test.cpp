#include "adapter/engines/engine.h"
#include "adapter/engines/parameters.h"
#include "base/json_view.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace llorch::adapter::engines {
namespace {

namespace bj = boost::json;
using namespace base::json;
using base::ErrorCode;
using wire::StopReason;

wire::ExecuteRequest prompt_job() {
  wire::ExecuteRequest request{.job_id = "j", .prompt = "Once", .max_tokens = 7, .temperature = 0.5, .stop = {"END"}};
  request.seed = (1ULL << 62) + 5;
  request.sampling.top_p = 0.9;
  return request;
}
wire::ExecuteRequest chat_job() {
  wire::ExecuteRequest request = prompt_job();
  request.prompt.reset();
  request.messages = wire::JsonArray{R"([{"role":"user","content":"Hi"}])"};
  return request;
}
bj::value body_of(const Submission& submission) { return bj::parse(submission.body); }

const Target kTarget{"http://127.0.0.1:9", "m"};

TEST(Engines, EveryKindIsKnownByItsName) {
  for (const std::string_view kind : kinds()) {
    const Engine* engine = engine_of(kind);
    ASSERT_NE(engine, nullptr) << kind;
    EXPECT_EQ(engine->kind(), kind);
    // A parameter that is no field of a request would be refused by nobody.
    wire::SamplingRequest all;
    EXPECT_FALSE(parameters_of(kind).empty());
  }
  EXPECT_EQ(engine_of("gpt"), nullptr);
}

// OC-ADAPT-5001: a prompt goes to llama.cpp's own API. OC-ADAPT-5010#sampler: every sampler is named, as its defaults are others
TEST(LlamaCpp, AsksItsOwnApi) {
  const auto submission = engine_of("llamacpp")->submit(prompt_job(), kTarget, {});
  ASSERT_TRUE(submission);
  EXPECT_EQ(submission->url, "http://127.0.0.1:9/completion");
  const bj::value body = body_of(*submission);
  EXPECT_EQ(body.at("prompt"), "Once");
  EXPECT_EQ(body.at("n_predict"), 7);
  EXPECT_EQ(body.at("top_k"), 0);  // off, not its 40
  EXPECT_EQ(body.at("min_p"), 0.0);
  EXPECT_EQ(body.at("repeat_penalty"), 1.0);
  EXPECT_EQ(body.at("cache_prompt"), false);
  EXPECT_LT(body.at("seed").to_number<std::uint64_t>(), 0xffff'ffffu);
  EXPECT_EQ(engine_of("llamacpp")->submit(chat_job(), kTarget, {})->url, "http://127.0.0.1:9/v1/chat/completions");
}

TEST(LlamaCpp, PenaltiesLookAtNoMoreThanTheContext) {
  const Engine& engine = *engine_of("llamacpp");
  wire::ExecuteRequest request = prompt_job();
  const auto last_n = [&](std::int64_t context) {
    return body_of(*engine.submit(request, kTarget, {.context_tokens = context})).at("repeat_last_n").as_int64();
  };
  EXPECT_EQ(last_n(512), 0);
  request.sampling.frequency_penalty = 0.5;
  EXPECT_EQ(last_n(512), 512);
  EXPECT_GT(last_n(0), 0);
  request.sampling.penalty_last_n = 64;
  EXPECT_EQ(last_n(512), 64);
  request.sampling.penalty_last_n = 10'000'000;
  EXPECT_EQ(last_n(512), 512);
}

TEST(LlamaCpp, ReadsPiecesAndTheEnd) {
  const Engine& engine = *engine_of("llamacpp");
  const auto piece = engine.read(R"({"content":" a","tokens":[1,2],"stop":false})");
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->text, " a");
  EXPECT_EQ(piece->tokens, 2);
  EXPECT_FALSE(piece->last);
  const auto end = engine.read(
      R"({"content":"","tokens":[],"stop":true,"stop_type":"word","tokens_predicted":9,"tokens_evaluated":4})");
  ASSERT_TRUE(end);
  EXPECT_EQ(end->text, std::nullopt);
  EXPECT_EQ(end->stop, StopReason::kStop);
  EXPECT_EQ(end->tokens_out, 9);
  EXPECT_EQ(end->tokens_in, 4);
  EXPECT_TRUE(end->last);
}

// OC-ADAPT-5011: version, context and slots are read before the first job
TEST(LlamaCpp, LearnsFromItsProps) {
  EngineFacts facts;
  ASSERT_TRUE(engine_of("llamacpp")
                  ->learn(0, R"({"default_generation_settings":{"n_ctx":4096},"total_slots":3,"build_info":"b1-x"})",
                          kTarget, facts));
  EXPECT_EQ(facts.context_tokens, 4096);
  EXPECT_EQ(facts.slots, 3);
  EXPECT_EQ(facts.version, "b1-x");
}

// Whatever kind it is: its version goes into every receipt, and its numbers into requests.
TEST(Engines, FactsAreBounded) {
  const std::string version = std::string(1000, 'v') + R"(\n\u001b[31m)";
  const auto learned = [&](std::string_view kind, std::size_t index, const std::string& json) {
    EngineFacts facts;
    EXPECT_TRUE(engine_of(kind)->learn(index, json, kTarget, facts)) << kind;
    return facts;
  };
  for (const auto& [number, wanted] : {std::pair{"-1", 0LL},
                                       {"9000000000000000000", 0x7fff'ffffLL},
                                       {"2147483648", 0x7fff'ffffLL},
                                       {"4096", 4096LL}}) {
    const std::string n = number;
    const EngineFacts llamacpp = learned("llamacpp", 0,
                                         R"({"default_generation_settings":{"n_ctx":)" + n + R"(},"total_slots":)" + n +
                                             R"(,"build_info":")" + version + "\"}");
    EXPECT_EQ(llamacpp.context_tokens, wanted);
    EXPECT_EQ(llamacpp.slots, wanted);
    EXPECT_EQ(llamacpp.version, std::string(64, 'v'));
    const EngineFacts tgi = learned("tgi", 0, R"({"max_total_tokens":)" + n + R"(,"version":")" + version + "\"}");
    EXPECT_EQ(tgi.context_tokens, wanted);
    EXPECT_EQ(tgi.version, std::string(64, 'v'));
    for (const char* kind : {"openai", "vllm"}) {
      const EngineFacts facts = learned(kind, 0, R"({"data":[{"id":"m","max_model_len":)" + n + "}]}");
      EXPECT_EQ(facts.context_tokens, wanted) << kind;
    }
  }
  EXPECT_EQ(learned("vllm", 1, R"({"version":"0.11\n\u001b[31m\u00e4-x"})").version, "0.11[31m-x");
  EXPECT_EQ(learned("triton", 0, R"({"version":")" + version + "\"}").version, std::string(64, 'v'));
}

// Recorded from its server: both of its APIs, and what a hostile one might say.
TEST(LlamaCpp, TellsLogprobs) {
  const Engine& engine = *engine_of("llamacpp");
  const auto piece = engine.read(
      R"({"content":" a","tokens":[258],"stop":false,"completion_probabilities":[{"id":258,"token":" a","bytes":[32,97],)"
      R"("logprob":-0.5,"top_logprobs":[{"id":258,"token":" a","bytes":[32,97],"logprob":-0.5},{"id":0,"token":"",)"
      R"("bytes":[],"logprob":-3.25}]}]})");
  ASSERT_TRUE(piece);
  ASSERT_EQ(piece->logprobs.size(), 1u);
  EXPECT_EQ(piece->logprobs[0].id, 258);
  EXPECT_EQ(piece->logprobs[0].bytes, (std::vector<std::uint8_t>{32, 97}));
  EXPECT_EQ(piece->logprobs[0].top_logprobs[1].logprob, -3.25);
  const auto chat = engine.read(
      R"({"choices":[{"delta":{"content":"ab"},"logprobs":{"content":[{"id":1,"token":"a","logprob":-1,"bytes":[97]},)"
      R"({"id":2,"token":"b","logprob":-2,"bytes":[98]}]}}]})");
  EXPECT_EQ(chat->tokens, 2);
  EXPECT_EQ(chat->logprobs[1].logprob, -2);
  for (const char* bad :
       {R"({"id":-1,"logprob":-1})", R"({"id":1})", R"({"id":1,"logprob":"x"})", R"({"logprob":-1})",
        R"({"id":1,"logprob":-1,"bytes":[256]})", R"({"id":1,"logprob":-1,"top_logprobs":[7]})", "7"}) {
    const auto refused = engine.read(R"({"content":"a","completion_probabilities":[)" + std::string(bad) + "]}");
    ASSERT_TRUE(refused) << bad;
    EXPECT_TRUE(refused->logprobs.empty()) << bad;
  }
}

TEST(LlamaCpp, AsksForLogprobsInBothOfItsApis) {
  const Engine& engine = *engine_of("llamacpp");
  auto request = prompt_job();
  EXPECT_FALSE(body_of(*engine.submit(request, kTarget, {})).as_object().contains("n_probs"));
  request.sampling.logprobs = true;
  EXPECT_EQ(body_of(*engine.submit(request, kTarget, {})).at("n_probs"), 1) << "with 0 it tells none";
  auto chat = chat_job();
  chat.sampling.logprobs = true;
  chat.sampling.top_logprobs = 3;
  EXPECT_EQ(body_of(*engine.submit(chat, kTarget, {})).at("logprobs"), true);
  EXPECT_EQ(body_of(*engine.submit(chat, kTarget, {})).at("top_logprobs"), 3);
}

// It takes any name in a job, so a configured one is looked up: its path, its alias, and no other.
TEST(LlamaCpp, HasTheModelThatWasConfigured) {
  const Engine& engine = *engine_of("llamacpp");
  EXPECT_EQ(engine.facts({"http://x", ""}).size(), 1u);
  EXPECT_EQ(engine.facts({"http://x", "tale"})[1].url, "http://x/v1/models");
  const std::string list = R"({"data":[{"id":"/srv/x.gguf","aliases":["tale",7]}]})";
  EngineFacts facts;
  EXPECT_TRUE(engine.learn(1, list, {"http://x", "tale"}, facts));
  EXPECT_TRUE(engine.learn(1, list, {"http://x", "/srv/x.gguf"}, facts));
  EXPECT_EQ(engine.learn(1, list, {"http://x", "x"}, facts).error().code, ErrorCode::kModelNotFound);
  EXPECT_TRUE(engine.learn(1, "[", {"http://x", "x"}, facts)) << "one that tells nothing is believed";
}

// OC-ADAPT-OAI-6001: chat and completions, streamed
TEST(OpenAi, AsksForStreamsWithUsage) {
  const Engine& engine = *engine_of("openai");
  const auto chat = engine.submit(chat_job(), kTarget, {});
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->url, "http://127.0.0.1:9/v1/chat/completions");
  const bj::value body = body_of(*chat);
  EXPECT_EQ(body.at("model"), "m");
  EXPECT_EQ(body.at("stream"), true);
  EXPECT_EQ(body.at("stream_options").at("include_usage"), true);
  EXPECT_EQ(body.at("messages").at(0).at("content"), "Hi");
  EXPECT_EQ(body.at("stop").at(0), "END");
  EXPECT_EQ(body.as_object().if_contains("frequency_penalty"), nullptr);  // a default is left to the engine
  EXPECT_EQ(engine.submit(prompt_job(), {"https://api.example/openai/v2", "m"}, {})->url,
            "https://api.example/openai/v2/completions");
}

TEST(OpenAi, HasTheFieldNamesOfItsServer) {
  const Target target{"http://h", "m", {{"max_tokens", "max_completion_tokens"}, {"seed", "random_seed"}}};
  const bj::object chat = body_of(*engine_of("openai")->submit(chat_job(), target, {})).as_object();
  EXPECT_EQ(chat.at("max_completion_tokens"), 7);
  EXPECT_TRUE(chat.contains("random_seed"));
  EXPECT_FALSE(chat.contains("max_tokens") || chat.contains("seed"));
  EXPECT_EQ(body_of(*engine_of("openai")->submit(prompt_job(), target, {})).at("max_tokens"), 7) << "another API";
}

TEST(OpenAi, ReadsDeltasUsageAndTheEnd) {
  const Engine& engine = *engine_of("openai");
  EXPECT_EQ(engine.read(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})")->text, std::nullopt);
  EXPECT_EQ(engine.read(R"({"choices":[{"delta":{"content":"x"}}]})")->text, "x");
  EXPECT_EQ(engine.read(R"({"choices":[{"text":"y"}]})")->text, "y");
  EXPECT_EQ(engine.read(R"({"choices":[{"delta":{},"finish_reason":"length"}]})")->stop, StopReason::kMaxTokens);
  EXPECT_EQ(engine.read(R"({"choices":[{"text":"","finish_reason":"stop","stop_reason":"END"}]})")->stop,
            StopReason::kStop);
  const auto usage = engine.read(R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":8}})");
  EXPECT_EQ(usage->tokens_in, 3);
  EXPECT_EQ(usage->tokens_out, 8);
  EXPECT_TRUE(engine.read("[DONE]")->last);
  EXPECT_EQ(engine.read("{{").error().code, ErrorCode::kIoError);
  EXPECT_EQ(engine.read(R"({"error":{"message":"secret words","type":"server_error"}})")->error->code,
            ErrorCode::kWorkerReset);
}

// Servers that build their events from classes send null where there is no error.
TEST(Engines, ANullErrorIsNone) {
  const std::string choice = R"({"error":null,"choices":[{"text":"a"}]})";
  for (const std::string_view kind : {"openai", "vllm"}) {
    const auto piece = engine_of(kind)->read(choice);
    ASSERT_TRUE(piece) << kind;
    EXPECT_FALSE(piece->error) << kind;
    EXPECT_EQ(piece->text, "a") << kind;
  }
  EXPECT_EQ(engine_of("llamacpp")->read(R"({"error":null,"content":"a"})")->text, "a");
  EXPECT_EQ(engine_of("tgi")->read(R"({"error":null,"token":{"text":"a"}})")->text, "a");
  EXPECT_EQ(engine_of("triton")->read(R"({"error":null,"text_output":"a"})")->text, "a");
}

// Constraints of the output go where each engine reads them, or are refused.
TEST(Engines, ConstraintsAreSpelledAsTheEngineReadsThem) {
  auto chat = chat_job(), prompt = prompt_job();
  for (auto* job : {&chat, &prompt}) job->sampling.json_schema = wire::JsonSchema{R"({"type":"object"})"};
  const auto asked = [](std::string_view kind, const wire::ExecuteRequest& job, const EngineFacts& facts = {}) {
    return body_of(*engine_of(kind)->submit(job, kTarget, facts));
  };
  EXPECT_EQ(asked("llamacpp", chat).at("json_schema").at("type"), "object");
  EXPECT_EQ(asked("llamacpp", prompt).at("json_schema").at("type"), "object");
  for (const std::string_view kind : {"openai", "vllm"}) {
    const bj::value format = asked(kind, chat).at("response_format");
    EXPECT_EQ(format.at("type"), "json_schema");
    EXPECT_EQ(format.at("json_schema").at("schema").at("type"), "object");
  }
  EXPECT_EQ(asked("vllm", prompt).at("response_format").at("type"), "json_schema");
  EXPECT_EQ(engine_of("openai")->submit(prompt, kTarget, {}).error().code, ErrorCode::kInvalidParams);
  EXPECT_EQ(asked("tgi", chat).at("response_format").at("type"), "json");
  EXPECT_EQ(asked("tgi", prompt).at("parameters").at("grammar").at("value").at("type"), "object");

  auto pattern = prompt_job();
  pattern.sampling.regex = "[ab]+";
  EXPECT_EQ(asked("vllm", pattern).at("structured_outputs").at("regex"), "[ab]+");
  EXPECT_EQ(asked("vllm", pattern, {.version = "0.11.1"}).at("structured_outputs").at("regex"), "[ab]+");
  EXPECT_EQ(asked("vllm", pattern, {.version = "0.9.2"}).at("guided_regex"), "[ab]+");
  EXPECT_EQ(asked("tgi", pattern).at("parameters").at("grammar").at("value"), "[ab]+");
  auto grammar = prompt_job();
  grammar.sampling.grammar = "root ::= \"a\"";
  EXPECT_EQ(asked("llamacpp", grammar).at("grammar"), "root ::= \"a\"");
  const auto knows = [](std::string_view kind, std::string_view name) {
    const auto names = parameters_of(kind);
    return std::ranges::find(names, name) != names.end();
  };
  EXPECT_FALSE(knows("llamacpp", "regex") || knows("vllm", "grammar") || knows("tgi", "grammar") ||
               knows("openai", "regex") || knows("triton", "json_schema"));
}

// OC-ADAPT-OAI-6010: the version is the engine's name for its model
TEST(OpenAi, FindsItsModel) {
  const Engine& engine = *engine_of("openai");
  const std::string list = R"({"data":[{"id":"a"},{"id":"m","max_model_len":2048}]})";
  EngineFacts facts;
  ASSERT_TRUE(engine.learn(0, list, kTarget, facts));
  EXPECT_EQ(facts.model, "m");
  EXPECT_EQ(facts.context_tokens, 2048);
  EXPECT_EQ(engine.learn(0, list, {"http://x", "z"}, facts).error().code, ErrorCode::kModelNotFound);
  EXPECT_EQ(engine.learn(0, list, {"http://x", ""}, facts).error().code, ErrorCode::kModelNotFound);
}

// OC-ADAPT-5030: vLLM says its version and its model's context
TEST(Vllm, HasItsOwnHealthVersionAndSamplers) {
  const Engine& engine = *engine_of("vllm");
  EXPECT_EQ(engine.health({"http://h:1/v1", "m"}).url, "http://h:1/health");
  const auto facts_of = engine.facts({"http://h:1", "m"});
  EXPECT_THAT(facts_of, testing::ElementsAre(testing::Field(&Probe::url, "http://h:1/v1/models"),
                                             testing::Field(&Probe::url, "http://h:1/version")));
  EngineFacts facts;
  ASSERT_TRUE(engine.learn(1, R"({"version":"0.9"})", kTarget, facts));
  EXPECT_EQ(facts.version, "0.9");
  wire::ExecuteRequest request = prompt_job();
  request.sampling.top_k = 5;
  EXPECT_EQ(body_of(*engine.submit(request, kTarget, {})).at("top_k"), 5);
}

// OC-ADAPT-5040: TGI's own API; values that it refuses are not sent
TEST(Tgi, NeverSendsWhatItRefuses) {
  const Engine& engine = *engine_of("tgi");
  wire::ExecuteRequest request = prompt_job();
  request.temperature = 0;
  const bj::value greedy = body_of(*engine.submit(request, kTarget, {})).at("parameters");
  EXPECT_EQ(greedy.at("do_sample"), false);
  EXPECT_EQ(greedy.as_object().if_contains("temperature"), nullptr);
  EXPECT_EQ(greedy.as_object().if_contains("top_p"), nullptr);
  request.temperature = 1;
  request.sampling.top_p = 1;
  const bj::value drawn = body_of(*engine.submit(request, kTarget, {})).at("parameters");
  EXPECT_EQ(drawn.as_object().if_contains("top_p"), nullptr);
  EXPECT_EQ(drawn.at("temperature"), 1.0);
}

TEST(Tgi, ReadsTokensAndDetails) {
  const Engine& engine = *engine_of("tgi");
  EXPECT_EQ(engine.read(R"({"token":{"text":" a","special":false},"details":null})")->text, " a");
  const auto end = engine.read(
      R"({"token":{"text":"</s>","special":true},"details":{"finish_reason":"eos_token","generated_tokens":4,"input_length":2}})");
  EXPECT_EQ(end->text, "");
  EXPECT_EQ(end->stop, StopReason::kEos);
  EXPECT_EQ(end->tokens_out, 4);
  EXPECT_EQ(end->tokens_in, 2);
  EXPECT_TRUE(end->last);
}

// OC-ADAPT-5060#http: Triton's generate extension
TEST(Triton, StreamsByItsGenerateExtension) {
  const Engine& engine = *engine_of("triton");
  EXPECT_EQ(engine.submit(prompt_job(), kTarget, {})->url, "http://127.0.0.1:9/v2/models/m/generate_stream");
  EXPECT_EQ(engine.submit(chat_job(), kTarget, {}).error().code, ErrorCode::kInvalidParams);
  EXPECT_EQ(engine.read(R"({"text_output":"x"})")->text, "x");
  EXPECT_TRUE(engine.ends_with_answer());
}

// OC-ADAPT-OAI-6030#map: upstream statuses and codes become ours, with what they were
TEST(Refusal, MapsStatusesAndKeepsWhatTheyWere) {
  const auto code = [](int status, std::string_view body) { return refusal(status, body, {}).code; };
  EXPECT_EQ(code(429, "{}"), ErrorCode::kWorkerBusy);
  EXPECT_EQ(code(503, "{}"), ErrorCode::kWorkerUnavailable);
  EXPECT_EQ(code(504, "{}"), ErrorCode::kWorkerTimeout);
  EXPECT_EQ(code(404, "{}"), ErrorCode::kModelNotFound);
  EXPECT_EQ(code(422, "{}"), ErrorCode::kInvalidParams);
  EXPECT_EQ(code(401, "{}"), ErrorCode::kInternal);
  EXPECT_EQ(code(302, ""), ErrorCode::kInternal);
  const base::Error error = refusal(429, R"({"error":{"type":"rate_limit_error","code":"slow_down"}})", 2'000);
  const auto has = [&](const std::string& key, const base::DetailValue& value) {
    return std::ranges::find(error.details, std::pair<std::string, base::DetailValue>{key, value}) !=
           error.details.end();
  };
  EXPECT_TRUE(has("upstream_status", std::int64_t{429}));
  EXPECT_TRUE(has("upstream_code", std::string("slow_down")));
  EXPECT_TRUE(has("upstream_type", std::string("rate_limit_error")));
  EXPECT_TRUE(has("retry_after_ms", std::int64_t{2'000}));
}

// OC-ADAPT-OAI-6020: neither prompts nor keys in errors
TEST(Refusal, NeverRepeatsTheEnginesWords) {
  const std::string body =
      R"({"error":{"message":"your prompt: my secret, key sk-12345","type":"my secret words","code":"sk 12345"}})";
  const base::Error error = refusal(400, body, {});
  EXPECT_EQ(error.message.find("secret"), std::string::npos);
  for (const auto& [key, value] : error.details) {
    const auto* text = std::get_if<std::string>(&value);
    if (text != nullptr) {
      EXPECT_EQ(text->find("secret"), std::string::npos) << key;
    }
  }
}

TEST(Refusal, KnowsThatAPromptIsTooLong) {
  for (const char* body :
       {R"({"error":{"code":400,"type":"exceed_context_size_error","message":"x"}})",
        R"({"error":{"code":"context_length_exceeded","message":"x"}})",
        R"({"object":"error","message":"This model's maximum context length is 10 tokens","code":400})"}) {
    const base::Error error = refusal(400, body, {});
    EXPECT_EQ(error.code, ErrorCode::kInvalidParams);
    EXPECT_THAT(error.details, testing::Contains(testing::Pair("reason", base::DetailValue("CONTEXT_TOO_LARGE"))));
  }
}

}  // namespace
}  // namespace llorch::adapter::engines
