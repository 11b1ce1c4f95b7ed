#pragma once
// W3C Trace Context (https://www.w3.org/TR/trace-context/, level 1): the headers traceparent and tracestate.
#include <memory>

#include "base/entropy.h"
#include "base/id.h"
#include "net/http/message.h"

namespace llorch::net::http {

// The trace of a request; null if it sends no traceparent, several, or a malformed one. A later version than 00 is read as 00. A
// malformed tracestate counts as none. Of one that is longer than 512 bytes the members over 128 bytes go first, then the last ones.
std::shared_ptr<const base::TraceContext> trace_context(const Headers& headers);

// A trace that begins here.
std::shared_ptr<const base::TraceContext> new_trace(base::Entropy& entropy);

// Sets traceparent, with a parent id of its own, and tracestate unless there is none.
void set_trace_context(Headers& headers, const base::TraceContext& trace, base::Entropy& entropy);

}  // namespace llorch::net::http
