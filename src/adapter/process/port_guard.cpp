#include "adapter/process/port_guard.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "net/http/url.h"

namespace llorch::adapter::process {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFactsBytesMax = 64 << 10;
// A look is no snapshot: a socket may be closed, a process may start another one between two reads.
constexpr int kLooks = 3;

// Of either family: one of IPv4 as ::ffff:a.b.c.d, as sockets of IPv6 spell it.
using Address = std::array<std::uint8_t, 16>;

struct Listener {
  Address address{};
  uid_t uid = 0;
  ino_t inode = 0;
};

Address ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}
bool is_ipv4(const Address& address) {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kMapped.begin(), kMapped.end(), address.begin());
}
constexpr Address kAnyIpv6{};
constexpr Address kLoopbackIpv6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
const Address kAnyIpv4 = ipv4(0, 0, 0, 0);
const Address kLoopbackIpv4 = ipv4(127, 0, 0, 1);

// Of a table of the kernel: words of four bytes, each as this machine's number. 127.0.0.1 is 0100007F, ::1 ends in 01000000.
std::optional<Address> address_of(std::string_view hex) {
  if (hex.size() != 8 && hex.size() != 32) return std::nullopt;
  Address out = kAnyIpv4;
  std::uint8_t* to = out.data() + out.size() - hex.size() / 2;
  for (; !hex.empty(); hex.remove_prefix(8), to += 4) {
    std::uint32_t word = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + 8, word, 16);
    if (error != std::errc() || end != hex.data() + 8) return std::nullopt;
    std::memcpy(to, &word, sizeof word);
  }
  return out;
}

// Where a connection to `host` goes. Empty: that is known to a resolver.
std::vector<Address> addresses_of(const std::string& host) {
  if (host == "localhost") return {kLoopbackIpv4, kLoopbackIpv6};
  Address out = kAnyIpv4;
  if (in_addr v4{}; ::inet_aton(host.c_str(), &v4) != 0) {
    std::memcpy(out.data() + 12, &v4, sizeof v4);
  } else if (::inet_pton(AF_INET6, host.c_str(), out.data()) != 1) {
    return {};
  }
  if (out == kAnyIpv4) return {kLoopbackIpv4};
  if (out == kAnyIpv6) return {kLoopbackIpv6};
  return {out};
}

// Those of `all` that take connections to `to`: as long as one listens at the address itself, none goes to those at all addresses.
// One of IPv6 at all addresses may take IPv4 as well, unless one of IPv4 does.
std::vector<Listener> takers(const std::vector<Listener>& all, const Address& to) {
  const auto ways = is_ipv4(to) ? std::vector{to, kAnyIpv4, kAnyIpv6} : std::vector{to, kAnyIpv6};
  for (const Address& at : ways) {
    std::vector<Listener> out;
    std::ranges::copy_if(all, std::back_inserter(out), [&](const Listener& one) { return one.address == at; });
    if (!out.empty()) return out;
  }
  return {};
}

bool is_reached_by_loopback(const Address& address) {
  if (address == kAnyIpv4 || address == kAnyIpv6 || address == kLoopbackIpv6) return true;
  return is_ipv4(address) && address[12] == 127;
}

// The lines of /proc/net/tcp and tcp6: "sl local remote state queues timer retransmits uid timeout inode".
base::Result<std::vector<Listener>> listeners(std::uint16_t port) {
  std::vector<Listener> out;
  const std::string wanted = fmt::format(":{:04X}", port);
  for (const std::string table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    if (!file && errno == ENOENT) continue;  // a kernel without that family
    if (!file) return base::fail(base::io_error("cannot read", table, errno));
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      if (line.find(wanted) == std::string::npos) continue;  // of one connection of many
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, timeout;
      Listener one;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> one.uid >> timeout >> one.inode;
      if (!words || state != "0A" || !local.ends_with(wanted)) continue;
      const auto address = address_of(std::string_view(local).substr(0, local.size() - wanted.size()));
      if (!address) return base::fail(base::ErrorCode::kIoError, fmt::format("{} names no address", table));
      one.address = *address;
      out.push_back(one);
    }
  }
  return out;
}

// Those of them that a connection to `place` may reach.
base::Result<std::vector<Listener>> listeners_at(const Place& place) {
  const std::vector<Listener> all = TRY(listeners(place.port));
  const std::vector<Address> addresses = addresses_of(place.host);
  std::vector<Listener> out;
  for (const Address& to : addresses) std::ranges::copy(takers(all, to), std::back_inserter(out));
  if (addresses.empty()) {
    std::ranges::copy_if(all, std::back_inserter(out),
                         [](const Listener& one) { return is_reached_by_loopback(one.address); });
  }
  return out;
}

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
  const std::vector<Listener> all = TRY(listeners_at(options_.place));
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
