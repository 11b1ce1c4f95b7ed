#include "pool_managerd/worker_ports.h"

#include <fmt/core.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace llorch::pool_managerd {
namespace {

using base::ErrorCode;

// With errno set where it is none.
base::Descriptor listen_at(const addrinfo& address) {
  base::Descriptor out(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  // Connections of a worker that has left do not keep its port from the next one.
  const bool listens = out.get() >= 0 && ::setsockopt(out.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       ::bind(out.get(), address.ai_addr, address.ai_addrlen) == 0 &&
                       ::listen(out.get(), SOMAXCONN) == 0;
  if (listens) return out;
  const int error = errno;
  { const base::Descriptor closed(std::move(out)); }
  errno = error;
  return base::Descriptor(-1);
}

}  // namespace

WorkerPorts::WorkerPorts(std::string bind_address, std::optional<config::PortRange> range)
    : bind_address_(bind_address == "localhost" ? "127.0.0.1" : std::move(bind_address)),
      range_(range),
      next_(range ? range->first : 0) {}

base::Result<base::Descriptor> WorkerPorts::take() {
  if (!range_) return base::Descriptor(-1);
  addrinfo wanted{};
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  wanted.ai_socktype = SOCK_STREAM;
  for (int left = range_->last - range_->first + 1; left > 0; --left) {
    const std::uint16_t port =
        std::exchange(next_, next_ == range_->last ? range_->first : static_cast<std::uint16_t>(next_ + 1));
    addrinfo* found = nullptr;
    if (::getaddrinfo(bind_address_.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) {
      return base::fail(ErrorCode::kConfigInvalid, bind_address_ + " is no IP address that a worker could listen at");
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> address(found, ::freeaddrinfo);
    base::Descriptor listener = listen_at(*address);
    if (listener.get() >= 0) return listener;
    if (errno != EADDRINUSE) {
      return base::fail(ErrorCode::kIoError, fmt::format("a worker cannot listen at {} port {}: {}", bind_address_,
                                                         port, std::strerror(errno)));
    }
  }
  const std::string range = fmt::format("{}-{}", range_->first, range_->last);
  return base::fail(base::Error{
      ErrorCode::kPortInUse,
      fmt::format("every port of pool-managerd.worker_ports ({}) is taken, and a worker needs "
                  "one of its own; name more ports there, or stop what listens on them "
                  "(`ss -ltnp` names it)",
                  range),
      {}}.with("reason", std::string("WORKER_PORTS_IN_USE"))
                        .with("worker_ports", range));
}

}  // namespace llorch::pool_managerd
