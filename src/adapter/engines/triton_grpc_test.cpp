// Triton over gRPC, as messages: what a job becomes, and what an answer says.
#include <gmock/gmock.h>

#include <cstring>

#include "adapter/engines/engine.h"
#include "adapter/engines/kserve.pb.h"

namespace llorch::adapter::engines {
namespace {

using base::ErrorCode;
using std::string_literals::operator""s;

const Target kTarget{"grpc://127.0.0.1:8001", "ensemble"};

const Engine& engine() { return *engine_of("triton", kTarget.base_url); }

wire::ExecuteRequest job() {
  wire::ExecuteRequest request{
      .job_id = "j", .prompt = "Once", .max_tokens = 7, .temperature = 0.5, .stop = {"END", "ä"}};
  request.seed = (1ULL << 62) + 5;
  request.sampling.top_p = 0.25;
  return request;
}

struct Tensor {
  std::string datatype;
  std::vector<std::int64_t> shape;
  std::string bytes;
  bool operator==(const Tensor&) const = default;
};
std::map<std::string, Tensor> tensors_of(const Submission& submission) {
  inference::ModelInferRequest request;
  EXPECT_TRUE(request.ParseFromString(submission.body));
  EXPECT_EQ(request.model_name(), "ensemble");
  EXPECT_TRUE(request.parameters().at("triton_enable_empty_final_response").bool_param());
  EXPECT_EQ(request.inputs_size(), request.raw_input_contents_size());
  std::map<std::string, Tensor> out;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto& input = request.inputs(i);
    out[input.name()] = {input.datatype(), {input.shape().begin(), input.shape().end()}, request.raw_input_contents(i)};
  }
  return out;
}
template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::vector<std::string> names_of(const std::map<std::string, Tensor>& tensors) {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : tensors) out.push_back(name);
  return out;
}

// What a model says of itself: its inputs, each with this many dimensions.
EngineFacts facts_with(const std::vector<std::string>& names, int dimensions) {
  inference::ModelMetadataResponse model;
  for (const std::string& name : names) {
    auto& input = *model.add_inputs();
    input.set_name(name);
    for (int i = 0; i < dimensions; ++i) input.add_shape(-1);
  }
  EngineFacts facts;
  EXPECT_TRUE(engine().learn(1, model.SerializeAsString(), kTarget, facts));
  return facts;
}

TEST(TritonGrpc, IsChosenByTheUrl) {
  EXPECT_EQ(engine_of("triton")->protocol(), Protocol::kHttp);
  EXPECT_EQ(engine_of("triton", "http://h:1")->protocol(), Protocol::kHttp);
  EXPECT_EQ(engine().protocol(), Protocol::kGrpc);
  EXPECT_EQ(engine().kind(), "triton");
  for (const std::string_view other : {"llamacpp", "openai", "tgi", "vllm"}) {
    EXPECT_EQ(engine_of(other, "grpc://h:1"), nullptr) << other;
    EXPECT_EQ(engine_of(other, "grpcs://h:1"), nullptr) << other;
  }
}

// OC-ADAPT-5060#grpc: a job is one request of a stream, with the inputs that TensorRT-LLM's models name
TEST(TritonGrpc, AsksForAStreamWithTensors) {
  const auto submission = engine().submit(job(), kTarget, {});
  ASSERT_TRUE(submission);
  EXPECT_EQ(submission->url, "http://127.0.0.1:8001/inference.GRPCInferenceService/ModelStreamInfer");
  EXPECT_EQ(engine().submit(job(), {"grpcs://h:1", "ensemble"}, {})->url.substr(0, 11), "https://h:1");
  const auto tensors = tensors_of(*submission);
  const std::map<std::string, Tensor> wanted{{"text_input", {"BYTES", {1, 1}, "\4\0\0\0Once"s}},
                                             {"max_tokens", {"INT32", {1, 1}, raw(std::int32_t{7})}},
                                             {"stream", {"BOOL", {1, 1}, "\1"}},
                                             {"exclude_input_in_output", {"BOOL", {1, 1}, "\1"}},
                                             {"temperature", {"FP32", {1, 1}, raw(0.5F)}},
                                             {"top_p", {"FP32", {1, 1}, raw(0.25F)}},
                                             {"random_seed", {"UINT64", {1, 1}, raw((std::uint64_t{1} << 62) + 5)}},
                                             {"stop_words", {"BYTES", {1, 2}, "\3\0\0\0END\2\0\0\0\xc3\xa4"s}}};
  EXPECT_EQ(tensors, wanted);
  wire::ExecuteRequest chat = job();
  chat.prompt.reset();
  chat.messages = wire::JsonArray{R"([{"role":"user","content":"Hi"}])"};
  EXPECT_EQ(engine().submit(chat, kTarget, {}).error().code, ErrorCode::kInvalidParams);
}

