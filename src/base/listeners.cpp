#include "base/listeners.h"

#include <fmt/core.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

#include "base/file.h"

namespace llorch::base {
namespace {

constexpr std::string_view kListening = "0A";

bool is_reached_by_loopback(std::string_view address) {
  constexpr std::string_view kMapped = "0000000000000000FFFF0000";
  if (address.size() == 32 && address.starts_with(kMapped)) address.remove_prefix(kMapped.size());
  const bool unspecified = address.find_first_not_of('0') == std::string_view::npos;
  // Words of four bytes, each as this machine's number: 127.0.0.1 is 0100007F, ::1 ends in 01000000.
  if (address.size() == 8) return unspecified || address.ends_with("7F");
  return unspecified || address == "00000000000000000000000001000000";
}

}  // namespace

// A line: "sl local remote state queues timer retransmits uid timeout inode".
std::vector<Listener> loopback_listeners_in(std::string_view table, std::uint16_t port) {
  std::vector<Listener> out;
  const std::string wanted = fmt::format(":{:04X}", port);
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits, timeout;
    Listener one;
    words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> one.uid >> timeout >> one.inode;
    if (!words || state != kListening || !local.ends_with(wanted)) continue;
    if (is_reached_by_loopback(std::string_view(local).substr(0, local.size() - wanted.size()))) out.push_back(one);
  }
  return out;
}

Result<std::vector<Listener>> loopback_listeners(std::uint16_t port) {
  std::vector<Listener> out;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    if (!file && errno == ENOENT) continue;  // a kernel without that family
    if (!file) return fail(io_error("cannot read", table, errno));
    std::ostringstream text;
    text << file.rdbuf();
    for (const Listener& one : loopback_listeners_in(text.str(), port)) out.push_back(one);
  }
  return out;
}

}  // namespace llorch::base
