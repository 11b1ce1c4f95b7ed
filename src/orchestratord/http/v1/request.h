#pragma once
// A submission as POST /v1/tasks takes it. Pure.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::v1 {

struct TaskRequest {
  wire::SubmitRequest submission;
  std::int64_t context_tokens = 0;  // `ctx`: positions that the client counts on
};

// Required: task_id, session_id, workload, model_ref, engine, ctx, priority, max_tokens, deadline_ms, and the prompt or the
// inputs. `engine` names an engine of the specification and chooses nothing: there is one here. sampler_profile_version,
// expected_tokens, kv_hint and output_mode are hints that change nothing. Everything else is as in /v2/tasks.
// Errors: INVALID_PARAMS with details {field, reason}.
base::Result<TaskRequest> decode_task(const std::string& body);

}  // namespace llorch::orchestratord::http::v1
