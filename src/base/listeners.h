#pragma once
// Whose TCP sockets listen on a port of this machine, as the kernel tells everybody.
#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::base {

struct Listener {
  uid_t uid = 0;
  ino_t inode = 0;
};

// Those that a connection to a loopback address at `port` may reach, of IPv4 and IPv6, in this network namespace. Errors: IO_ERROR.
Result<std::vector<Listener>> loopback_listeners(std::uint16_t port);
// Those in the text of /proc/net/tcp or tcp6. Lines that are none are skipped.
std::vector<Listener> loopback_listeners_in(std::string_view table, std::uint16_t port);

}  // namespace llorch::base