TEST(TritonGrpc, IsGreedyAtTemperatureZeroAndSendsEverySampler) {
  wire::ExecuteRequest request = job();
  request.temperature = 0;
  request.sampling = {};
  request.sampling.repetition_penalty = 1.5;
  request.sampling.frequency_penalty = 0.5;
  request.sampling.presence_penalty = -0.5;
  const auto tensors = tensors_of(*engine().submit(request, kTarget, {}));
  EXPECT_EQ(tensors.at("top_k").bytes, raw(std::int32_t{1}));
  EXPECT_FALSE(tensors.contains("temperature"));
  EXPECT_EQ(tensors.at("repetition_penalty").bytes, raw(1.5F));
  EXPECT_EQ(tensors.at("frequency_penalty").bytes, raw(0.5F));
  EXPECT_EQ(tensors.at("presence_penalty").bytes, raw(-0.5F));
}

TEST(TritonGrpc, SendsWhatTheModelTakesInTheShapesThatItHas) {
  const EngineFacts facts = facts_with(
      {"text_input", "max_tokens", "temperature", "stop_words", "seed", "top_p", "return_num_output_tokens"}, 1);
  const auto tensors = tensors_of(*engine().submit(job(), kTarget, facts));
  EXPECT_THAT(names_of(tensors), testing::ElementsAre("max_tokens", "return_num_output_tokens", "seed", "stop_words",
                                                      "temperature", "text_input", "top_p"));
  EXPECT_EQ(tensors.at("text_input").shape, std::vector<std::int64_t>{1});
  EXPECT_EQ(tensors.at("stop_words").shape, std::vector<std::int64_t>{2});
}

TEST(TritonGrpc, RefusesWhatTheModelHasNoInputFor) {
  const auto refused =
      engine().submit(job(), kTarget, facts_with({"text_input", "max_tokens", "temperature", "top_p"}, 2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidParams);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("no input for stop"));
  EngineFacts facts;
  inference::ModelMetadataResponse other;
  other.add_inputs()->set_name("INPUT0");
  EXPECT_EQ(engine().learn(1, other.SerializeAsString(), kTarget, facts).error().code, ErrorCode::kModelNotFound);
}

// NVIDIA's own server refused the self-test of a model that has no top_k.
TEST(TritonGrpc, AModelWithoutSamplersTakesAnOrdinaryJob) {
  wire::ExecuteRequest ordinary{.job_id = "j", .prompt = "x", .max_tokens = 2};
  const EngineFacts plain = facts_with({"text_input", "max_tokens"}, 2);
  EXPECT_TRUE(engine().submit(ordinary, kTarget, plain));
  ordinary.temperature = 0;
  const auto greedy = engine().submit(ordinary, kTarget, plain);
  ASSERT_FALSE(greedy);
  EXPECT_THAT(greedy.error().message, testing::HasSubstr("no input for temperature"));
}

TEST(TritonGrpc, IsWellWhenItsModelIsReady) {
  const Probe probe = engine().health(kTarget);
  EXPECT_EQ(probe.url, "http://127.0.0.1:8001/inference.GRPCInferenceService/ModelReady");
  inference::ModelReadyRequest request;
  ASSERT_TRUE(request.ParseFromString(probe.body));
  EXPECT_EQ(request.name(), "ensemble");
  inference::ModelReadyResponse response;
  EXPECT_FALSE(engine().is_well(response.SerializeAsString()));
  response.set_ready(true);
  EXPECT_TRUE(engine().is_well(response.SerializeAsString()));
  EXPECT_FALSE(engine().is_well("\xff\xff"));
  inference::ServerMetadataResponse server;
  server.set_version("2.5");
  EngineFacts facts;
  ASSERT_TRUE(engine().learn(0, server.SerializeAsString(), kTarget, facts));
  EXPECT_EQ(facts.version, "2.5");
}

inference::ModelStreamInferResponse answer(const std::string& name, const std::string& bytes) {
  inference::ModelStreamInferResponse out;
  out.mutable_infer_response()->add_outputs()->set_name(name);
  out.mutable_infer_response()->add_raw_output_contents(bytes);
  return out;
}

