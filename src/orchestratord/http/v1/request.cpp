#include "orchestratord/http/v1/request.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <optional>

#include "base/join.h"
#include "base/parse_json.h"
#include "orchestratord/http/chat/parsing.h"
#include "wire/json.h"
#include "wire/json_checks.h"

namespace llorch::orchestratord::http::v1 {
namespace {

namespace json = boost::json;
using chat::refused;

constexpr std::array<std::string_view, 9> kRequired{"task_id", "session_id", "workload",   "model_ref",  "engine",
                                                    "ctx",     "priority",   "max_tokens", "deadline_ms"};
constexpr std::array<std::string_view, 4> kEngines{"llamacpp", "vllm", "tgi", "triton"};
constexpr std::array<std::string_view, 4> kHints{"sampler_profile_version", "expected_tokens", "kv_hint",
                                                 "output_mode"};

base::Result<> check_engine(const json::object& body) {
  const std::string_view engine = chat::text_at(body, "engine");
  if (std::ranges::find(kEngines, engine) != kEngines.end()) return {};
  return refused("engine", "enum", fmt::format("engine is one of {}", base::join(kEngines, ", ")));
}

base::Result<std::int64_t> context_of(const json::object& body) {
  const json::value& ctx = body.at("ctx");
  if (ctx.is_int64() && ctx.get_int64() >= 0) return ctx.get_int64();
  return refused("ctx", "type", "ctx is a number of tokens, 0 or more");
}

}  // namespace

base::Result<TaskRequest> decode_task(const std::string& text) {
  TRY(chat::check_utf8(text));
  json::error_code error;
  json::value value = base::parse_json(text, error);
  if (error || !value.is_object()) return refused("", "json", "the body is not a JSON object");
  TRY(wire::check_json(text, value));
  json::object body = std::move(value.get_object());
  for (const std::string_view field : kRequired) {
    const json::value* given = body.if_contains(field);
    if (given == nullptr || given->is_null()) return refused(field, "missing", fmt::format("{} is missing", field));
  }
  TRY(check_engine(body));
  TaskRequest out;
  out.context_tokens = TRY(context_of(body));
  const bool embeds = chat::text_at(body, "workload") == "embedding";
  for (const std::string_view field : {"engine", "ctx"}) body.erase(field);
  for (const std::string_view hint : kHints) body.erase(hint);
  if (const json::value* inputs = body.if_contains("inputs"); inputs != nullptr) {
    if (embeds) body["input"] = *inputs;
    body.erase("inputs");
  }
  if (embeds) body.erase("max_tokens");  // a vector has no tokens
  out.submission = TRY(wire::decode<wire::SubmitRequest>(json::serialize(body), wire::UnknownKeys::kRefuse));
  return out;
}

}  // namespace llorch::orchestratord::http::v1
