#include "cli/stack/start_error.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <optional>
#include <vector>

namespace llorch::cli::stack {
namespace {

namespace bj = boost::json;
using base::ErrorCode;

constexpr std::int64_t kTailBytesMax = 64 << 10;

struct Finding {
  ErrorCode code;
  std::string message;
};

std::string text_of(const bj::object& object, const char* key) {
  const auto* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

// An error event of the structured log that carries a code of the table.
std::optional<Finding> from_event(std::string_view line) {
  bj::error_code ec;
  const bj::value event = bj::parse(bj::string_view(line.data(), line.size()), ec);
  if (ec || !event.is_object() || text_of(event.get_object(), "level") != "error") return std::nullopt;
  const auto code = base::error_code_from_name(text_of(event.get_object(), "error_code"));
  if (!code) return std::nullopt;
  return Finding{*code, text_of(event.get_object(), "human")};
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// "NAME: CODE: message", what a daemon prints when it gives up, also before its log is set up.
std::optional<Finding> from_plain_line(std::string_view line, const std::string& name) {
  if (!line.starts_with(name + ": ")) return std::nullopt;
  line.remove_prefix(name.size() + 2);
  const std::size_t colon = line.find(": ");
  if (colon == std::string_view::npos) return std::nullopt;
  const auto code = base::error_code_from_name(line.substr(0, colon));
  if (!code) return std::nullopt;
  return Finding{*code, std::string(line.substr(colon + 2))};
}

ErrorCode code_of_exit(int status) {
  switch (status) {
    case 2: return ErrorCode::kConfigInvalid;
    case 4: return ErrorCode::kForbidden;
    default: return ErrorCode::kIoError;
  }
}

}  // namespace

std::string read_log_tail(const std::filesystem::path& path, std::int64_t offset) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::int64_t size = file.tellg();
  if (offset > size) offset = 0;  // the file was full and another one begun
  offset = std::max(offset, size - kTailBytesMax);
  if (offset >= size) return "";
  std::string out(static_cast<std::size_t>(size - offset), '\0');
  file.seekg(offset);
  file.read(out.data(), static_cast<std::streamsize>(out.size()));
  out.resize(static_cast<std::size_t>(file.gcount()));
  return out;
}

base::Error start_error(const EndedDaemon& daemon) {
  const std::vector<std::string_view> lines = lines_of(daemon.log_tail);
  std::string last_plain_line;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    auto found = from_event(*line);
    if (!found) found = from_plain_line(*line, daemon.name);
    if (found) return {found->code, fmt::format("{} did not start: {}", daemon.name, found->message), {}};
    if (last_plain_line.empty() && !line->starts_with('{')) last_plain_line = *line;
  }
  const std::string ending = daemon.exit_status > 128    ? fmt::format("signal {}", daemon.exit_status - 128)
                             : daemon.exit_status == 127 ? std::string("its program cannot be run")
                                                         : fmt::format("exit {}", daemon.exit_status);
  return {code_of_exit(daemon.exit_status),
          fmt::format("{} did not start ({}): {}", daemon.name, ending,
                      last_plain_line.empty() ? "see " + daemon.log_path : last_plain_line),
          {}};
}

std::optional<base::Error> record_error(const std::string& name, std::string_view log_tail) {
  constexpr std::string_view kEvent = "run_file.failed";
  if (log_tail.find(kEvent) == std::string_view::npos) return std::nullopt;
  for (const std::string_view line : lines_of(log_tail)) {
    bj::error_code ec;
    const bj::value event = bj::parse(bj::string_view(line.data(), line.size()), ec);
    if (ec || !event.is_object() || text_of(event.get_object(), "event") != kEvent) continue;
    return base::Error{ErrorCode::kIoError,
                       fmt::format("{} did not start: it cannot record where it listens: {}", name,
                                   text_of(event.get_object(), "error")),
                       {}};
  }
  return std::nullopt;
}

}  // namespace llorch::cli::stack
