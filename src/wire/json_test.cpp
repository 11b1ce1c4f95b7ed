#include "wire/json.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/error_detail.h"
#include "wire/catalog.h"
#include "wire/check_verdict.h"
#include "wire/device_mask.h"
#include "wire/execute_message.h"
#include "wire/pool.h"
#include "wire/pull_error_message.h"
#include "wire/task.h"
#include "wire/told_facts.h"
#include "wire/worker.h"

namespace llorch::wire {
namespace {

std::string reason_of(const base::Error& error) {
  for (const auto& [key, value] : error.details) {
    if (key == "reason") return std::get<std::string>(value);
  }
  return "";
}

// SYS-6.3.3: devices that share a model are named once each, in the order of their ranks.
TEST(DeviceMask, NamesTheDevicesByRank) {
  EXPECT_EQ(devices_of("0"), std::vector<std::string>{"0"});
  EXPECT_EQ(devices_of("1,0"), (std::vector<std::string>{"1", "0"}));
  EXPECT_EQ(mask_of({"1", "0"}), "1,0");
  for (const char* good : {"0", "cpu", "0,1", "cpu,cpu", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"}) {
    EXPECT_TRUE(check_device_mask(good, "gpu_id")) << good;
  }
  for (const char* bad :
       {"", ",", "0,", "0,,1", "0,1,0", "cpu,0", "0,cpu", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"}) {
    const auto refused = check_device_mask(bad, "gpu_id");
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(reason_of(refused.error()), "device_mask") << bad;
  }
  const auto start = decode<StartWorkerRequest>(R"({"worker_id":"w","model_ref":"file:/m","gpu_id":"0,0"})");
  ASSERT_FALSE(start);
  EXPECT_EQ(reason_of(start.error()), "device_mask");
}

// What a node says of itself is used as it stands: in masks, in sums, in loops over all of it.
TEST(Decode, ReportsOfANodeAreBounded) {
  const auto refused = [](const PoolState& state) {
    const auto decoded = decode<PoolState>(encode(state));
    return decoded ? std::string() : reason_of(decoded.error());
  };
  PoolState good{.pool_id = "p"};
  good.gpus = {{.gpu_id = "0", .vram_total_bytes = 1LL << 40}};
  good.workers = {{.worker_id = "w", .model_ref = "file:/m", .gpu_id = "0", .vram_bytes = 1LL << 40}};
  EXPECT_EQ(refused(good), "");
  const auto with = [&](auto change) {
    PoolState state = good;
    change(state);
    return refused(state);
  };
  EXPECT_NE(with([](PoolState& s) { s.gpus[0].gpu_id = "a,b"; }), "");
  EXPECT_NE(with([](PoolState& s) { s.gpus[0].gpu_id = ""; }), "");
  EXPECT_NE(with([](PoolState& s) { s.gpus[0].vram_total_bytes = 1LL << 60; }), "");
  EXPECT_NE(with([](PoolState& s) { s.workers[0].gpu_id = "0,0"; }), "");
  EXPECT_NE(with([](PoolState& s) { s.workers[0].vram_bytes = 1LL << 60; }), "");
  const std::string text(1 << 20, 'x');
  for (std::string WorkerInfo::*field :
       {&WorkerInfo::worker_id, &WorkerInfo::model_ref, &WorkerInfo::model_digest, &WorkerInfo::gpu_id,
        &WorkerInfo::uri, &WorkerInfo::started_at, &WorkerInfo::engine_build, &WorkerInfo::numerics,
        &WorkerInfo::device_class, &WorkerInfo::sampler, &WorkerInfo::kv_dtype}) {
    EXPECT_NE(with([&](PoolState& s) { s.workers[0].*field = text; }), "");
    WorkerReady ready{.pool_id = "p", .worker = good.workers[0]};
    ready.worker.*field = text;
    EXPECT_FALSE(decode<WorkerReady>(encode(ready)));
  }
  EXPECT_NE(with([&](PoolState& s) { s.gpus[0].model = text; }), "");
  EXPECT_NE(with([&](PoolState& s) { s.gpus[0].device_class = text; }), "");
  EXPECT_NE(with([&](PoolState& s) { s.gpus[0].memory_architecture = text; }), "");
  EXPECT_NE(with([&](PoolState& s) { s.gpus[0].compute_capability = text; }), "");
  EXPECT_NE(with([&](PoolState& s) { s.gpus[0].fault = text; }), "");
  EXPECT_NE(with([&](PoolState& s) { s.gpus[0].fault_kind = text; }), "");
  EXPECT_NE(with([&](PoolState& s) { s.gpus[0].throttle_reasons = {text}; }), "");
  EXPECT_NE(with([&](PoolState& s) { s.gpus[0].workers = {text}; }), "");
  for (std::string WorkerFailed::*field : {&WorkerFailed::worker_id, &WorkerFailed::pool_id, &WorkerFailed::gpu_id,
                                           &WorkerFailed::error_code, &WorkerFailed::error_message}) {
    WorkerFailed failed{.worker_id = "w", .pool_id = "p"};
    EXPECT_TRUE(decode<WorkerFailed>(encode(failed)));
    failed.*field = text;
    EXPECT_FALSE(decode<WorkerFailed>(encode(failed)));
  }
  EXPECT_NE(with([](PoolState& s) { s.workers[0].vram_bytes_by_device = {1LL << 60}; }), "");
  EXPECT_NE(with([](PoolState& s) { s.gpus.resize(300, s.gpus[0]); }), "");
  EXPECT_NE(with([](PoolState& s) { s.workers.resize(2000, s.workers[0]); }), "");
  EndEvent end{.job_id = "j"};
  EXPECT_TRUE(decode<EndEvent>(encode(end)));
  end.decode_time_ms = -1;
  EXPECT_FALSE(decode<EndEvent>(encode(end)));
  end.decode_time_ms = 1LL << 60;
  EXPECT_FALSE(decode<EndEvent>(encode(end)));
  ModelFacts facts{.model_ref = "file:/m", .digest = "sha256:a", .context_length = 1};
  EXPECT_TRUE(decode<ModelFacts>(encode(facts)));
  facts.images = ModelImages{.image_token = 1,
                             .pixels_per_side = 1,
                             .pixels_min = 1LL << 62,
                             .pixels_max = 1LL << 62,
                             .tokens_max = 1LL << 62};
  EXPECT_FALSE(decode<ModelFacts>(encode(facts)));
}

TEST(Decode, WhatANodeSaysOfAPullIsBounded) {
  const PullStatus good{.pull_id = "p",
                        .state = PullState::kFetching,
                        .source = std::string(4096, 's'),
                        .bytes_done = 1LL << 40,
                        .bytes_total = 1LL << 41,
                        .bytes_per_second = 1,
                        .eta_ms = (1LL << 40) * 1000};
  EXPECT_TRUE(decode<PullStatus>(encode(good)));
  const auto refused = [&](auto change) {
    PullStatus status = good;
    change(status);
    return !decode<PullStatus>(encode(status));
  };
  for (const std::int64_t bad : {-1LL, -1000LL, 1LL << 62}) {
    for (std::int64_t PullStatus::*field :
         {&PullStatus::bytes_done, &PullStatus::bytes_total, &PullStatus::bytes_per_second, &PullStatus::size_bytes}) {
      EXPECT_TRUE(refused([&](PullStatus& s) { s.*field = bad; })) << bad;
    }
    EXPECT_TRUE(refused([&](PullStatus& s) { s.eta_ms = bad; })) << bad;
  }
  const std::string text(1 << 20, 'x');
  for (std::string PullStatus::*field :
       {&PullStatus::pull_id, &PullStatus::source, &PullStatus::model_ref, &PullStatus::checksum}) {
    EXPECT_TRUE(refused([&](PullStatus& s) { s.*field = text; }));
  }
  for (std::optional<std::string> PullStatus::*field :
       {&PullStatus::peer_pool_id, &PullStatus::signature, &PullStatus::error_code, &PullStatus::error_message}) {
    EXPECT_TRUE(refused([&](PullStatus& s) { s.*field = text; }));
  }
  // What is passed on of a longer error is held, and is whole characters.
  for (std::size_t before = kPullErrorBytesMax - 4; before <= kPullErrorBytesMax; ++before) {
    PullStatus failed = good;
    failed.error_message = fitted_pull_error(std::string(before, 'x') + "\U0001f600\U0001f600");
    EXPECT_EQ(failed.error_message->size(), before == kPullErrorBytesMax - 4 ? before + 4 : before);
    EXPECT_TRUE(decode<PullStatus>(encode(failed)));
  }
}

TEST(Decode, AVerdictIsWhatTheDaemonSaid) {
  const auto valid = decode_verdict(encode_verdict({}));
  ASSERT_TRUE(valid);
  EXPECT_TRUE(*valid);
  const auto refused = decode_verdict(
      encode_verdict(base::fail(base::Error{base::ErrorCode::kConfigInvalid, "no", {}}.with("key", std::string("k")))));
  ASSERT_TRUE(refused);
  ASSERT_FALSE(*refused);
  EXPECT_EQ(refused->error().code, base::ErrorCode::kConfigInvalid);
  EXPECT_EQ(refused->error().message, "no");
  EXPECT_TRUE(base::has_detail(refused->error(), "key", "k"));
  for (const char* line : {"", "{}", "[]", "null", R"({"error":1})", R"({"error":{}})", "valid"}) {
    EXPECT_FALSE(decode_verdict(line)) << line;
  }
}

TEST(Decode, WhatANodeSaysOfAModelIsBounded) {
  ModelFacts good{.model_ref = "file:/" + std::string(4000, 'm'),
                  .digest = "sha256:" + std::string(64, 'a'),
                  .architecture = "llama",
                  .context_length = 1 << 20,
                  .device = "0,1",
                  .parameters = std::vector<std::string>{"top_k"}};
  EXPECT_TRUE(decode_told_facts(encode(good)));
  const auto refused = [&](auto change) {
    ModelFacts facts = good;
    change(facts);
    const auto decoded = decode_told_facts(encode(facts));
    return decoded ? std::string() : reason_of(decoded.error());
  };
  const std::string text(1 << 20, 'x');
  for (std::string ModelFacts::*field :
       {&ModelFacts::model_ref, &ModelFacts::digest, &ModelFacts::architecture, &ModelFacts::quant_kind}) {
    EXPECT_EQ(refused([&](ModelFacts& f) { f.*field = text; }), "length");
  }
  EXPECT_EQ(refused([&](ModelFacts& f) { f.device = text; }), "length");
  ModelFacts stored = good;
  stored.architecture = text;
  EXPECT_TRUE(decode<ModelFacts>(encode(stored))) << "a store may hold it since before the bounds";
  EXPECT_EQ(refused([&](ModelFacts& f) { f.parameters->push_back(text); }), "length");
  for (const std::int64_t count : {std::int64_t{-1}, std::int64_t{1} << 62}) {
    for (std::int64_t ModelFacts::*field : {&ModelFacts::vocab_size, &ModelFacts::context_length, &ModelFacts::slots}) {
      EXPECT_EQ(refused([&](ModelFacts& f) { f.*field = count; }), "range") << count;
    }
    for (std::optional<std::int64_t> ModelFacts::*field :
         {&ModelFacts::hidden_size, &ModelFacts::embedding_dimensions}) {
      EXPECT_EQ(refused([&](ModelFacts& f) { f.*field = count; }), "range") << count;
    }
  }
}

// The prompt of a model that takes text is one text; vectors and scores are made of many inputs.
TEST(Decode, AModelThatTakesTextWrites) {
  ModelFacts facts{.model_ref = "engine:m", .digest = "sha256:a", .context_length = 1, .takes = PromptForm::kText};
  EXPECT_TRUE(decode<ModelFacts>(encode(facts)));
  facts.embedding_dimensions = 8;
  const auto embeds = decode<ModelFacts>(encode(facts));
  ASSERT_FALSE(embeds);
  EXPECT_NE(embeds.error().message.find("takes"), std::string::npos) << embeds.error().message;
  facts.takes = PromptForm::kTokens;
  EXPECT_TRUE(decode<ModelFacts>(encode(facts)));
  facts.embedding_dimensions.reset();
  facts.reranks = true;
  EXPECT_TRUE(decode<ModelFacts>(encode(facts)));
  facts.takes = PromptForm::kText;
  EXPECT_FALSE(decode<ModelFacts>(encode(facts)));
}

// The keys may be chosen to collide: then each member is compared with all before it.
TEST(Decode, RefusesAnObjectOfMoreMembersThanAnybodyWaitsFor) {
  std::string members;
  for (int i = 0; i < 12'000; ++i) members += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  const auto request =
      decode<SubmitRequest>(R"({"model":"m","max_tokens":1,"prompt":"p","metadata":{)" + members + "}}");
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_EQ(request.error().message, "the body is not valid JSON: object too large");
}

// OC-CORE-1020, SYS-7.1.1: every malformed field of a submission is named, with its own reason.
TEST(Decode, NamesTheFieldAndTheReason) {
  struct Case {
    const char* json;
    const char* field;
    const char* reason;
  };
  const Case cases[] = {
      {"", "", "json"},
      {"{", "", "json"},
      {"[]", "", "type"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"model":"n"})", "model", "duplicate"},
      {R"({"model":"m","messages":[{"role":"user","content":"x","n":[1e999]}]})", "", "range"},
      {R"({"model":"m","messages":[{"role":"user","content":"x","n":[-1e999]}]})", "", "range"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"max_tokens":1})", "max_tokens", "duplicate"},
      {R"({"model":"m","prompt":"a\":b","max_tokens":1,"placement":{"prefer":"a","prefer":"b"}})", "prefer",
       "duplicate"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"a b":1,"a b":2})", "?", "duplicate"},
      {R"({"model":"m","max_tokens":1})", "prompt", "missing"},
      {R"({"model":"m","prompt":"p","messages":[],"max_tokens":1})", "prompt", "missing"},
      {R"({"model":"m","prompt":"p","tools":[],"max_tokens":1})", "messages", "combination"},
      {R"({"model":"m","messages":{},"max_tokens":1})", "messages", "type"},
      {R"({"model":"m","messages":[{"a\u0000":1}],"max_tokens":1})", "messages", "nul"},
      {R"({"model":"m","messages":[],"chat_template_kwargs":[],"max_tokens":1})", "chat_template_kwargs", "type"},
      {R"({"prompt":"p","max_tokens":1})", "model", "missing"},
      {R"({"model":"m","model_ref":"m","prompt":"p","max_tokens":1})", "model", "missing"},
      {R"({"model":"m","prompt":"p","max_tokens":1.5})", "max_tokens", "type"},
      {R"({"model":"m","prompt":"p","max_tokens":0})", "max_tokens", "range"},
      {R"({"model":"m","prompt":"p","max_tokens":99999999999999999999})", "max_tokens", "type"},
      {R"({"model":"m","prompt":"","max_tokens":1})", "prompt", "length"},
      {R"({"model":"m","prompt":"a\u0000b","max_tokens":1})", "prompt", "nul"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"temperature":2.1})", "temperature", "range"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"temperature":"hot"})", "temperature", "type"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"priority":"urgent"})", "priority", "enum"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"seed":-1})", "seed", "range"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]})",
       "stop", "length"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"stop":[1]})", "stop[0]", "type"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"task_id":"a b"})", "task_id", "charset"},
      {R"({"model":"m","prompt":"p","max_tokens":1,"colour":"red"})", "colour", "unknown"},
  };
  for (const Case& c : cases) {
    const auto result = decode<SubmitRequest>(c.json, UnknownKeys::kRefuse);
    ASSERT_FALSE(result.has_value()) << c.json;
    EXPECT_EQ(result.error().code, base::ErrorCode::kInvalidParams) << c.json;
    EXPECT_EQ(std::get<std::string>(result.error().details.at(0).second), c.field) << c.json;
    EXPECT_EQ(reason_of(result.error()), c.reason) << c.json;
  }
}

