#pragma once
// Bodies of llama.cpp's API. Pure. Errors of all: INVALID_PARAMS with details {field, reason}.
#include <string_view>

#include "base/result.h"
#include "wire/llamacpp.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::llamacpp {

base::Result<wire::TokenizeRequest> decode_tokenize(std::string_view body);
base::Result<wire::DetokenizeRequest> decode_detokenize(std::string_view body);
// `model` is set if the request names one.
base::Result<wire::SubmitRequest> decode_apply_template(std::string_view body);

}  // namespace llorch::orchestratord::http::llamacpp
