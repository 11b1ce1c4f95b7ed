#pragma once
// Whose TCP sockets listen on a port of this machine, as the kernel tells everybody.
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::base {

// Of either family: one of IPv4 as ::ffff:a.b.c.d, as sockets of IPv6 spell it.
using IpAddress = std::array<std::uint8_t, 16>;

struct Listener {
  IpAddress address{};
  uid_t uid = 0;
  ino_t inode = 0;
};

// Whether `host` is an address, or localhost; a name else is known to a resolver. It has no brackets.
bool is_address(const std::string& host);
// Whether a connection to the address `host` stays on this machine: loopback, no address in particular, or one of an interface. Errors:
// IO_ERROR.
Result<bool> is_own_address(const std::string& host);
// Those that a connection to `host` at `port` reaches, in this network namespace: at the address itself, else at all addresses; of a
// name other than localhost, at every loopback address. `host` has no brackets. Errors: IO_ERROR.
Result<std::vector<Listener>> listeners_at(const std::string& host, std::uint16_t port);
// Those on `port` in the text of /proc/net/tcp or tcp6. Lines that are none are skipped. IO_ERROR: one has an address that is none.
Result<std::vector<Listener>> listeners_in(std::string_view table, std::uint16_t port);

}  // namespace llorch::base
