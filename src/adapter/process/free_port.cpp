#include "adapter/process/free_port.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace llorch::adapter::process {

base::Result<std::uint16_t> free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  const bool ok = fd >= 0 && ::bind(fd, raw, size) == 0 && ::getsockname(fd, raw, &size) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (ok) return ntohs(address.sin_port);
  return base::fail(base::ErrorCode::kIoError, fmt::format("no port for the engine: {}", std::strerror(error)));
}

}  // namespace llorch::adapter::process
