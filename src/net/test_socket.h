#pragma once
// A plain blocking TCP client for tests: sends bytes no proper client would.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace llorch::net {

class TestSocket {
 public:
  explicit TestSocket(std::uint16_t port, int receive_buffer_bytes = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  TestSocket(TestSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~TestSocket() { close(); }

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // False if the peer has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  // Reads until `stop` is in what was read, the peer closes, or nothing comes for 10 s.
  std::string read_until(std::string_view stop) {
    std::string all;
    while (all.find(stop) == std::string::npos) {
      const std::string some = read_some();
      if (some.empty()) break;
      all += some;
    }
    return all;
  }
  std::string read_all() { return read_until("\x01never sent\x01"); }
  // What is there already; nothing of a connection that was reset.
  std::string read_now() {
    std::string buffer(65536, '\0');
    const ssize_t n = recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    buffer.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return buffer;
  }
  std::string read_some(std::size_t bytes_max = 65536) {
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, 10'000) <= 0) {
      ADD_FAILURE() << "nothing to read for 10 s";
      return {};
    }
    std::string buffer(bytes_max, '\0');
    const ssize_t n = recv(fd_, buffer.data(), buffer.size(), 0);
    buffer.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return buffer;
  }

 private:
  int fd_;
};

}  // namespace llorch::net
