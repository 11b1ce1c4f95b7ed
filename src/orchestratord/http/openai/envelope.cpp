#include "orchestratord/http/openai/envelope.h"

#include <fmt/format.h>

#include "base/append.h"
#include "base/json_text.h"
#include "base/sha256.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

constexpr std::size_t kFingerprintHexDigits = 12;

std::string fingerprint(const wire::Receipt& receipt) {
  const std::string parts = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", receipt.model_digest, receipt.engine_build,
                                        receipt.numerics, receipt.device_class, receipt.sampler, receipt.kv_dtype);
  return "fp_" + base::to_hex(base::sha256(parts)).substr(0, kFingerprintHexDigits);
}

}  // namespace

std::string opening(const AnswerOptions& options, const AnswerIdentity& identity) {
  const bool chat = options.endpoint == Endpoint::kChat;
  const std::string_view object = !chat            ? "text_completion"
                                  : options.stream ? "chat.completion.chunk"
                                                   : "chat.completion";
  std::string out = fmt::format(R"({{"id":"{}-{}","object":"{}","created":{},"model":)", chat ? "chatcmpl" : "cmpl",
                                options.first_job_id.value_or(identity.job_id).value, object, identity.created_unix_s);
  base::append_json_string(out, options.model);
  if (chat) out += options.is_flex ? R"(,"service_tier":"flex")" : R"(,"service_tier":"default")";
  return out;
}

net::http::Headers with_request_id(net::http::Headers headers, const base::CorrelationId& correlation_id) {
  headers.set("X-Request-Id", correlation_id.value);
  return headers;
}

std::string_view finish_reason(wire::StopReason reason) {
  const bool cut = reason == wire::StopReason::kMaxTokens || reason == wire::StopReason::kContext;
  return cut ? "length" : "stop";
}

wire::EndEvent told_end(const AnswerOptions& options, const wire::EndEvent& end) {
  wire::EndEvent out = end;
  if (!options.hides_output) return out;
  out.tokens_out = 0;
  out.stop_reason = wire::StopReason::kMaxTokens;
  return out;
}

void append_usage(std::string& out, const wire::EndEvent& end) {
  base::append(out, R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}})", end.tokens_in, end.tokens_out,
               end.tokens_in + end.tokens_out);
}

void append_fingerprint(std::string& out, const wire::EndEvent& end) {
  out += R"(,"system_fingerprint":)";
  out += end.receipt ? '"' + fingerprint(*end.receipt) + '"' : "null";
}

void append_provenance(std::string& out, const wire::EndEvent& end) {
  append_fingerprint(out, end);
  out += R"(,"llorch":)";
  out += wire::encode(end);
}

}  // namespace llorch::orchestratord::http::openai
