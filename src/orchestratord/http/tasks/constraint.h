#pragma once
#include "base/result.h"
#include "orchestratord/models/catalog.h"
#include "wire/sampling.h"

namespace llorch::orchestratord::http::tasks {

// Whether the engine can hold an output of this model to what the request asks for (ADR 0012). Of the control tokens a
// grammar may name the markers of the model's chat format alone. INVALID_PARAMS with details.field; the message may name
// places in the client's text, so it is for the client alone.
base::Result<> check_constraint(const wire::SamplingRequest& request, const models::KnownModel& model);

}  // namespace llorch::orchestratord::http::tasks
