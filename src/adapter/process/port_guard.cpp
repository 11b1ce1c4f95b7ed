#include "adapter/process/port_guard.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/listeners.h"
#include "net/http/url.h"

namespace llorch::adapter::process {
namespace {

namespace fs = std::filesystem;
using base::Listener;

constexpr std::size_t kFactsBytesMax = 64 << 10;
// A look is no snapshot: a socket may be closed, a process may start another one between two reads.
constexpr int kLooks = 3;

std::vector<pid_t> processes() {
  std::vector<pid_t> out;
  std::error_code ec;
  for (fs::directory_iterator it("/proc", ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    pid_t pid = 0;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && rest == name.data() + name.size()) out.push_back(pid);
  }
  return out;
}

// `pid` and its descendants.
std::vector<pid_t> family_of(pid_t pid) {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t one : processes()) {
    const auto stat = base::read_file(fmt::format("/proc/{}/stat", one), kFactsBytesMax);
    const std::size_t name_end = stat ? stat->rfind(')') : std::string::npos;
    if (name_end == std::string::npos) continue;
    std::istringstream words(stat->substr(name_end + 1));
    std::string state;
    pid_t parent = 0;
    if (words >> state >> parent) children.emplace(parent, one);
  }
  std::vector<pid_t> out{pid};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto [begin, end] = children.equal_range(out[i]);
    for (auto it = begin; it != end; ++it) out.push_back(it->second);
  }
  return out;
}

// Absent: this process may not look at its files.
std::optional<std::set<ino_t>> sockets_of(pid_t pid) {
  constexpr std::string_view kSocket = "socket:[";
  std::set<ino_t> out;
  std::error_code ec;
  for (fs::directory_iterator it(fmt::format("/proc/{}/fd", pid), ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code closed;
    const std::string target = fs::read_symlink(it->path(), closed).string();
    ino_t inode = 0;
    if (!target.starts_with(kSocket)) continue;
    std::from_chars(target.data() + kSocket.size(), target.data() + target.size(), inode);
    out.insert(inode);
  }
  const bool gone = ec == std::errc::no_such_file_or_directory || ec == std::errc::no_such_process;
  if (ec && !gone) return std::nullopt;
  return out;
}

// Whose files and sockets a process makes.
std::optional<uid_t> user_of(pid_t pid) {
  const auto status = base::read_file(fmt::format("/proc/{}/status", pid), kFactsBytesMax);
  const std::size_t at = status ? status->find("\nUid:") : std::string::npos;
  if (at == std::string::npos) return std::nullopt;
  std::istringstream words(status->substr(at + 5));
  uid_t real = 0, effective = 0;
  if (!(words >> real >> effective)) return std::nullopt;
  return effective;
}

// What holds the socket, as far as this process may see it.
std::string holder_of(const Listener& listener) {
  for (const pid_t pid : processes()) {
    const auto sockets = sockets_of(pid);
    if (!sockets || !sockets->contains(listener.inode)) continue;
    std::string name = base::read_file(fmt::format("/proc/{}/comm", pid), kFactsBytesMax).value_or("");
    std::erase_if(name, [](unsigned char c) { return std::isprint(c) == 0; });
    return fmt::format("the process {} ({}) of user {}", pid, name, listener.uid);
  }
  return fmt::format("a process of user {}", listener.uid);
}

}  // namespace

base::Result<PortState> PortGuard::look() {
  for (int looks = 1;; ++looks) {
    auto seen = look_once();
    if (seen || looks == kLooks) return seen;
  }
}

base::Result<PortState> PortGuard::look_once() {
  const std::vector<Listener> all = TRY(base::listeners_at(options_.place.host, options_.place.port));
  if (all.empty()) return options_.in_container ? PortState::kEngine : PortState::kFree;
  const auto is_known = [this](const Listener& one) { return known_.contains(one.inode); };
  if (std::ranges::all_of(all, is_known)) return PortState::kEngine;
  std::set<ino_t> sockets;
  std::set<uid_t> users;  // whose sockets all count
  if (options_.in_container) {
    users = {0, ::geteuid()};
  } else {
    for (const pid_t pid : family_of(options_.pid)) {
      if (auto own = sockets_of(pid)) {
        sockets.merge(*own);
      } else if (const auto user = user_of(pid)) {
        users.insert(*user);
      }
    }
  }
  std::set<ino_t> known;
  for (const Listener& one : all) {
    if (!sockets.contains(one.inode) && !users.contains(one.uid)) {
      return base::fail(base::ErrorCode::kWorkerStartFailed,
                        fmt::format("{} listens on port {}, where the engine should; nothing is sent there",
                                    holder_of(one), options_.place.port));
    }
    known.insert(one.inode);
  }
  known_ = std::move(known);
  return PortState::kEngine;
}

Place place_of(std::string_view endpoint) {
  const std::size_t scheme_end = endpoint.find("://");
  if (scheme_end == std::string_view::npos) return {};
  const auto url = net::http::parse_url(fmt::format("http{}", endpoint.substr(scheme_end)));
  return url ? Place{url->host, url->port} : Place{};
}

bool starts_container(std::string_view program) {
  const std::string name = fs::path(program).filename().string();
  return name == "podman" || name == "docker";
}

}  // namespace llorch::adapter::process
