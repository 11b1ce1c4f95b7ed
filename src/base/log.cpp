#include "base/log.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "base/assert.h"
#include "base/clock.h"
#include "base/exceptions.h"
#include "base/json_text.h"
#include "base/log_writer.h"
#include "base/utf8.h"
#include "base/version.h"

namespace llorch::base {
namespace {

// A reader that has stalled must not hold up the end of a process.
constexpr std::chrono::milliseconds kLastLinesWait{1000};

// Never destroyed: threads may log until the process is gone, and the writer may hang in a write that nobody reads.
struct LogState {
  std::atomic<LogLevel> level{LogLevel::kInfo};
  std::atomic<LogWriter*> writer{nullptr};
  std::atomic<bool> captures{false};
  std::mutex mutex;  // guards the next
  std::function<void(std::string_view)> capture;
};
LogState& state() {
  static LogState& s = *new LogState;
  return s;
}

[[noreturn]] void log_and_abort() {
  const std::string type = current_exception_type();
  log_last_line(
      {.level = LogLevel::kFatal,
       .event = "exception.uncaught",
       .correlation_id = {},
       .human = type.empty() ? "A library ends this process." : "An exception of a library ends this process.",
       .fields = {{"type", type}}});
  std::abort();
}

std::string_view level_name(LogLevel level) { return kLogLevelNames[static_cast<int>(level)]; }

bool is_token_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == '~' || c == '+' ||
         c == '/' || c == '=';
}

char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool matches_at(std::string_view text, std::size_t at, std::string_view lower_word) {
  if (text.size() - at < lower_word.size()) return false;
  for (std::size_t i = 0; i < lower_word.size(); ++i) {
    if (ascii_lower(text[at + i]) != lower_word[i]) return false;
  }
  return true;
}

std::size_t token_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_token_char(text[at])) ++at;
  return at;
}

// token:<fp6> names a token without showing it (AUTH-1008); no real token is that short.
bool is_fingerprint(std::string_view token) {
  return token.size() == 6 && token.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Credentials of HTTP Basic, told from prose ("basic checks"): padded base64, or long enough and not a plain word.
bool is_basic_credential(std::string_view token) {
  if (token.ends_with('=')) return true;
  return token.size() >= 8 && token.size() % 4 == 0 &&
         std::any_of(token.begin(), token.end(), [](unsigned char c) { return std::isupper(c) || std::isdigit(c); });
}

constexpr std::string_view kMark = "[REDACTED]";

// If a secret starts at `at`, the end of what to keep and the end of what to hide; else {0, 0}.
struct SecretSpan {
  std::size_t keep_end = 0;
  std::size_t hide_end = 0;
};
// The value of `key=value`, `key: value`, `"key": "value"` and the like; `at` is the first byte after the key.
SecretSpan value_after_key(std::string_view text, std::size_t at) {
  const auto is = [&](std::size_t i, std::string_view any) { return i < text.size() && any.find(text[i]) != any.npos; };
  const auto skip_blanks = [&] {
    while (is(at, " \t")) ++at;
  };
  // A quote, also as it stands inside a JSON string (\"); empty if there is none.
  const auto skip_quote = [&]() -> std::string_view {
    const std::size_t length = is(at, "\\") ? 2 : 1;
    if (!is(at + length - 1, "\"'")) return {};
    at += length;
    return text.substr(at - length, length);
  };
  skip_quote();
  skip_blanks();
  if (!is(at, "=:")) return {};
  ++at;
  skip_blanks();
  const std::string_view quote = skip_quote();
  std::size_t end = at;
  if (!quote.empty()) {
    while (end < text.size() && !text.substr(end).starts_with(quote)) end += text[end] == '\\' ? 2 : 1;
    end = std::min(end, text.size());
  } else {
    while (end < text.size() && !is(end, " \t\r\n&,;\"'<>(){}[]")) ++end;
  }
  return {at, end};
}

// The byte goes into a line as it is: no pattern of secret_at() begins with it and the one behind it.
bool is_harmless(std::string_view text, std::size_t at) {
  const char next = at + 1 < text.size() ? ascii_lower(text[at + 1]) : '\0';
  switch (ascii_lower(text[at])) {
    case 'b': return next != 'e' && next != 'a';
    case 'a': return next != 'p';
    case 't': return next != 'o';
    case 's': return next != 'e';
    case 'p': return next != 'a';
    case 'e': return next != 'y';
    case '-': return next != '-';
    case ':': return next != '/';
    default: return text[at] >= 0x20 && text[at] < 0x7F;
  }
}

SecretSpan secret_at(std::string_view text, std::size_t at) {
  if (matches_at(text, at, "bearer ")) {
    const std::size_t start = at + 7;
    if (const std::size_t end = token_end(text, start); end > start) return {start, end};
  }
  if (matches_at(text, at, "basic ")) {
    const std::size_t start = at + 6;
    const std::size_t end = token_end(text, start);
    if (is_basic_credential(text.substr(start, end - start))) return {start, end};
  }
  for (const std::string_view key : {"api_key", "api-key", "apikey", "token", "secret", "password"}) {
    if (!matches_at(text, at, key)) continue;
    const SecretSpan value = value_after_key(text, at + key.size());
    const bool is_name = key == "token" && is_fingerprint(text.substr(value.keep_end, value.hide_end - value.keep_end));
    if (value.hide_end > value.keep_end && !is_name) return value;
  }
  if (text.substr(at).starts_with("eyJ")) {
    const std::size_t end = token_end(text, at);
    const std::string_view token = text.substr(at, end - at);
    if (std::count(token.begin(), token.end(), '.') >= 2) return {at, end};
  }
  if (text.substr(at).starts_with("-----BEGIN ") && text.substr(at, 64).find("PRIVATE KEY") != std::string_view::npos) {
    const std::size_t end = text.substr(at, 4096).find("-----END ");
    return {at, end == std::string_view::npos ? text.size() : std::min(text.size(), at + end + 40)};
  }
  if (text.substr(at).starts_with("://")) {
    const std::size_t stop = text.find_first_of(" \t\n/?#\"", at + 3);
    const std::string_view authority = text.substr(at + 3, stop == std::string_view::npos ? stop : stop - at - 3);
    if (const std::size_t sign = authority.rfind('@'); sign != std::string_view::npos) return {at + 3, at + 3 + sign};
  }
  return {};
}

}  // namespace

