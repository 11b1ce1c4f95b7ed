#include "cli/stack/log_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <utility>

#include "base/file.h"
#include "cli/terminal_text.h"

namespace llorch::cli::stack {
namespace {

namespace bj = boost::json;

constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::string_view kSuffix = ".log";

std::string_view time_of(std::string_view line) {
  constexpr std::string_view kKey = R"("ts":")";
  const std::size_t at = line.find(kKey);
  if (at == std::string_view::npos) return {};
  const std::size_t begin = at + kKey.size();
  const std::size_t end = line.find('"', begin);
  return end == std::string_view::npos ? std::string_view{} : line.substr(begin, end - begin);
}

std::string text_of(const bj::value& value) {
  return value.is_string() ? std::string(value.get_string()) : bj::serialize(value);
}

}  // namespace

LogReader::LogReader(LogReader&& other) noexcept
    : file_(other.file_),
      current_(std::exchange(other.current_, {})),
      finished_(std::exchange(other.finished_, {})),
      buffer_(std::move(other.buffer_)),
      at_(std::exchange(other.at_, 0)) {}

LogReader::~LogReader() {
  finished_.push_back(current_);
  for (const OpenFile& file : finished_) {
    if (file.fd >= 0) ::close(file.fd);
  }
}

std::vector<LogReader::Generation> LogReader::generations() const {
  std::vector<Generation> out;
  struct stat st {};
  for (int number = 0;; ++number) {
    std::filesystem::path path =
        number == 0 ? file_ : std::filesystem::path(fmt::format("{}.{}", file_.string(), number));
    const bool is_there = ::stat(path.c_str(), &st) == 0;
    if (is_there) out.push_back({std::move(path), {st.st_dev, st.st_ino}});
    if (!is_there && number > 0) break;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

bool LogReader::read_some() {
  if (current_.fd < 0) return false;
  buffer_.erase(0, std::exchange(at_, 0));
  const std::size_t held = buffer_.size();
  buffer_.resize(held + kReadBytes);
  ssize_t got = -1;
  do {
    got = ::read(current_.fd, buffer_.data() + held, kReadBytes);
  } while (got < 0 && errno == EINTR);
  buffer_.resize(held + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return got > 0;
}

// To the file after the one that has been read to its end, if there is one.
bool LogReader::go_on() {
  const std::vector<Generation> all = generations();
  const auto index_of = [&](const FileId& id) { return std::ranges::find(all, id, &Generation::id) - all.begin(); };
  std::erase_if(finished_, [&](const OpenFile& file) {
    const bool has_gone = std::cmp_equal(index_of(file.id), all.size());
    return has_gone && ::close(file.fd) == 0;
  });
  const auto is_new = [&](const Generation& g) {
    return (current_.fd < 0 || g.id != current_.id) &&
           std::ranges::find(finished_, g.id, &OpenFile::id) == finished_.end();
  };
  const auto next = std::ranges::find_if(all, is_new);
  if (next == all.end()) return false;
  if (read_some()) return true;  // it was written to before it was rotated
  const int fd = ::open(next->path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st {};
  if (fd < 0 || ::fstat(fd, &st) != 0 || FileId{st.st_dev, st.st_ino} != next->id) {  // rotated in between
    if (fd >= 0) ::close(fd);
    return false;
  }
  if (current_.fd >= 0) finished_.push_back(current_);
  current_ = {.fd = fd, .id = next->id};
  return true;
}

std::optional<std::string> LogReader::next() {
  for (;;) {
    if (const std::size_t end = buffer_.find('\n', at_); end != std::string::npos) {
      std::string line = buffer_.substr(at_, end - at_);
      at_ = end + 1;
      return line;
    }
    if (!read_some() && !go_on()) return std::nullopt;
  }
}

std::string LogReader::take_rest() {
  std::string out = buffer_.substr(at_);
  buffer_.clear();
  at_ = 0;
  return out;
}

void LogMerge::add(const std::filesystem::path& file) {
  const bool is_read = std::ranges::any_of(sources_, [&](const Source& source) { return source.file == file; });
  if (!is_read) sources_.push_back({.file = file, .reader = LogReader(file)});
}

std::optional<std::string> LogMerge::next() {
  Source* first = nullptr;
  for (Source& source : sources_) {
    if (!source.line) {
      source.line = source.reader.next();
      if (!source.line) continue;
      if (const std::string_view time = time_of(*source.line); !time.empty()) source.time = time;
    }
    if (first == nullptr || source.time < first->time) first = &source;
  }
  return first == nullptr ? std::nullopt : std::exchange(first->line, std::nullopt);
}

std::vector<std::string> LogMerge::take_rests() {
  std::vector<std::string> out;
  for (Source& source : sources_) {
    if (std::string rest = source.reader.take_rest(); !rest.empty()) out.push_back(std::move(rest));
  }
  return out;
}

base::Result<std::vector<std::filesystem::path>> find_logs(const std::filesystem::path& directory,
                                                           std::string_view component) {
  std::vector<std::filesystem::path> out;
  std::string names;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ec)) {
    if (entry.path().extension() != kSuffix) continue;
    const std::string name = entry.path().stem().string();
    const bool is_meant =
        component.empty() || name == component || (component == "worker-orcd" && name.starts_with("worker-"));
    if (is_meant) out.push_back(entry.path());
    names += (names.empty() ? "" : ", ") + without_controls(name);
  }
  if (ec && ec != std::errc::no_such_file_or_directory)
    return base::fail(base::io_error("cannot list the logs in", directory, ec.value()));
  std::ranges::sort(out);
  if (!out.empty()) return out;
  if (names.empty()) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("there are no logs in {}; `llorch up` writes them there, and a service that systemd "
                                  "starts by itself is read with journalctl",
                                  directory.string()));
  }
  return base::fail(
      base::ErrorCode::kInvalidParams,
      fmt::format("no log has this name; there are: {}; that of a service of systemd is read with journalctl", names));
}

std::string readable_line(std::string_view line) {
  bj::error_code ec;
  const bj::value parsed = bj::parse(line, ec);
  const bj::object* const object = ec ? nullptr : parsed.if_object();
  if (object == nullptr || !object->contains("event")) return without_controls(line);
  const auto member = [&](std::string_view name) {
    const bj::value* const value = object->if_contains(name);
    return value == nullptr ? std::string() : text_of(*value);
  };
  std::string out =
      fmt::format("{} {:<5} {:<13} {}", member("ts"), member("level"), member("component"), member("event"));
  if (const std::string human = member("human"); !human.empty()) out += ": " + human;
  static constexpr std::array<std::string_view, 7> kTold = {"ts",    "level", "component", "emitted_by",
                                                            "event", "human", "v"};
  for (const auto& field : *object) {
    const std::string_view name(field.key());
    if (std::ranges::find(kTold, name) != kTold.end()) continue;
    if (const std::string text = text_of(field.value()); !text.empty()) out += fmt::format(" {}={}", name, text);
  }
  return without_controls(out);
}

}  // namespace llorch::cli::stack
