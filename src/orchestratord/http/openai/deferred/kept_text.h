#pragma once
// The text that is kept of a response, and requests that go on with what is kept. Pure.
#include <boost/json/array.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::orchestratord::http::openai {

// The input of a request's body as a list of items, in JSON: a text is one message. REQUIRES: decode_response() takes the body.
std::string input_of(std::string_view request_body);

// What is kept of a response: its input, as a comment, and its events as ResponseRenderer writes them.
std::string kept_text(std::string_view input, std::string_view events);

// The two parts of it, as lists of items; the input is empty where an earlier version wrote it. Errors: CORRUPT_FILE.
std::string_view input_kept(std::string_view kept);
base::Result<boost::json::array> output_kept(std::string_view kept);

// Whether it ended with an output: completed, or cut by a limit. Errors: CORRUPT_FILE.
base::Result<bool> has_output(std::string_view kept);

// `request_body` with these items before its own input. REQUIRES: as of input_of().
std::string with_items_before(boost::json::array items, std::string_view request_body);

// `request_body` with the input and the output of the kept response before its own input. Errors: CONFLICT (it failed or was
// cancelled), NOT_FOUND (its input is not kept: an earlier version wrote it), CORRUPT_FILE. REQUIRES: as of input_of().
base::Result<std::string> continued(std::string_view request_body, std::string_view kept);

// Why a request cannot go on with a response. Of one that is not kept it is an error of the field, which programs know by its code and
// answer with the whole conversation: INVALID_PARAMS with details.reason "not_kept".
base::Error of_previous_response(base::Error error);

}  // namespace llorch::orchestratord::http::openai
