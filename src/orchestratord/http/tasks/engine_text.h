#pragma once
// Requests for models that take text: those of other systems' engines. What they cannot do is refused here, with a reason.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "orchestratord/http/tasks/prompt.h"
#include "wire/pool.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::tasks {

// Checks `request` against the facts, and places it on the model's device. `api_defaults`: of Submission. Errors: INVALID_PARAMS, with
// the field.
base::Result<> fit_to_engine(wire::SubmitRequest& request, const std::vector<std::string>& images,
                             const wire::ModelFacts& facts, std::span<const std::string_view> api_defaults);
// Where the client names none: what the context surely leaves, as the prompt has at most as many tokens as bytes. Where it names no fewer
// than the context has, and its API cuts that: what the context leaves a prompt of a token for two bytes, as hardly any has more. At least
// 256, or 2,048 where nobody knows the context. `limit`: of this server.
std::int64_t engine_max_tokens(const wire::SubmitRequest& request, const wire::ModelFacts& facts, std::int64_t limit,
                               LongOutputs long_outputs);

}  // namespace llorch::orchestratord::http::tasks