TEST(Decode, MessagesNeverQuoteValues) {
  const auto result = decode<SubmitRequest>(R"({"model":"m","prompt":"p","max_tokens":1,"priority":"needle"})");
  EXPECT_EQ(result.error().message.find("needle"), std::string::npos);
  EXPECT_EQ(decode<SubmitRequest>(R"({"model":"m","prompt":"p","max_tokens":1,"a needle":1})", UnknownKeys::kRefuse)
                .error()
                .message.find("needle"),
            std::string::npos);
}

// SYS-5.1.2: defaults of what the client leaves out.
TEST(Decode, DefaultsAndUnknownKeysBetweenDaemons) {
  const auto request = decode<SubmitRequest>(R"({"model":"m","prompt":"p","max_tokens":7,"later_field":1})").value();
  EXPECT_EQ(request.priority, Priority::kInteractive);
  EXPECT_FALSE(request.temperature.has_value());
  EXPECT_EQ(request.sampling.top_p, 1.0);
  EXPECT_EQ(request.on_disconnect, OnDisconnect::kCancel);
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_FALSE(decode<SubmitRequest>(R"({"model":"m","prompt":"p"})").value().max_tokens)
      << "what the context has left";
}

TEST(ExecuteMessage, HasWhatDiffersFromTheDefaults) {
  ExecuteRequest request{.job_id = "j", .prompt_tokens = std::vector<std::int32_t>{1, 2}};
  EXPECT_EQ(execute_message(request), R"({"job_id":"j","prompt_tokens":[1,2]})");
  const auto reads_the_same = [&] {
    const auto read = decode<ExecuteRequest>(execute_message(request), UnknownKeys::kRefuse);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(encode(*read), encode(request));
  };
  reads_the_same();
  request.temperature = 0.5;
  request.sampling.dry_sequence_breakers.clear();
  request.sampling.logprobs = true;
  request.sampling.regex = "a";
  request.stop = {"b"};
  request.seed = 0;
  EXPECT_EQ(execute_message(request), R"({"job_id":"j","prompt_tokens":[1,2],"temperature":5E-1,"stop":["b"],"seed":0,)"
                                      R"("dry_sequence_breakers":[],"logprobs":true,"regex":"a"})");
  reads_the_same();
  EXPECT_EQ(execute_message({}), R"({"job_id":""})") << "required";
}