LogField::LogField(std::string_view n, std::string v) : name(n), value(std::move(v)) {}
LogField::LogField(std::string_view n, std::string_view v) : name(n), value(std::string(v)) {}
LogField::LogField(std::string_view n, const char* v) : name(n), value(std::string(v)) {}
LogField::LogField(const LogField&) = default;
LogField::LogField(LogField&&) noexcept = default;
LogField& LogField::operator=(const LogField&) = default;
LogField& LogField::operator=(LogField&&) noexcept = default;
LogField::~LogField() = default;

std::string redact(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    while (at < text.size() && is_harmless(text, at)) ++at;
    out += text.substr(begin, at - begin);
    if (at == text.size()) break;
    if (const SecretSpan secret = secret_at(text, at); secret.hide_end > at) {
      out += text.substr(at, secret.keep_end - at);
      out += kMark;
      at = secret.hide_end;
      continue;
    }
    const Utf8Step step = next_code_point(text.substr(at));
    const bool zero_width = (step.code_point >= 0x200B && step.code_point <= 0x200D) || step.code_point == 0x2060 ||
                            step.code_point == 0xFEFF;
    if (step.status != Utf8Status::kComplete) {
      out += "\xEF\xBF\xBD";
    } else if (step.code_point < 0x20 || step.code_point == 0x7F) {
      out += ' ';
    } else if (!zero_width) {
      out += text.substr(at, step.bytes);
    }
    at += step.bytes;
  }
  return out;
}

void init_logging(const LogOptions& options) {
  LogState& s = state();
  ASSERT(s.writer.load() == nullptr);
  s.level.store(options.level);
  s.writer.store(new LogWriter(options.component, STDOUT_FILENO, STDERR_FILENO, {}, options.format));
  std::atexit([] { flush_log(kLastLinesWait); });
  std::set_terminate(log_and_abort);
}

void announce(Announce where, std::string line) {
  line += '\n';
  const bool out = where == Announce::kOut;
  if (LogWriter* const writer = state().writer.load()) {
    return writer->add_text(out ? LogWriter::Stream::kOut : LogWriter::Stream::kError, std::move(line));
  }
  std::fputs(line.c_str(), out ? stdout : stderr);
  std::fflush(out ? stdout : stderr);
}

bool flush_log(std::chrono::milliseconds limit) {
  LogWriter* const writer = state().writer.load();
  return writer == nullptr || writer->flush(limit);
}

void log_last_line(LogRecord record) {
  if (state().level.load(std::memory_order_relaxed) == LogLevel::kMute) return;
  record.unix_ms = SystemClock().now().unix_ms;
  LogWriter* const writer = state().writer.load();
  if (writer == nullptr) return announce(Announce::kError, format_log_line("", record));
  writer->flush(kLastLinesWait / 2);  // a full queue would drop it
  writer->add(std::move(record));
  writer->flush(kLastLinesWait / 2);
}

std::int64_t log_lines_dropped() {
  const LogWriter* const writer = state().writer.load();
  return writer == nullptr ? 0 : writer->lines_dropped();
}