TEST(TritonGrpc, ReadsTextCountsAndTheEnd) {
  auto message = answer("text_output", "\2\0\0\0\xc3\xa4"s);
  auto piece = engine().read(message.SerializeAsString());
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->text, "ä");
  EXPECT_FALSE(piece->last);

  for (const auto& [name, count] : {std::pair("num_input_tokens", 4), std::pair("num_output_tokens", 9)}) {
    message.mutable_infer_response()->add_outputs()->set_name(name);
    message.mutable_infer_response()->add_raw_output_contents(raw(std::int32_t{count}));
  }
  (*message.mutable_infer_response()->mutable_parameters())["triton_final_response"].set_bool_param(true);
  piece = engine().read(message.SerializeAsString());
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->tokens_in, 4);
  EXPECT_EQ(piece->tokens_out, 9);
  EXPECT_TRUE(piece->last);

  inference::ModelStreamInferResponse typed;
  auto& output = *typed.mutable_infer_response()->add_outputs();
  output.set_name("text_output");
  output.mutable_contents()->add_bytes_contents("x");
  EXPECT_EQ(engine().read(typed.SerializeAsString())->text, "x");
}

// By hand, as the published protocol numbers its fields: the classes of the other tests come of our own .proto.
TEST(TritonGrpc, SpeaksThePublishedProtocol) {
  const auto field = [](int number, const std::string& bytes) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
  };
  const std::string output = field(1, "text_output") + field(2, "BYTES") + "\x1a\2\1\1"s;  // with its shape
  const std::string last = field(1, "triton_final_response") + field(2, "\x08\1"s);
  const auto piece = engine().read(
      field(2, field(1, "ensemble") + field(2, "1") + field(4, last) + field(5, output) + field(6, "\1\0\0\0x"s)));
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->text, "x");
  EXPECT_TRUE(piece->last);
  EXPECT_TRUE(engine().read(field(1, "words"))->error);

  const std::string sent = engine().submit(job(), kTarget, {})->body;
  const std::string input = field(1, "text_input") + field(2, "BYTES") + "\x1a\2\1\1"s;
  EXPECT_THAT(sent, testing::StartsWith(field(1, "ensemble")));
  EXPECT_THAT(sent, testing::HasSubstr(field(4, field(1, "triton_enable_empty_final_response") + field(2, "\x08\1"s))));
  EXPECT_THAT(sent, testing::HasSubstr(field(5, input)));
  EXPECT_THAT(sent, testing::HasSubstr(field(7, "\4\0\0\0Once"s)));
  EXPECT_EQ(engine().health(kTarget).body, field(1, "ensemble"));
  EXPECT_TRUE(engine().is_well("\x08\1"));
  EngineFacts facts;
  ASSERT_TRUE(engine().learn(0, field(1, "triton") + field(2, "2.50"), kTarget, facts));
  EXPECT_EQ(facts.version, "2.50");
  const auto known = [&](const std::string& name) { return field(4, field(1, name) + "\x1a\1\1"s); };
  ASSERT_TRUE(engine().learn(1, field(1, "ensemble") + known("text_input") + known("max_tokens"), kTarget, facts));
  EXPECT_EQ(facts.inputs.at("text_input"), 1);
}

TEST(TritonGrpc, TellsNoWordsOfAnError) {
  inference::ModelStreamInferResponse message;
  message.set_error_message("the prompt 'a secret' is too long");
  const auto piece = engine().read(message.SerializeAsString());
  ASSERT_TRUE(piece);
  ASSERT_TRUE(piece->error);
  EXPECT_EQ(piece->error->code, ErrorCode::kWorkerReset);
  EXPECT_THAT(piece->error->message, testing::Not(testing::HasSubstr("secret")));
}

TEST(TritonGrpc, RefusesWhatIsNoAnswer) {
  for (const std::string& bytes : {""s, "\2\0\0"s, "\3\0\0\0ab"s, "\xff\xff\xff\xff"s, "\2\0\0\0\xff\xfe"s}) {
    const auto piece = engine().read(answer("text_output", bytes).SerializeAsString());
    ASSERT_FALSE(piece) << testing::PrintToString(bytes);
    EXPECT_EQ(piece.error().code, ErrorCode::kIoError);
  }
  EXPECT_FALSE(engine().read("no message"));
  EXPECT_FALSE(engine().read(answer("num_output_tokens", "\1").SerializeAsString())->tokens_out);
}

}  // namespace
}  // namespace llorch::adapter::engines