TEST(Receipts, ParametersHashCoversWhatDecidesTheOutput) {
  SamplingRequest sampling;
  const std::string hash = parameters_sha256(0.5, sampling, {"end"});
  EXPECT_EQ(hash, "54f1997ef0f17dfd2155a5e2607af32f7d53c91283d51d30112c07a318a75ff4")
      << "a worker of another build says it of the same job: a field that was added is to be a std::optional";
  sampling.logprobs = true;
  sampling.top_logprobs = 5;
  EXPECT_EQ(parameters_sha256(0.5, sampling, {"end"}), hash) << "they report, they do not decide";
  EXPECT_NE(parameters_sha256(0.6, sampling, {"end"}), hash);
  EXPECT_NE(parameters_sha256(0.5, sampling, {}), hash);
  sampling.top_k = 3;
  EXPECT_NE(parameters_sha256(0.5, sampling, {"end"}), hash);
}

// A byte-level model may say NUL; only clients may not.
TEST(Codec, TokenTextMayHoldAnyCodePoint) {
  const std::string text("a\0b\x7f\xF0\x9F\x98\x80", 8);
  EXPECT_EQ(decode<TokenEvent>(encode(TokenEvent{.t = text, .i = 0})).value().t, text);
}

TEST(Codec, RoundTripKeepsEverything) {
  EndEvent end{.job_id = "j",
               .tokens_in = 3,
               .tokens_out = 4,
               .decode_time_ms = 5,
               .first_token_ms = 6,
               .stop_reason = StopReason::kStop,
               .receipt = Receipt{.model_digest = "sha256:00",
                                  .engine_build = "b",
                                  .numerics = "cpu-1",
                                  .device_class = "cpu-x86",
                                  .sampler = "s1",
                                  .kv_dtype = "f16",
                                  .seed = 0xFFFFFFFFFFFFFFFFull,
                                  .prompt_sha256 = "p",
                                  .output_sha256 = "o",
                                  .tokens_out = 4,
                                  .parameters_sha256 = "q"}};
  const EndEvent back = decode<EndEvent>(encode(end)).value();
  EXPECT_EQ(back.receipt, end.receipt);
  EXPECT_EQ(back.stop_reason, StopReason::kStop);
  EXPECT_EQ(encode(back), encode(end));
  EXPECT_EQ(encode(TokenEvent{.t = "a\"b\n\xC3\xA9", .i = 2}), "{\"t\":\"a\\\"b\\n\xC3\xA9\",\"i\":2}");

  PoolState state{.pool_id = "p",
                  .endpoint = "http://h:1",
                  .version = "0",
                  .timestamp_ms = 1,
                  .uptime_seconds = 2,
                  .boot_id = "b",
                  .gpus = {GpuInfo{.gpu_id = "cpu",
                                   .model = "m",
                                   .device_class = "cpu-x86",
                                   .memory_architecture = "host",
                                   .compute_capability = {},
                                   .vram_total_bytes = 9,
                                   .vram_allocated_bytes = 1,
                                   .vram_available_bytes = 8,
                                   .healthy = false,
                                   .fault = "GPU is lost",
                                   .workers = {"w"}}},
                  .workers = {WorkerInfo{
                      .worker_id = "w", .model_ref = "file:/m", .gpu_id = "cpu", .status = WorkerStatus::kBusy}}};
  EXPECT_EQ(encode(decode<PoolState>(encode(state)).value()), encode(state));
}

