#pragma once
// What the decoders of the chat APIs share.
#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/utf8.h"
#include "wire/json.h"
#include "wire/request_limits.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::chat {

// INVALID_PARAMS with details {field, reason}.
inline tl::unexpected<base::Error> refused(std::string_view field, std::string_view reason, std::string message) {
  return base::fail(base::Error{base::ErrorCode::kInvalidParams, std::move(message), {}}
                        .with("field", std::string(field))
                        .with("reason", std::string(reason)));
}

// The text of a member; empty if there is none, or no text.
inline std::string_view text_at(const boost::json::object& object, std::string_view name) {
  const boost::json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

// Of a number of tokens that a client asked for, what a job may have.
inline std::optional<std::int64_t> lowered_tokens(std::optional<std::int64_t> asked) {
  return asked ? std::optional(std::min(*asked, wire::kOutputTokensMax)) : std::nullopt;
}

inline base::Result<> check_utf8(std::string_view body) {
  if (base::is_valid_utf8(body)) return {};
  return refused("", "utf8", "the body is not valid UTF-8");
}

// A body whose unknown fields are ignored is read loosely, so what came of it is read again as /v2 reads it. Without a `model` it is one
// that names its model later. Errors: those of a body of /v2.
inline base::Result<> check_as_task(wire::SubmitRequest submission) {
  if (!submission.model) submission.model = "any";
  TRY(wire::decode<wire::SubmitRequest>(wire::encode(submission), wire::UnknownKeys::kRefuse));
  return {};
}

}  // namespace llorch::orchestratord::http::chat
