#include "orchestratord/http/anthropic/deferred/batch_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <set>
#include <utility>

#include "base/append.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/deferred/batch_facts.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "wire/anthropic.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::anthropic {
namespace {

namespace json = boost::json;
using chat::refused;
using deferred::BatchOutcome;
using tasks::object_of;
using tasks::text_of;

bool is_name(std::string_view id) {
  return std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string opening(std::string_view custom_id, std::string_view type) {
  std::string out = R"({"custom_id":)";
  base::append_json_string(out, custom_id);
  return out + fmt::format(R"(,"result":{{"type":"{}")", type);
}

std::string time_text(std::optional<std::int64_t> unix_s) {
  return unix_s ? fmt::format(R"("{}")", base::rfc3339(*unix_s * 1000)) : "null";
}

std::string_view processing_status(std::string_view status) {
  return deferred::is_final(status) ? "ended" : status == "cancelling" ? "canceling" : "in_progress";
}

// Each request is counted once; until the batch has ended all of them are being processed.
std::string counts_text(const json::object& facts) {
  const std::string status = deferred::status_of(facts);
  const std::int64_t total = deferred::count_of(facts, "total");
  if (!deferred::is_final(status)) {
    return fmt::format(R"({{"processing":{},"succeeded":0,"errored":0,"canceled":0,"expired":0}})", total);
  }
  const std::int64_t succeeded = deferred::count_of(facts, "completed"), errored = deferred::count_of(facts, "failed");
  const std::int64_t others = total - succeeded - errored;
  const auto of = [&](std::string_view end) { return status == end ? others : 0; };
  return fmt::format(R"({{"processing":0,"succeeded":{},"errored":{},"canceled":{},"expired":{}}})", succeeded,
                     errored + of("failed"), of("cancelled"), of("expired"));
}

}  // namespace

base::Result<BatchInput> decode_batch(std::string_view body) {
  TRY(chat::check_utf8(body));
  const auto wanted = TRY(wire::decode<wire::CreateMessageBatchRequest>(body, wire::UnknownKeys::kRefuse));
  BatchInput out;
  std::set<std::string_view> ids;
  for (const wire::BatchedMessage& request : wanted.requests) {
    const std::string field = fmt::format("requests[{}].custom_id", out.requests_count++);
    if (!is_name(request.custom_id)) {
      return refused(field, "pattern", fmt::format("{} is of letters, digits, _ and -", field));
    }
    if (!ids.insert(request.custom_id).second) {
      return refused(field, "duplicate", fmt::format("{} is also that of an earlier request", field));
    }
    base::append(out.lines, R"({{"custom_id":"{}","params":{}}}{})", request.custom_id, request.params.text, '\n');
  }
  return out;
}

std::optional<deferred::BatchLine> request_of_line(std::string_view line) {
  const json::object object = object_of(line);
  const json::value* params = object.if_contains("params");
  std::string custom_id = text_of(object, "custom_id");
  if (custom_id.empty() || params == nullptr) return std::nullopt;
  return deferred::BatchLine{std::move(custom_id), json::serialize(*params)};
}

base::Result<Request> decode_batched(std::string_view params, std::string_view name, std::int64_t tokens_max) {
  Request out = TRY(decode_messages(params, tokens_max));
  if (out.answer.stream) {
    return refused("stream", "unsupported",
                   "a request of a batch has one answer, among the results; it does not stream");
  }
  out.submission.priority = wire::Priority::kBatch;
  if (!out.submission.seed) out.submission.seed = deferred::seed_of_name(name);
  return out;
}

std::string result_line(std::string_view custom_id, const net::http::Response& answer) {
  const bool good = answer.status == 200;
  return opening(custom_id, good ? "succeeded" : "errored")
      .append(good ? R"(,"message":)" : R"(,"error":)")
      .append(answer.body)
      .append("}}\n");
}

std::string unanswered_line(std::string_view custom_id, bool cancelled) {
  return opening(custom_id, cancelled ? "canceled" : "expired").append("}}\n");
}

std::optional<deferred::BatchResult> result_of_line(std::string_view line) {
  const json::object object = object_of(line, deferred::kResultNestingMax);
  const json::value* result = object.if_contains("result");
  std::string custom_id = text_of(object, "custom_id");
  if (custom_id.empty() || result == nullptr || !result->is_object()) return std::nullopt;
  const std::string type = text_of(result->get_object(), "type");
  const BatchOutcome outcome = type == "succeeded" ? BatchOutcome::kCompleted
                               : type == "errored" ? BatchOutcome::kFailed
                                                   : BatchOutcome::kUnanswered;
  return deferred::BatchResult{std::move(custom_id), outcome};
}

std::string batch_object(std::string_view id, const json::object& facts) {
  const std::string status = deferred::status_of(facts);
  const bool ended = deferred::is_final(status);
  return fmt::format(
      R"({{"id":"{}","type":"message_batch","processing_status":"{}","request_counts":{},"created_at":{},"expires_at":{},)"
      R"("ended_at":{},"cancel_initiated_at":{},"archived_at":null,"results_url":{}}})",
      id, processing_status(status), counts_text(facts), time_text(tasks::number_of(facts, "created_at")),
      time_text(tasks::number_of(facts, "expires_at")),
      time_text(ended ? deferred::began_s(facts, status) : std::nullopt),
      time_text(deferred::began_s(facts, "cancelling")),
      ended ? fmt::format(R"("/v1/messages/batches/{}/results")", id) : "null");
}

}  // namespace llorch::orchestratord::http::anthropic
