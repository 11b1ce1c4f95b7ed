#pragma once
// Connections of a client between two requests, by the server they lead to. Internal to net.
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/asio_types.h"

namespace llorch::net {

// Used on the io thread; destroyed anywhere.
class IdleConnections : public std::enable_shared_from_this<IdleConnections> {
 public:
  explicit IdleConnections(const Executor& executor) : timer_(executor) {}

  // One that its server has not closed; the one used last, so that those a burst opened become too old.
  std::optional<TcpSocket> take(const std::string& host_field);
  // REQUIRES: nothing is under way on it, and its response was read to its last byte.
  void give(const std::string& host_field, TcpSocket socket);

 private:
  struct Idle {
    TcpSocket socket;
    std::chrono::steady_clock::time_point since;
  };
  void watch();
  void drop_old();

  SteadyTimer timer_;
  bool watched_ = false;
  std::map<std::string, std::vector<Idle>> idle_;  // oldest first
};

}  // namespace llorch::net