// Texts are written as the JSON library would, whatever they hold.
TEST(Json, WritesTextsAsTheLibraryDoes) {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all += static_cast<char>(c);
  for (const std::string& text :
       {all, std::string(), std::string("\xC3\xA9 \xF0\x9F\xA6\x8A \xE2\x80\xA8"), all + "\xC3\xA9"}) {
    EXPECT_EQ(encode(TokenEvent{.t = text, .i = 0, .logprobs = {}}),
              "{\"t\":" + boost::json::serialize(boost::json::value(text)) + ",\"i\":0}");
  }
}

// SYS-5.5.1: code, message, retriable and correlation id are always there; retry_after_ms and policy_label when known.
TEST(ErrorBody, CarriesTheTableAndTheDetails) {
  const base::Error error = base::Error{base::ErrorCode::kQueueFull, "full", {}}
                                .with("retry_after_ms", std::int64_t{250})
                                .with("policy_label", "reject")
                                .with("capacity", std::int64_t{100});
  const ErrorBody body = error_body(error, base::CorrelationId("c"));
  EXPECT_EQ(encode(body), R"({"code":"QUEUE_FULL","message":"full","retriable":true,"retry_after_ms":250,)"
                          R"("policy_label":"reject","correlation_id":"c","details":{"capacity":100}})");
  const base::Error back = to_error(decode<ErrorBody>(encode(body)).value());
  EXPECT_EQ(back.code, error.code);
  EXPECT_EQ(back.details.size(), 3u);
}

