#include "orchestratord/http/openai/deferred/kept_text.h"

#include <boost/json.hpp>
#include <iterator>

#include "base/parse_json.h"
#include "orchestratord/http/openai/deferred/event_text.h"
#include "orchestratord/http/tasks/kept_facts.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using base::ErrorCode;
using tasks::object_of;
using tasks::text_of;

constexpr std::string_view kInput = ": input ";
constexpr std::string_view kInputEnd = "\n\n";

json::array items_of(const json::object& body) {
  const json::value* input = body.if_contains("input");
  if (input == nullptr) return {};
  if (input->is_array()) return input->get_array();
  return {json::object{{"type", "message"}, {"role", "user"}, {"content", *input}}};
}

void append(json::array&& items, json::array& to) {
  to.insert(to.end(), std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
}

}  // namespace

std::string input_of(std::string_view request_body) { return json::serialize(items_of(object_of(request_body))); }

std::string kept_text(std::string_view input, std::string_view events) {
  std::string out(kInput);
  out.append(input).append(kInputEnd).append(events);
  return out;
}

std::string_view input_kept(std::string_view kept) {
  const std::size_t end = kept.find(kInputEnd);
  if (!kept.starts_with(kInput) || end == std::string_view::npos) return "";
  return kept.substr(kInput.size(), end - kInput.size());
}

base::Result<json::array> output_kept(std::string_view kept) {
  json::object response = object_of(TRY(last_response(kept)));
  json::value* output = response.if_contains("output");
  return output != nullptr && output->is_array() ? std::move(output->get_array()) : json::array();
}

base::Result<bool> has_output(std::string_view kept) {
  const std::string status = text_of(object_of(TRY(last_response(kept))), "status");
  return status == "completed" || status == "incomplete";
}

std::string with_items_before(json::array items, std::string_view request_body) {
  json::object body = object_of(request_body);
  append(items_of(body), items);
  body["input"] = std::move(items);
  return json::serialize(body);
}

base::Result<std::string> continued(std::string_view request_body, std::string_view kept) {
  const std::string_view input = input_kept(kept);
  if (input.empty()) {
    return base::fail(ErrorCode::kNotFound, "the input of this response is not kept");
  }
  if (!TRY(has_output(kept))) {
    return base::fail(ErrorCode::kConflict,
                      "this response has no output: it failed or was cancelled; go on with the one before it");
  }
  json::array items = base::parse_known_json(input).as_array();
  append(TRY(output_kept(kept)), items);
  return with_items_before(std::move(items), request_body);
}

base::Error of_previous_response(base::Error error) {
  error = std::move(error).with("field", std::string("previous_response_id"));
  if (error.code != ErrorCode::kNotFound) return error;
  error.code = ErrorCode::kInvalidParams;
  error.message += "; send the whole conversation as input";
  return std::move(error).with("reason", std::string("not_kept"));
}

}  // namespace llorch::orchestratord::http::openai
