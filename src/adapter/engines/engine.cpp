#include "adapter/engines/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "adapter/engines/kinds.h"
#include "base/json_view.h"

namespace llorch::adapter::engines {
namespace {

namespace bj = boost::json;
using namespace base::json;
using base::Error;
using base::ErrorCode;

constexpr std::array<std::string_view, 5> kKinds{"llamacpp", "openai", "tgi", "triton", "vllm"};

// Letters that a code has and a sentence has not.
std::optional<std::string> code_like(const bj::value* value) {
  auto text = text_of(value);
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  };
  if (!text || text->empty() || text->size() > 64 || !std::ranges::all_of(*text, plain)) return std::nullopt;
  return text;
}

struct Said {
  std::optional<std::string> code, type;
  bool too_long = false;
};
Said said_in(std::string_view body) {
  const bj::value value = parsed(body);
  const bj::value* error = member(&value, "error");
  const bj::value* object = error != nullptr && error->is_object() ? error : &value;
  Said out{.code = code_like(member(object, "code")), .type = code_like(member(object, "type"))};
  if (!out.type) out.type = code_like(member(&value, "error_type"));
  if (!out.type) out.type = code_like(error);
  const auto message = text_of(member(object, "message")).value_or("");
  out.too_long = out.code == "context_length_exceeded" || out.type == "exceed_context_size_error" ||
                 message.find("maximum context length") != std::string::npos ||
                 message.find("exceed context window") != std::string::npos ||
                 (out.type == "validation" && body.find("inputs` tokens + `max_new_tokens`") != std::string_view::npos);
  return out;
}

Error mapped(int status, const Said& said) {
  if (said.too_long) {
    return Error{
        ErrorCode::kInvalidParams, "prompt and max_tokens exceed the context of the engine; shorten either", {}}
        .with("reason", std::string("CONTEXT_TOO_LARGE"));
  }
  if (status == 0) {
    const bool busy = said.type == "overloaded";
    return {busy ? ErrorCode::kWorkerBusy : ErrorCode::kWorkerReset, "the engine ended its answer with an error", {}};
  }
  if (status == 429) return {ErrorCode::kWorkerBusy, "the engine takes no more requests now", {}};
  if (status == 408) return {ErrorCode::kWorkerTimeout, "the engine gave up waiting", {}};
  if (status == 504) return {ErrorCode::kWorkerTimeout, "the engine did not answer in time", {}};
  if (status >= 500) return {ErrorCode::kWorkerUnavailable, "the engine cannot serve now", {}};
  if (status == 401 || status == 403) {
    return Error{ErrorCode::kInternal, "the engine refuses the key it is called with; check api_key_file", {}}.with(
        "reason", std::string("upstream_auth"));
  }
  if (status == 404) return {ErrorCode::kModelNotFound, "the engine has no such model or no such API", {}};
  if (status == 413) return {ErrorCode::kPayloadTooLarge, "the request is larger than the engine reads", {}};
  if (status >= 400) return {ErrorCode::kInvalidParams, "the engine refuses a value of the request", {}};
  return {ErrorCode::kInternal, "the engine answered with a status that its API does not have", {}};
}

}  // namespace

std::span<const std::string_view> kinds() { return kKinds; }

const Engine* engine_of(std::string_view kind, std::string_view base_url) {
  const bool grpc = base_url.starts_with("grpc://") || base_url.starts_with("grpcs://");
  if (grpc) return kind == "triton" ? &triton_grpc() : nullptr;
  if (kind == "openai") return &openai();
  if (kind == "vllm") return &vllm();
  if (kind == "llamacpp") return &llamacpp();
  if (kind == "tgi") return &tgi();
  if (kind == "triton") return &triton();
  return nullptr;
}

base::Result<> Engine::learn(std::size_t index, std::string_view answer, const Target& target,
                             EngineFacts& facts) const {
  const auto learned = read_facts(index, answer, target, facts);
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  facts.context_tokens = std::clamp<std::int64_t>(facts.context_tokens, 0, kMax);
  facts.slots = std::clamp<std::int64_t>(facts.slots, 0, kMax);
  std::erase_if(facts.version, [](char c) { return c < ' ' || c > '~'; });
  facts.version.resize(std::min(facts.version.size(), kVersionBytesMax));
  return learned;
}

Error refusal(int status, std::string_view body, std::optional<std::int64_t> retry_after_ms) {
  Said said = said_in(body);
  Error error = mapped(status, said);
  if (status == 401 || status == 403) said = {};  // what it says of the key may repeat it
  if (status != 0) error = std::move(error).with("upstream_status", std::int64_t{status});
  if (said.code) error = std::move(error).with("upstream_code", *said.code);
  if (said.type) error = std::move(error).with("upstream_type", *said.type);
  if (retry_after_ms) error = std::move(error).with("retry_after_ms", *retry_after_ms);
  return error;
}

}  // namespace llorch::adapter::engines