TEST(Schema, IsDeterministicAndMarksRequiredFields) {
  const std::string schema = json_schema<SubmitRequest>();
  EXPECT_EQ(schema, json_schema<SubmitRequest>());
  const std::string reply = json_schema<CancelReply>();
  EXPECT_NE(reply.find(R"("required":["job_id","status"])"), std::string::npos) << reply;
}

TEST(EnumNames, NameAndValueAreInverse) {
  for (const JobStatus status : {JobStatus::kQueued, JobStatus::kDispatched, JobStatus::kRunning, JobStatus::kCompleted,
                                 JobStatus::kFailed, JobStatus::kCancelled}) {
    EXPECT_EQ(enum_from_name<JobStatus>(enum_name(status)), status);
  }
  EXPECT_EQ(enum_name(StopReason::kMaxTokens), "max_tokens");
  EXPECT_EQ(enum_from_name<Priority>("urgent"), std::nullopt);
}

TEST(Embedding, AWorkerGetsEveryTokenOfEveryInput) {
  const auto reason = [](std::string_view rest) {
    const auto request = decode<ExecuteRequest>(R"({"job_id":"j",)" + std::string(rest) + "}", UnknownKeys::kRefuse);
    return request ? "taken" : reason_of(request.error());
  };
  EXPECT_EQ(reason(R"("prompt_tokens":[1,2,3],"embedding":{"input_tokens":[1,2],"dimensions":4})"), "taken");
  EXPECT_EQ(reason(R"("prompt_tokens":[1,2,3],"embedding":{"input_tokens":[1,1]})"), "range");
  EXPECT_EQ(reason(R"("prompt_tokens":[1,2,3],"embedding":{"input_tokens":[1,3]})"), "range");
  EXPECT_EQ(reason(R"("prompt_tokens":[1,2,3],"embedding":{"input_tokens":[4,-1]})"), "range");
  EXPECT_EQ(reason(R"("prompt_tokens":[1],"embedding":{"input_tokens":[1],"dimensions":0})"), "range");
  EXPECT_EQ(reason(R"("prompt":"x","embedding":{"input_tokens":[1]})"), "combination");
  ExecuteRequest whole{.job_id = "j", .embedding = EmbeddingOrder{.input_tokens = {1}}}, cut = whole;
  cut.embedding->dimensions = 3;
  EXPECT_NE(parameters_sha256(whole), parameters_sha256(cut));
}

