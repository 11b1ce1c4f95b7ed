#pragma once
// Spans as an ExportTraceServiceRequest of the OpenTelemetry protocol, in its JSON encoding. Pure.
#include <span>
#include <string>
#include <string_view>

#include "orchestratord/traces/job_spans.h"

namespace llorch::orchestratord::traces {

std::string otlp_json(std::span<const Span> spans, std::string_view service_version);

}  // namespace llorch::orchestratord::traces
