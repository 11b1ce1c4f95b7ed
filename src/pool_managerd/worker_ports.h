#pragma once
// The ports that workers listen on where the operator has named a range: a firewall in front of the node lets those through.
#include <cstdint>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/result.h"
#include "config/port_range.h"

namespace llorch::pool_managerd {

// Not thread-safe.
class WorkerPorts {
 public:
  // `bind_address`: an IP address without brackets, or localhost.
  WorkerPorts(std::string bind_address, std::optional<config::PortRange> range);

  // A socket that listens at the next port of the range that nobody has. It is nobody else's from then on, so that another pool with this
  // range passes it over; connections wait there until a worker serves them. A negative descriptor: there is no range. Errors:
  // PORT_IN_USE, every port is taken, with `reason` WORKER_PORTS_IN_USE and `worker_ports`; CONFIG_INVALID, IO_ERROR.
  base::Result<base::Descriptor> take();

 private:
  const std::string bind_address_;
  const std::optional<config::PortRange> range_;
  // Of the range. The port of a worker that has just left comes last: who still calls that worker does not reach another one.
  std::uint16_t next_ = 0;
};

}  // namespace llorch::pool_managerd