TEST(Submission, MostOfARequestMayBeOneField) {
  const std::string text(5 << 20, 'a');
  for (const std::string& field :
       {R"("prompt":")" + text + "\"", R"("messages":[{"role":"user","content":")" + text + "\"}]",
        R"("workload":"embedding","input":")" + text + "\""}) {
    const auto request = decode<SubmitRequest>(R"({"model":"m",)" + field + "}", UnknownKeys::kRefuse);
    EXPECT_TRUE(request) << field.substr(0, 40) << request.error().message;
  }
}

TEST(Embedding, ASubmissionHasInputAndNothingThatDraws) {
  const auto reason = [](std::string_view rest) {
    const auto request = decode<SubmitRequest>(R"({"model":"m",)" + std::string(rest) + "}", UnknownKeys::kRefuse);
    return request ? "taken" : reason_of(request.error());
  };
  EXPECT_EQ(reason(R"("workload":"embedding","input":["a",[1,2]],"dimensions":4,"seed":1)"), "taken");
  EXPECT_EQ(reason(R"("workload":"completion","prompt":"a")"), "taken");
  for (const char* wrong :
       {R"("input":"a")", R"("workload":"embedding","prompt":"a")",
        R"("workload":"embedding","input":"a","prompt":"a")", R"("prompt":"a","dimensions":4)",
        R"("workload":"embedding","input":"a","temperature":0)", R"("workload":"embedding","input":"a","max_tokens":1)",
        R"("workload":"embedding","input":"a","stop":["x"])", R"("workload":"embedding","input":"a","top_k":5)",
        R"("workload":"embedding","input":"a","regex":"x")"})
    EXPECT_EQ(reason(wrong), "combination") << wrong;
}

