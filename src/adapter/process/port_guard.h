#pragma once
// Whether the port of an engine that was started here is that engine's. Between choosing a port and listening on it another user of this
// machine may listen there first, answer as the engine would, and be sent prompts.
#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace llorch::adapter::process {

enum class PortState { kFree, kEngine };

// Where an engine is asked.
struct Place {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};

// Used by one thread at a time.
class PortGuard {
 public:
  struct Options {
    Place place;
    pid_t pid = -1;  // of the engine; its descendants count as well
    // A container's port is published by the runtime: by its processes, which are no descendants, or by the kernel. Then it is enough that
    // no other user's process but root's listens.
    bool in_container = false;
  };
  explicit PortGuard(Options options) : options_(std::move(options)) {}

  // Looks at those listeners of this machine that a connection to the place reaches: at the host's own address, or else at all addresses.
  // If the host is a name other than localhost, at every loopback address as well. In a container kEngine also where there is none.
  // Errors: WORKER_START_FAILED (somebody else listens there, which the message names), IO_ERROR.
  base::Result<PortState> look();

 private:
  base::Result<PortState> look_once();

  const Options options_;
  std::set<ino_t> known_;  // sockets that were the engine's; one is nobody else's as long as it listens
};

// Of http(s)://host[:port][/path] or grpc(s)://...; port 0: it has none.
Place place_of(std::string_view endpoint);
// Whether a command starts a container.
bool starts_container(std::string_view program);

}  // namespace llorch::adapter::process
