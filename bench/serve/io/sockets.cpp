#include "bench/serve/io/sockets.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace llorch::bench {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::int64_t ns_of(const timespec& time) { return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec; }

thread_local std::int64_t arrived_unix_ns = 0;  // of the newest bytes read

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return ns_of(now);
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void fail(std::string_view what) {
  fmt::print(stderr, "relay bench: {}\n", what);
  std::_Exit(1);
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Fd listen_on_loopback(std::uint16_t& port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (fd.get() < 0 || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail(fmt::format("cannot listen: {}", std::strerror(errno)));
  }
  port = ntohs(address.sin_port);
  return fd;
}

Fd accept_from(const Fd& listener) {
  Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.get() < 0 && !would_block() && errno != ECONNABORTED)
    fail(fmt::format("cannot accept: {}", std::strerror(errno)));
  if (fd.get() >= 0) send_at_once(fd.get());
  return fd;
}

Fd connect_to_loopback(std::uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) fail(fmt::format("cannot open a socket: {} (see `ulimit -n`)", std::strerror(errno)));
  const sockaddr_in address = loopback(port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno != EINPROGRESS) {
    fail(fmt::format("cannot connect: {}", std::strerror(errno)));
  }
  send_at_once(fd.get());
  return fd;
}

std::uint16_t port_of(std::string_view url) {
  const std::string text(url.substr(std::min(url.rfind(':') + 1, url.size())));
  const int port = std::atoi(text.c_str());
  if (port <= 0 || port > 65535) fail(fmt::format("{} names no port", url));
  return static_cast<std::uint16_t>(port);
}

bool read_some(const Fd& fd, std::string_view& bytes, bool& drained) {
  thread_local std::array<char, 64 << 10> buffer;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(timespec))> notes;
  iovec part{.iov_base = buffer.data(), .iov_len = buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = notes.data();
  message.msg_controllen = notes.size();
  const ssize_t n = ::recvmsg(fd.get(), &message, 0);
  if (n < 0 && would_block()) {
    bytes = {};
    drained = true;
    return true;
  }
  if (n <= 0) return false;
  arrived_unix_ns = 0;
  if (const cmsghdr* note = CMSG_FIRSTHDR(&message);
      note != nullptr && note->cmsg_level == SOL_SOCKET && note->cmsg_type == SCM_TIMESTAMPNS) {
    timespec arrived{};
    std::memcpy(&arrived, CMSG_DATA(note), sizeof arrived);
    arrived_unix_ns = ns_of(arrived);
  }
  bytes = {buffer.data(), static_cast<std::size_t>(n)};
  drained = bytes.size() < buffer.size();
  return true;
}

void note_arrivals(const Fd& fd) {
  const int on = 1;
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0) fail(std::strerror(errno));
}

std::int64_t arrived_ns() {
  if (arrived_unix_ns == 0) return 0;
  timespec unix_now{};
  ::clock_gettime(CLOCK_REALTIME, &unix_now);
  return now_ns() - (ns_of(unix_now) - arrived_unix_ns);
}

bool send_some(const Fd& fd, std::string& out, std::size_t& sent) {
  while (sent < out.size()) {
    const ssize_t n = ::send(fd.get(), out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
    if (n < 0) return would_block() || errno == ENOTCONN;
    sent += static_cast<std::size_t>(n);
  }
  out.clear();
  sent = 0;
  return true;
}

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

void Poller::add(const Fd& fd, void* owner) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = owner;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) fail(std::strerror(errno));
}

std::span<const epoll_event> Poller::wait(std::int64_t until_ns) {
  const std::int64_t left = std::max<std::int64_t>(0, until_ns - now_ns());
  const timespec timeout{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
  const int n = ::epoll_pwait2(epoll_.get(), events_.data(), static_cast<int>(events_.size()), &timeout, nullptr);
  if (n < 0 && errno != EINTR) fail(std::strerror(errno));
  return std::span(events_).first(static_cast<std::size_t>(std::max(n, 0)));
}

}  // namespace llorch::bench
