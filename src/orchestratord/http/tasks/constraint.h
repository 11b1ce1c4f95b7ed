#pragma once
#include "base/result.h"
#include "wire/sampling.h"

namespace llorch::orchestratord::http::tasks {

// Whether the engine can hold an output to what the request asks for (ADR 0012). INVALID_PARAMS with details.field; the
// message may name places in the client's text, so it is for the client alone.
base::Result<> check_constraint(const wire::SamplingRequest& request);

}  // namespace llorch::orchestratord::http::tasks