LogLevel parse_log_level(std::string_view text, LogLevel fallback) {
  for (std::size_t i = 0; i < std::size(kLogLevelNames); ++i) {
    if (text == kLogLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return fallback;
}

LogFormat parse_log_format(std::string_view text) { return text == "text" ? LogFormat::kText : LogFormat::kJson; }

void capture_log_lines(std::function<void(std::string_view)> sink, LogLevel level) {
  LogState& s = state();
  const std::lock_guard lock(s.mutex);
  s.level.store(sink ? level : LogLevel::kInfo);
  s.captures.store(static_cast<bool>(sink));
  s.capture = std::move(sink);
}

void log_event(LogLevel level, std::string_view event, const CorrelationId& correlation_id, std::string_view human,
               std::initializer_list<LogField> fields) {
  log_event(level, event, correlation_id, human, std::span<const LogField>(fields.begin(), fields.size()));
}

void log_event(LogLevel level, std::string_view event, const CorrelationId& correlation_id, std::string_view human,
               std::span<const LogField> fields) {
  LogState& s = state();
  if (level < s.level.load(std::memory_order_relaxed)) return;
  LogWriter* const writer = s.writer.load(std::memory_order_acquire);
  const bool captures = s.captures.load(std::memory_order_acquire);
  if (writer == nullptr && !captures) return;
  LogRecord record{.level = level,
                   .unix_ms = SystemClock().now().unix_ms,
                   .event = std::string(event),
                   .correlation_id = correlation_id,
                   .human = std::string(human),
                   .fields = {fields.begin(), fields.end()}};
  if (!captures) return writer->add(std::move(record));
  const std::lock_guard lock(s.mutex);
  if (s.capture) s.capture(format_log_line("test", record));
}

namespace {

void append_json_value(std::string& out, const LogField::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    append_json_string(out, redact(*text));
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    out += std::to_string(*integer);
  } else if (const auto* number = std::get_if<double>(&value)) {
    out += std::isfinite(*number) ? fmt::format("{:.6g}", *number) : "null";  // JSON has no other spelling
  } else {
    out += std::get<bool>(value) ? "true" : "false";
  }
}

std::string json_line(std::string_view component, const LogRecord& record) {
  const auto given = [&](std::string_view name) {
    return std::ranges::any_of(record.fields, [&](const LogField& field) { return field.name == name; });
  };
  const bool fatal = record.level == LogLevel::kFatal;
  std::string line = "{\"v\":1,";
  if (!given("ts")) line += fmt::format("\"ts\":\"{}\",", rfc3339(record.unix_ms));
  line += fmt::format("\"level\":\"{}\",", level_name(fatal ? LogLevel::kError : record.level));
  if (fatal) line += "\"fatal\":true,";
  if (!given("component")) {
    line += "\"component\":";
    append_json_string(line, component);
    line += ',';
  }
  if (!given("emitted_by")) {
    line += "\"emitted_by\":";
    append_json_string(line, fmt::format("{}@{}", component, kVersion));
    line += ',';
  }
  line += "\"event\":";
  append_json_string(line, record.event);
  line += ",\"correlation_id\":";
  append_json_string(line, redact(record.correlation_id.value));
  if (record.correlation_id.trace && !given("trace_id")) {
    line += ",\"trace_id\":";
    append_json_string(line, record.correlation_id.trace->trace_id);
  }
  line += ",\"human\":";
  append_json_string(line, redact(record.human));
  for (const LogField& field : record.fields) {
    line += ',';
    append_json_string(line, field.name);
    line += ':';
    append_json_value(line, field.value);
  }
  line += '}';
  return line;
}

// What is empty is left out. Line breaks and other controls of a text are blanks: redact() sees to it.
std::string text_line(std::string_view component, const LogRecord& record) {
  std::string line = fmt::format("{} {:<5} {:<13} {}", rfc3339(record.unix_ms), level_name(record.level), component,
                                 redact(record.event));
  if (!record.human.empty()) line += ": " + redact(record.human);
  const auto add = [&line](std::string_view name, std::string_view text) {
    if (!text.empty()) line += fmt::format(" {}={}", name, text);
  };
  for (const LogField& field : record.fields) {
    if (const auto* text = std::get_if<std::string>(&field.value)) {
      add(field.name, redact(*text));
    } else {
      std::string value;
      append_json_value(value, field.value);
      add(field.name, value);
    }
  }
  add("correlation_id", redact(record.correlation_id.value));
  if (record.correlation_id.trace) add("trace_id", record.correlation_id.trace->trace_id);
  return line;
}

}  // namespace

std::string format_log_line(std::string_view component, const LogRecord& record, LogFormat format) {
  return format == LogFormat::kText ? text_line(component, record) : json_line(component, record);
}

}  // namespace llorch::base
