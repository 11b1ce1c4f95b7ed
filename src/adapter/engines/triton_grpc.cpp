// Triton Inference Server over gRPC: ModelStreamInfer of the KServe v2 protocol, with the inputs that TensorRT-LLM's models name.
#include <fmt/core.h>
#include <google/protobuf/stubs/logging.h>

#include <bit>
#include <cstring>

#include "adapter/engines/kinds.h"
#include "adapter/engines/kserve.pb.h"
#include "adapter/engines/triton.h"
#include "base/utf8.h"

namespace llorch::adapter::engines {
namespace {

using base::ErrorCode;

static_assert(std::endian::native == std::endian::little, "tensors are little-endian");

std::string url_of(const Target& target, std::string_view method) {
  // grpc(s)://... is http(s)://... to a client of HTTP/2.
  return fmt::format("http{}/inference.GRPCInferenceService/{}", target.base_url.substr(4), method);
}

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string raw_text(std::string_view text) { return raw(static_cast<std::uint32_t>(text.size())).append(text); }

// Adds tensors to a request: of those that the model takes, if it is known which.
class Inputs {
 public:
  Inputs(inference::ModelInferRequest& request, const EngineFacts& facts) : request_(request), known_(facts.inputs) {}

  // False: the model does not take it.
  bool offer(const std::string& name, std::string_view datatype, std::string bytes, std::int64_t elements = 1) {
    if (!takes(name)) return false;
    auto& input = *request_.add_inputs();
    input.set_name(name);
    input.set_datatype(std::string(datatype));
    const auto known = known_.find(name);
    if (known == known_.end() || known->second > 1) input.add_shape(1);  // of the batch
    input.add_shape(elements);
    request_.add_raw_input_contents(std::move(bytes));
    return true;
  }
  // What the job asks for, under `field` there: a model that lacks it cannot do the job.
  void need(std::string_view field, const std::string& name, std::string_view datatype, std::string bytes,
            std::int64_t elements = 1) {
    if (!offer(name, datatype, std::move(bytes), elements) && lacks_.empty()) lacks_ = field;
  }
  const std::string& lacks() const { return lacks_; }

 private:
  // What reports a count is no input of every ensemble, and one that a model does not know fails the whole request.
  bool takes(const std::string& name) const {
    return known_.empty() ? !name.starts_with("return_") : known_.contains(name);
  }

  inference::ModelInferRequest& request_;
  const std::map<std::string, int>& known_;
  std::string lacks_;
};

void add_inputs(const wire::ExecuteRequest& request, Inputs& inputs) {
  const wire::SamplingRequest& s = request.sampling;
  inputs.need("prompt", "text_input", "BYTES", raw_text(*request.prompt));
  inputs.need("max_tokens", "max_tokens", "INT32", raw(static_cast<std::int32_t>(request.max_tokens)));
  inputs.offer("stream", "BOOL", raw(true));
  inputs.offer("exclude_input_in_output", "BOOL", raw(true));
  inputs.offer("return_num_input_tokens", "BOOL", raw(true));
  inputs.offer("return_num_output_tokens", "BOOL", raw(true));
  const auto need_float = [&](const std::string& name, double value) {
    inputs.need(name, name, "FP32", raw(static_cast<float>(value)));
  };
  // A top_k of 1 is greedy there, and a temperature of 0 none that it takes.
  if (request.temperature == 0) {
    inputs.need("temperature", "top_k", "INT32", raw(std::int32_t{1}));
  } else if (request.temperature == 1) {
    inputs.offer("temperature", "FP32", raw(1.0F));  // changes nothing
  } else {
    need_float("temperature", request.temperature);
  }
  if (s.top_k > 0 && request.temperature != 0)
    inputs.need("top_k", "top_k", "INT32", raw(static_cast<std::int32_t>(s.top_k)));
  if (s.top_p < 1) need_float("top_p", s.top_p);
  if (s.repetition_penalty != 1) need_float("repetition_penalty", s.repetition_penalty);
  if (s.frequency_penalty != 0) need_float("frequency_penalty", s.frequency_penalty);
  if (s.presence_penalty != 0) need_float("presence_penalty", s.presence_penalty);
  // Newer models name it `seed`.
  if (request.seed && !inputs.offer("random_seed", "UINT64", raw(std::uint64_t{*request.seed})))
    inputs.offer("seed", "UINT64", raw(std::uint64_t{*request.seed}));
  if (request.stop.empty()) return;
  std::string words;
  for (const std::string& stop : request.stop) words += raw_text(stop);
  inputs.need("stop", "stop_words", "BYTES", std::move(words), static_cast<std::int64_t>(request.stop.size()));
}

// The first element of an output. Absent: it has none, or its bytes are not what they say.
std::optional<std::string> text_in(const std::string* raw_bytes, const inference::InferTensorContents& contents) {
  if (raw_bytes == nullptr) {
    if (contents.bytes_contents_size() == 0) return std::nullopt;
    return contents.bytes_contents(0);
  }
  std::uint32_t length = 0;
  if (raw_bytes->size() < sizeof length) return std::nullopt;
  std::memcpy(&length, raw_bytes->data(), sizeof length);
  if (length > raw_bytes->size() - sizeof length) return std::nullopt;
  return raw_bytes->substr(sizeof length, length);
}
std::optional<std::int64_t> count_in(const std::string* raw_bytes, const inference::InferTensorContents& contents) {
  std::int32_t count = 0;
  if (raw_bytes == nullptr) {
    if (contents.int_contents_size() == 0) return std::nullopt;
    return contents.int_contents(0);
  }
  if (raw_bytes->size() < sizeof count) return std::nullopt;
  std::memcpy(&count, raw_bytes->data(), sizeof count);
  return count;
}

class TritonGrpc final : public Engine {
 public:
  // What an engine sends would else have libprotobuf write lines into the log.
  TritonGrpc() { google::protobuf::SetLogHandler(nullptr); }
  std::string_view kind() const override { return "triton"; }
  Protocol protocol() const override { return Protocol::kGrpc; }

