#pragma once
// What stands around an answer, whatever the API. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/id.h"
#include "orchestratord/http/chat/output_reader.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::chat {

struct AnswerIdentity {
  base::JobId job_id;
  base::CorrelationId correlation_id;  // of the request
  std::int64_t created_unix_s = 0;
};

// Appends the comment of an event stream that says what a job waits for: as it was when the job came.
void append_wait(std::string& out, const wire::QueuedEvent& wait);

// Appends the comment that shows that a stream lives, and the wait where there is one. Nothing before the job starts is told but here:
// many programs read an event stream by its lines, and take the first one for data.
void append_keep_alive(std::string& out, const std::optional<wire::QueuedEvent>& wait);

// The id of a job's call, `prefix` and 24 hex digits: the same whenever the answer is rendered.
std::string call_id(std::string_view prefix, const base::JobId& job_id, const Part& call);

}  // namespace llorch::orchestratord::http::chat
