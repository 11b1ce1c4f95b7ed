#pragma once
// Structured logs: one JSON object per line, stable event codes, secrets redacted.
// Thread-safe, and nobody who logs waits for whoever reads: lines go to a bounded queue and one thread formats, redacts and
// writes them (log_writer.h). Prompts and outputs are never passed to it: log their hash, length or count.
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/id.h"

namespace llorch::base {

// kFatal ends the process; its line has "level":"error","fatal":true. kMute is for LogOptions alone: nothing is logged.
enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kFatal, kMute };
inline constexpr std::string_view kLogLevelNames[] = {"trace", "debug", "info", "warn", "error", "fatal", "mute"};

struct LogField {
  using Value = std::variant<std::string, std::int64_t, double, bool>;
  std::string_view name;  // a literal: it is read after the caller has gone on
  Value value;

  LogField(std::string_view n, std::string v);
  LogField(std::string_view n, std::string_view v);
  LogField(std::string_view n, const char* v);
  template <class Tag>
  LogField(std::string_view n, const Id<Tag>& v) : LogField(n, v.value) {}
  LogField(std::string_view n, bool v) : name(n), value(v) {}
  LogField(std::string_view n, double v) : name(n), value(v) {}
  template <std::integral T>
  LogField(std::string_view n, T v) : name(n), value(static_cast<std::int64_t>(v)) {}
  // Out of line: a line of fields is destroyed wherever something is logged.
  LogField(const LogField&);
  LogField(LogField&&) noexcept;
  LogField& operator=(const LogField&);
  LogField& operator=(LogField&&) noexcept;
  ~LogField();
};

enum class LogFormat {
  kJson,  // one object a line
  kText,  // for people: time, level, component, event, what happened, fields
};

struct LogOptions {
  std::string component;  // "orchestratord", ...
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kJson;
};

// Call once, before any thread logs; lines of before are lost. Lines go to standard error. What waits when the process exits,
// fails an ASSERT or ends by an uncaught exception is written first, for at most a second.
void init_logging(const LogOptions& options);
LogLevel parse_log_level(std::string_view text, LogLevel fallback);
LogFormat parse_log_format(std::string_view text);  // "text"; anything else is JSON

// `event`: stable code, e.g. "admission.accepted". `human`: one plain sentence without ids. The line says by itself when,
// by which component of which version and in which trace it was logged; a field of that name is kept instead.
void log_event(LogLevel level, std::string_view event, const CorrelationId& correlation_id, std::string_view human,
               std::initializer_list<LogField> fields = {});
void log_event(LogLevel level, std::string_view event, const CorrelationId& correlation_id, std::string_view human,
               std::span<const LogField> fields);

// A line of plain text for whoever started this process, behind what was logged before it; standard output or error.
// Before init_logging() it is written at once.
enum class Announce { kOut, kError };
void announce(Announce where, std::string line);

// Waits until what was logged so far is written, at most `limit`. True if it is, or if nothing is logged at all.
bool flush_log(std::chrono::milliseconds limit);
// Lines that this process could not write, because nobody read or the disk was full.
std::int64_t log_lines_dropped();

// One line as the log has it, without its end.
struct LogRecord {
  LogLevel level = LogLevel::kInfo;
  std::int64_t unix_ms = 0;
  std::string event;
  CorrelationId correlation_id;
  std::string human;
  std::vector<LogField> fields;
};
std::string format_log_line(std::string_view component, const LogRecord& record, LogFormat format = LogFormat::kJson);

// The last line of a process that ends itself, behind those that led here: waits at most a second for a reader. Without
// init_logging(), as in tools and tests, it goes to standard error at once. At LogLevel::kMute there is none.
void log_last_line(LogRecord record);

// Replaces bearer tokens, api keys, JWTs, PEM keys and URL passwords by [REDACTED]; strips control and zero-width
// characters (NARR-3001..3008, NARR-4002).
std::string redact(std::string_view text);

// Tests: lines of `level` and above go to `sink`, on the thread that logs, instead of standard error until reset with {}.
void capture_log_lines(std::function<void(std::string_view line)> sink, LogLevel level = LogLevel::kInfo);

}  // namespace llorch::base