  Probe health(const Target& target) const override {
    inference::ModelReadyRequest request;
    request.set_name(target.model);
    return {url_of(target, "ModelReady"), request.SerializeAsString()};
  }
  bool is_well(std::string_view answer) const override {
    inference::ModelReadyResponse response;
    return parse(answer, response) && response.ready();
  }
  std::vector<Probe> facts(const Target& target) const override {
    inference::ModelMetadataRequest model;
    model.set_name(target.model);
    return {Probe{url_of(target, "ServerMetadata"), {}},
            Probe{url_of(target, "ModelMetadata"), model.SerializeAsString()}};
  }

  base::Result<> read_facts(std::size_t index, std::string_view answer, const Target& target,
                            EngineFacts& facts) const override {
    facts.model = target.model;
    if (index == 0) {
      inference::ServerMetadataResponse server;
      if (parse(answer, server)) facts.version = server.version();
      return {};
    }
    inference::ModelMetadataResponse model;
    if (!parse(answer, model)) return {};
    for (const auto& input : model.inputs()) facts.inputs[input.name()] = input.shape_size();
    if (facts.inputs.contains("text_input") && facts.inputs.contains("max_tokens")) return {};
    return base::fail(
        ErrorCode::kModelNotFound,
        "the engine's model of that name takes no text_input and max_tokens, as TensorRT-LLM's models do");
  }

  base::Result<Submission> submit(const wire::ExecuteRequest& request, const Target& target,
                                  const EngineFacts& facts) const override {
    if (request.messages) return base::fail(triton_tells_no_messages());
    inference::ModelInferRequest message;
    message.set_model_name(target.model);
    (*message.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
    Inputs inputs(message, facts);
    add_inputs(request, inputs);
    if (!inputs.lacks().empty()) {
      return base::fail(base::Error{
          ErrorCode::kInvalidParams,
          fmt::format("the engine's model has no input for {}", inputs.lacks()),
          {}}.with("field", inputs.lacks()));
    }
    // The header makes an error that comes within the stream a status of the call; an older server does not know it.
    return Submission{url_of(target, "ModelStreamInfer"), message.SerializeAsString(), {"triton_grpc_error: true"}};
  }

  base::Result<Piece> read(std::string_view data) const override {
    inference::ModelStreamInferResponse message;
    if (!parse(data, message)) {
      return base::fail(ErrorCode::kIoError, "the engine's answer holds a message that its API does not have");
    }
    Piece out;
    if (!message.error_message().empty()) {  // words, which may repeat the prompt
      out.error = refusal(0, {}, {});
      return out;
    }
    const inference::ModelInferResponse& response = message.infer_response();
    for (int i = 0; i < response.outputs_size(); ++i) {
      const auto& output = response.outputs(i);
      const std::string* bytes = i < response.raw_output_contents_size() ? &response.raw_output_contents(i) : nullptr;
      if (output.name() == "text_output") {
        out.text = text_in(bytes, output.contents());
        if (!out.text || !base::is_valid_utf8(*out.text)) {
          return base::fail(ErrorCode::kIoError, "the engine's answer holds a text that is none");
        }
      } else if (output.name() == "num_input_tokens") {
        out.tokens_in = count_in(bytes, output.contents());
      } else if (output.name() == "num_output_tokens") {
        out.tokens_out = count_in(bytes, output.contents());
      }
    }
    const auto final = response.parameters().find("triton_final_response");
    out.last = final != response.parameters().end() && final->second.bool_param();
    return out;
  }

 private:
  template <typename Message>
  static bool parse(std::string_view bytes, Message& message) {
    return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  }
};

}  // namespace

const Engine& triton_grpc() {
  static const TritonGrpc engine;
  return engine;
}

}  // namespace llorch::adapter::engines