TEST(Rerank, ASubmissionHasAQueryAndTexts) {
  const auto reason = [](std::string_view rest) {
    const auto request = decode<SubmitRequest>(R"({"model":"m",)" + std::string(rest) + "}", UnknownKeys::kRefuse);
    return request ? "taken" : reason_of(request.error());
  };
  EXPECT_EQ(reason(R"("workload":"rerank","query":"q","input":["a","b"])"), "taken");
  for (const char* wrong : {R"("workload":"rerank","input":"a")", R"("workload":"rerank","query":"q")",
                            R"("query":"q","prompt":"a")", R"("workload":"embedding","query":"q","input":"a")",
                            R"("workload":"rerank","query":"q","input":"a","dimensions":4)",
                            R"("workload":"rerank","query":"q","input":"a","temperature":0)"})
    EXPECT_EQ(reason(wrong), "combination") << wrong;
  EXPECT_EQ(reason(R"("workload":"rerank","query":"q","input":["a",[1,2]])"), "type");
}

TEST(Rerank, ScoresAndVectorsAreOtherParameters) {
  ExecuteRequest vector{.job_id = "j", .embedding = EmbeddingOrder{.input_tokens = {1}}}, score = vector;
  score.embedding->scores = true;
  EXPECT_NE(parameters_sha256(vector), parameters_sha256(score));
}

}  // namespace
}  // namespace llorch::wire
