#pragma once
#include <string>

#include "base/result.h"
#include "orchestratord/models/catalog.h"
#include "orchestratord/models/chat_format.h"
#include "text/formats/required_call.h"
#include "text/formats/tools.h"
#include "wire/sampling.h"

namespace llorch::orchestratord::http::tasks {

// Whether the engine can hold an output of this model to what the request asks for (ADR 0012). Of the control tokens a
// grammar may name the markers of the model's chat format alone. INVALID_PARAMS with details.field; the message may name
// places in the client's text, so it is for the client alone.
base::Result<> check_constraint(const wire::SamplingRequest& request, const models::KnownModel& model);

// A grammar of outputs that are calls of `tools` or JSON that is valid under `schema`. Where no grammar can keep the tools' schemas beside
// it, all of them are called with any arguments. Compiles three texts at most. `calls`: its `answer` and `loose` are set here.
// INVALID_PARAMS with details.field.
base::Result<std::string> calls_or_json(const wire::JsonSchema& schema, const text::formats::Tools& tools,
                                        text::formats::RequiredCall calls, const models::ChatFormat& format);

}  // namespace llorch::orchestratord::http::tasks
