#pragma once
// Fields of llama.cpp's server in requests of this API, as sampling of ours. Pure.
#include "base/result.h"
#include "wire/openai.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::openai {

// `submission` has the fields of the request itself. Errors: INVALID_PARAMS with details {field, reason}, where a field is given by two
// names with two values; one of them may be neutral.
base::Result<> set_llamacpp_fields(const wire::LlamaCppFields& given, wire::SubmitRequest& submission);

}  // namespace llorch::orchestratord::http::openai
