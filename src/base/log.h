#pragma once
// Structured logs: one JSON object per line, stable event codes, secrets redacted (control-plane §14).
// Thread-safe. Prompts and outputs are never passed to it: log their hash, length or count.
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/id.h"

namespace llorch::base {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };

struct LogField {
  using Value = std::variant<std::string, std::int64_t, double, bool>;
  std::string_view name;
  Value value;

  LogField(std::string_view n, std::string v) : name(n), value(std::move(v)) {}
  LogField(std::string_view n, std::string_view v) : name(n), value(std::string(v)) {}
  LogField(std::string_view n, const char* v) : name(n), value(std::string(v)) {}
  template <class Tag>
  LogField(std::string_view n, const Id<Tag>& v) : name(n), value(v.value) {}
  LogField(std::string_view n, bool v) : name(n), value(v) {}
  LogField(std::string_view n, double v) : name(n), value(v) {}
  template <std::integral T>
  LogField(std::string_view n, T v) : name(n), value(static_cast<std::int64_t>(v)) {}
};

struct LogOptions {
  std::string component;  // "orchestratord", ...
  LogLevel level = LogLevel::kInfo;
};

// Call once, before any thread logs. Lines go to standard error.
void init_logging(const LogOptions& options);
LogLevel parse_log_level(std::string_view text, LogLevel fallback);

// `event`: stable code, e.g. "admission.accepted". `human`: one plain sentence without ids.
void log_event(LogLevel level, std::string_view event, const CorrelationId& correlation_id, std::string_view human,
               std::initializer_list<LogField> fields = {});
void log_event(LogLevel level, std::string_view event, const CorrelationId& correlation_id, std::string_view human,
               std::span<const LogField> fields);

// Replaces bearer tokens, api keys, JWTs, PEM keys and URL passwords by [REDACTED]; strips control and zero-width
// characters (NARR-3001..3008, NARR-4002).
std::string redact(std::string_view text);

// Tests: lines go to `sink` instead of standard error until reset with {}.
void capture_log_lines(std::function<void(std::string_view line)> sink);

}  // namespace llorch::base
