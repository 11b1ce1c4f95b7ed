#include "pool_managerd/engines/containers.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/run_command.h"

extern char** environ;

namespace llorch::pool_managerd::engines {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

constexpr std::int64_t kCommandTimeoutMs = 20'000;
constexpr std::size_t kRecordBytesMax = 4096;  // PATH_MAX
constexpr std::size_t kListBytesMax = 64 << 10;
constexpr std::size_t kCommandLineBytesMax = 256 << 10;
constexpr std::size_t kStatusBytesMax = 64 << 10;
constexpr std::int64_t kWatcherLookMs = 50;
constexpr std::int64_t kWatcherTimeoutMs = 5'000;

// As the runtime's client had it that started the container: it says whose containers, and where its daemon is.
std::vector<std::string> environment() {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    if (!std::string_view(*at).starts_with("LLORCH_")) out.emplace_back(*at);
  }
  return out;
}

// What a command said, errors included, with its exit status.
struct Said {
  int status = 0;
  std::string text;
};
base::Result<Said> ask(const Container& container, std::vector<std::string> arguments,
                       const std::function<bool()>& stop) {
  arguments.insert(arguments.begin(), container.runtime);
  const int fd = memfd_create("container", MFD_CLOEXEC);
  if (fd < 0) return base::fail(ErrorCode::kIoError, "no memory for what a command says");
  auto status = base::run_command({.argv = std::move(arguments),
                                   .environment = environment(),
                                   .directory = {},
                                   .output_fd = fd,
                                   .timeout_ms = kCommandTimeoutMs,
                                   .stop = stop});
  Said out;
  out.text.resize(kListBytesMax);
  const ssize_t got = pread(fd, out.text.data(), out.text.size(), 0);
  close(fd);
  out.text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  out.status = TRY(std::move(status));
  return out;
}

std::vector<std::string> words(const fs::path& file, char separator) {
  const auto content = base::read_file(file, kCommandLineBytesMax);
  std::vector<std::string> out;
  if (!content) return out;
  for (std::size_t at = 0; at < content->size();) {
    const std::size_t end = std::min(content->find(separator, at), content->size());
    if (end > at) out.push_back(content->substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// Whether this user or root started the process. The effective user would not tell: anybody starts a program of root's with set-uid.
bool is_ours_or_roots(const fs::path& process) {
  const auto status = base::read_file(process / "status", kStatusBytesMax);
  if (!status) return false;  // it is gone
  constexpr std::string_view kLine = "\nUid:\t";
  const std::size_t at = status->find(kLine);
  if (at == std::string::npos) return false;
  const std::string real = status->substr(at + kLine.size(), status->find('\t', at + kLine.size()) - at - kLine.size());
  return real == "0" || real == std::to_string(::getuid());
}

// Processes that podman has watch over the container. One whose client was killed while it created the container is known to nobody else:
// podman has no more of it than a name, and drops that. What another user's process calls itself is no matter.
std::vector<std::string> watchers_of(const std::string& name) {
  std::vector<std::string> out;
  std::error_code ec;
  for (fs::directory_iterator it("/proc", ec), end; !ec && it != end; it.increment(ec)) {
    const std::string pid = it->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::vector<std::string> command = words(it->path() / "cmdline", '\0');
    const auto flag = std::ranges::find(command, "-n");
    const bool is_conmon = !command.empty() && fs::path(command[0]).filename() == "conmon";
    if (is_conmon && flag != command.end() && flag + 1 != command.end() && *(flag + 1) == name &&
        is_ours_or_roots(it->path()))
      out.push_back(pid);
  }
  return out;
}

// A watcher ends when its container has. Errors: IO_ERROR, it does not.
base::Result<> end_watched(const Container& container) {
  for (std::int64_t waited_ms = 0; waited_ms < kWatcherTimeoutMs; waited_ms += kWatcherLookMs) {
    const std::vector<std::string> watchers = watchers_of(container.name);
    if (watchers.empty()) return {};
    for (const std::string& watcher : watchers) {
      for (const std::string& pid : words(fs::path("/proc") / watcher / "task" / watcher / "children", ' ')) {
        ::kill(std::stoi(pid), SIGKILL);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kWatcherLookMs));
  }
  return base::fail(ErrorCode::kIoError, fmt::format("a process of {} does not end", container.name));
}

}  // namespace

base::Result<> remove_container(const Container& container, const std::function<bool()>& stop) {
  // Without the kill, rm would give it ten seconds to end by itself. Either fails where there is nothing to do.
  TRY(ask(container, {"kill", container.name}, stop));
  TRY(ask(container, {"rm", "--force", container.name}, stop));
  const Said left =
      TRY(ask(container, {"ps", "--all", "--format", "{{.Names}}", "--filter", "name=^" + container.name + "$"}, stop));
  if (left.status != 0) {
    return base::fail(ErrorCode::kIoError,
                      fmt::format("{} lists no containers: status {}", container.runtime, left.status));
  }
  if (left.text.find(container.name) == std::string::npos) return end_watched(container);
  return base::fail(ErrorCode::kIoError, fmt::format("{} does not remove {}", container.runtime, container.name));
}

base::Result<> ContainerRecords::add(const Container& container) const {
  TRY(base::ensure_private_directory(directory_));
  return base::write_file_atomic(directory_ / container.name, container.runtime);
}

void ContainerRecords::drop(const Container& container) const {
  std::error_code ignored;  // one that stays makes the next start look for a container that is gone
  fs::remove(directory_ / container.name, ignored);
}

std::vector<Container> ContainerRecords::all() const {
  std::vector<Container> out;
  std::error_code ec;
  for (fs::directory_iterator it(directory_, ec), end; !ec && it != end; it.increment(ec)) {
    auto runtime = base::read_file(it->path(), kRecordBytesMax);
    if (runtime && fs::path(*runtime).is_absolute())
      out.push_back({std::move(*runtime), it->path().filename().string()});
  }
  std::ranges::sort(out, {}, &Container::name);
  return out;
}

}  // namespace llorch::pool_managerd::engines
