#include "orchestratord/traces/otlp.h"

#include <boost/json.hpp>

namespace llorch::orchestratord::traces {
namespace {

namespace bj = boost::json;

constexpr int kInternal = 1, kServer = 2;  // SpanKind
constexpr int kStatusError = 2;            // Status.StatusCode

// 64-bit integers are texts in JSON of protocol buffers.
std::string nanoseconds(std::int64_t ms) { return std::to_string(ms) + "000000"; }

bj::object attribute(std::string_view key, bj::object value) { return {{"key", key}, {"value", std::move(value)}}; }
bj::object attribute(const Attribute& one) {
  if (const auto* text = std::get_if<std::string>(&one.second)) return attribute(one.first, {{"stringValue", *text}});
  return attribute(one.first, {{"intValue", std::to_string(std::get<std::int64_t>(one.second))}});
}

bj::object span_json(const Span& span) {
  bj::object out{{"traceId", span.trace_id},
                 {"spanId", span.span_id},
                 {"name", span.name},
                 {"kind", span.is_server ? kServer : kInternal},
                 {"startTimeUnixNano", nanoseconds(span.begin_ms)},
                 {"endTimeUnixNano", nanoseconds(span.end_ms)}};
  if (!span.parent_id.empty()) out["parentSpanId"] = span.parent_id;
  if (span.is_error) out["status"] = bj::object{{"code", kStatusError}};
  if (span.attributes.empty()) return out;
  bj::array attributes;
  for (const Attribute& one : span.attributes) attributes.push_back(attribute(one));
  out["attributes"] = std::move(attributes);
  return out;
}

}  // namespace

std::string otlp_json(std::span<const Span> spans, std::string_view service_version) {
  bj::array all;
  for (const Span& span : spans) all.push_back(span_json(span));
  const bj::array resource{attribute("service.namespace", {{"stringValue", "llama-orch"}}),
                           attribute("service.name", {{"stringValue", "orchestratord"}}),
                           attribute("service.version", {{"stringValue", service_version}})};
  const bj::object scope{{"scope", {{"name", "llama-orch"}, {"version", service_version}}}, {"spans", std::move(all)}};
  const bj::object of_resource{{"resource", {{"attributes", resource}}}, {"scopeSpans", bj::array{scope}}};
  return bj::serialize(bj::object{{"resourceSpans", bj::array{of_resource}}});
}

}  // namespace llorch::orchestratord::traces
