#include "orchestratord/http/openai/deferred/batch_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "base/append.h"
#include "base/json_text.h"
#include "base/parse_json.h"
#include "base/utf8.h"
#include "orchestratord/http/deferred/batch_facts.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "wire/json_checks.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using deferred::kBatchRequestsMax;
using tasks::object_of;
using tasks::text_of;

constexpr std::size_t kCustomIdBytesMax = 512;

}  // namespace

tl::expected<BatchLine, BatchLineError> parse_batch_line(std::string_view line, std::string_view endpoint) {
  const auto wrong = [](std::string code, std::string message, std::string param) {
    return tl::unexpected(BatchLineError{0, std::move(code), std::move(message), std::move(param)});
  };
  boost::system::error_code failed;
  const json::value value = base::parse_json(line, failed);
  if (failed || !value.is_object() || !base::is_valid_utf8(line) || !wire::check_json(line, value)) {
    return wrong("invalid_json_line", "This line is not a JSON object in UTF-8.", "");
  }
  const json::object& object = value.get_object();
  BatchLine out{.custom_id = text_of(object, "custom_id"), .body = {}};
  if (out.custom_id.empty() || out.custom_id.size() > kCustomIdBytesMax) {
    return wrong("missing_required_parameter", "custom_id must be a text of 1 to 512 bytes.", "custom_id");
  }
  if (text_of(object, "method") != "POST") return wrong("invalid_method", "method must be POST.", "method");
  if (text_of(object, "url") != endpoint) {
    return wrong("mismatched_url", fmt::format("url must be the batch's endpoint, {}.", endpoint), "url");
  }
  const json::value* body = object.if_contains("body");
  if (body == nullptr || !body->is_object()) {
    return wrong("missing_required_parameter", "body must be an object: the request.", "body");
  }
  out.body = json::serialize(*body);
  return out;
}

void BatchCheck::add(BatchLineError error) {
  if (errors_.size() < kBatchErrorsMax) errors_.push_back(std::move(error));
}

void BatchCheck::take(std::string_view line) {
  if (++lines_ == kBatchRequestsMax + 1) {
    add({lines_, "too_many_requests", fmt::format("A batch has up to {} lines.", kBatchRequestsMax), ""});
  }
  if (lines_ > kBatchRequestsMax) return;
  auto parsed = parse_batch_line(line, endpoint_);
  if (!parsed) {
    parsed.error().line = lines_;
    return add(std::move(parsed).error());
  }
  if (!ids_.insert(parsed->custom_id).second) {
    add({lines_, "duplicate_custom_id", "An earlier line has this custom_id.", "custom_id"});
  }
}

void BatchCheck::finish() {
  if (lines_ == 0) add({0, "empty_file", "The input file has no lines.", ""});
}

std::string batch_result_line(std::string_view id, std::string_view custom_id, const net::http::Response& answer,
                              std::string_view request_id) {
  std::string out = fmt::format(R"({{"id":"{}","custom_id":)", id);
  base::append_json_string(out, custom_id);
  base::append(out, R"(,"response":{{"status_code":{},"request_id":"{}","body":{}}},"error":null}}{})", answer.status,
               request_id, answer.body, '\n');
  return out;
}

std::optional<deferred::BatchResult> batch_result_of(std::string_view line) {
  const json::object object = object_of(line, deferred::kResultNestingMax);
  std::string id = text_of(object, "custom_id");
  const json::value* response = object.if_contains("response");
  if (id.empty() || response == nullptr || !response->is_object()) return std::nullopt;
  const bool good = tasks::number_of(response->get_object(), "status_code") == 200;
  return deferred::BatchResult{std::move(id),
                               good ? deferred::BatchOutcome::kCompleted : deferred::BatchOutcome::kFailed};
}

}  // namespace llorch::orchestratord::http::openai
