#pragma once
// The texts of a message batch: its requests, what became of each, and how it is shown. Pure.
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http/message.h"
#include "orchestratord/http/anthropic/request.h"
#include "orchestratord/http/deferred/batch_lines.h"

namespace llorch::orchestratord::http::anthropic {

struct BatchInput {
  std::string lines;  // a request each, {"custom_id","params"}
  std::int64_t requests_count = 0;
};
// Of the body of POST /v1/messages/batches. Errors: INVALID_PARAMS with details {field, reason}.
base::Result<BatchInput> decode_batch(std::string_view body);

// One of those lines. Nothing: it is none.
std::optional<deferred::BatchLine> request_of_line(std::string_view line);
// The request of a line, of priority batch; without a seed it gets that of `name`. `tokens_max`, errors: as of decode_messages().
base::Result<Request> decode_batched(std::string_view params, std::string_view name, std::int64_t tokens_max);

// A line of the results, with its end. `answer`: of status 200 or an error of this API.
std::string result_line(std::string_view custom_id, const net::http::Response& answer);
std::string unanswered_line(std::string_view custom_id, bool cancelled);
// What such a line says. Nothing: it is none.
std::optional<deferred::BatchResult> result_of_line(std::string_view line);

// The batch as its client sees it; `facts` as of batch_facts.h.
std::string batch_object(std::string_view id, const boost::json::object& facts);

}  // namespace llorch::orchestratord::http::anthropic
