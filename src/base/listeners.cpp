#include "base/listeners.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

#include "base/file.h"

namespace llorch::base {
namespace {

constexpr std::string_view kListening = "0A";

constexpr IpAddress ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}
constexpr IpAddress kAnyIpv4 = ipv4(0, 0, 0, 0), kLoopbackIpv4 = ipv4(127, 0, 0, 1);
constexpr IpAddress kAnyIpv6{}, kLoopbackIpv6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

// Words of four bytes, each as this machine's number: 127.0.0.1 is 0100007F, ::1 ends in 01000000.
std::optional<IpAddress> address_of(std::string_view hex) {
  if (hex.size() != 8 && hex.size() != 32) return std::nullopt;
  IpAddress out = kAnyIpv4;
  std::uint8_t* to = out.data() + out.size() - hex.size() / 2;
  for (; !hex.empty(); hex.remove_prefix(8), to += 4) {
    std::uint32_t word = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + 8, word, 16);
    if (error != std::errc() || end != hex.data() + 8) return std::nullopt;
    std::memcpy(to, &word, sizeof word);
  }
  return out;
}

// A line: "sl local remote state queues timer retransmits uid timeout inode".
Result<> add_listener(const std::string& line, const std::string& wanted, std::vector<Listener>& out) {
  if (line.find(wanted) == std::string::npos) return {};  // a machine has many connections
  std::istringstream words(line);
  std::string number, local, remote, state, queues, timer, retransmits, timeout;
  Listener one;
  words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> one.uid >> timeout >> one.inode;
  if (!words || state != kListening || !local.ends_with(wanted)) return {};
  const auto address = address_of(std::string_view(local).substr(0, local.size() - wanted.size()));
  // One that cannot be placed is not passed over: its port would look free.
  if (!address)
    return fail(ErrorCode::kIoError, fmt::format("a listener of the kernel's table has the address {}", local));
  one.address = *address;
  out.push_back(one);
  return {};
}

Result<> add_listeners(std::istream& table, std::uint16_t port, std::vector<Listener>& out) {
  const std::string wanted = fmt::format(":{:04X}", port);
  for (std::string line; std::getline(table, line);) TRY(add_listener(line, wanted, out));
  return {};
}

bool is_ipv4(const IpAddress& address) { return std::equal(kAnyIpv4.begin(), kAnyIpv4.begin() + 12, address.begin()); }

bool is_loopback(const IpAddress& address) {
  return address == kLoopbackIpv6 || (is_ipv4(address) && address[12] == 127);
}

bool is_reached_by_loopback(const IpAddress& address) {
  return address == kAnyIpv4 || address == kAnyIpv6 || is_loopback(address);
}

// Where a connection to `host` goes. Empty: that is known to a resolver.
std::vector<IpAddress> addresses_of(const std::string& host) {
  if (host == "localhost") return {kLoopbackIpv4, kLoopbackIpv6};
  IpAddress out = kAnyIpv4;
  if (in_addr v4{}; ::inet_aton(host.c_str(), &v4) != 0) {
    std::memcpy(out.data() + 12, &v4, sizeof v4);
  } else if (::inet_pton(AF_INET6, host.c_str(), out.data()) != 1) {
    return {};
  }
  if (out == kAnyIpv4) return {kLoopbackIpv4};
  if (out == kAnyIpv6) return {kLoopbackIpv6};
  return {out};
}

Result<std::vector<IpAddress>> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return fail(io_error("cannot read", "the addresses of this machine", errno));
  std::vector<IpAddress> out;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    IpAddress address = kAnyIpv4;
    if (one->ifa_addr->sa_family == AF_INET) {
      sockaddr_in v4{};
      std::memcpy(&v4, one->ifa_addr, sizeof v4);
      std::memcpy(address.data() + 12, &v4.sin_addr, sizeof v4.sin_addr);
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 v6{};
      std::memcpy(&v6, one->ifa_addr, sizeof v6);
      std::memcpy(address.data(), &v6.sin6_addr, address.size());
    } else {
      continue;
    }
    out.push_back(address);
  }
  ::freeifaddrs(first);
  return out;
}

// Those of `all` that take connections to `to`: as long as one listens at the address itself, none goes to those at all addresses.
// One of IPv6 at all addresses may take IPv4 as well, unless one of IPv4 does.
std::vector<Listener> takers(const std::vector<Listener>& all, const IpAddress& to) {
  const auto ways = is_ipv4(to) ? std::vector{to, kAnyIpv4, kAnyIpv6} : std::vector{to, kAnyIpv6};
  for (const IpAddress& at : ways) {
    std::vector<Listener> out;
    std::ranges::copy_if(all, std::back_inserter(out), [&](const Listener& one) { return one.address == at; });
    if (!out.empty()) return out;
  }
  return {};
}

}  // namespace

Result<std::vector<Listener>> listeners_in(std::string_view table, std::uint16_t port) {
  std::vector<Listener> out;
  std::istringstream lines{std::string(table)};
  TRY(add_listeners(lines, port, out));
  return out;
}

bool is_address(const std::string& host) { return !addresses_of(host).empty(); }

Result<bool> is_own_address(const std::string& host) {
  const std::vector<IpAddress> addresses = addresses_of(host);
  if (std::ranges::any_of(addresses, is_loopback)) return true;
  const std::vector<IpAddress> own = TRY(interface_addresses());
  return std::ranges::any_of(addresses, [&](const IpAddress& one) { return std::ranges::count(own, one) != 0; });
}

Result<std::vector<Listener>> listeners_at(const std::string& host, std::uint16_t port) {
  std::vector<Listener> all;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    if (!file && errno == ENOENT) continue;  // a kernel without that family
    if (!file) return fail(io_error("cannot read", table, errno));
    TRY(add_listeners(file, port, all));
  }
  const std::vector<IpAddress> addresses = addresses_of(host);
  std::vector<Listener> out;
  for (const IpAddress& to : addresses) std::ranges::copy(takers(all, to), std::back_inserter(out));
  if (addresses.empty()) {
    std::ranges::copy_if(all, std::back_inserter(out),
                         [](const Listener& one) { return is_reached_by_loopback(one.address); });
  }
  return out;
}

}  // namespace llorch::base
