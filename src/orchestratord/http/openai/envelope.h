#pragma once
// What stands around the output in every answer of the OpenAI API. Pure.
#include <string>
#include <string_view>

#include "base/id.h"
#include "net/http/message.h"
#include "orchestratord/http/chat/answer.h"
#include "orchestratord/http/openai/request.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::openai {

using chat::AnswerIdentity;

// The answer's first members, without a closing brace: {"id","object","created","model","service_tier"?
std::string opening(const AnswerOptions& options, const AnswerIdentity& identity);

// `headers` of an answer with its X-Request-Id.
net::http::Headers with_request_id(net::http::Headers headers, const base::CorrelationId& correlation_id);

std::string_view finish_reason(wire::StopReason reason);

// The end as usage and finish_reason have it: an output that is not told is none.
wire::EndEvent told_end(const AnswerOptions& options, const wire::EndEvent& end);

// Appends the object {"prompt_tokens","completion_tokens","total_tokens"}.
void append_usage(std::string& out, const wire::EndEvent& end);

// Appends ,"system_fingerprint":"fp_..." (null without a receipt). Two answers with one fingerprint come from the same weights,
// engine, numerics and kind of device.
void append_fingerprint(std::string& out, const wire::EndEvent& end);
// The same, and ,"llorch":{...}, the event `end` of /v2.
void append_provenance(std::string& out, const wire::EndEvent& end);

}  // namespace llorch::orchestratord::http::openai
