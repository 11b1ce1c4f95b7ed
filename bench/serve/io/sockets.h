#pragma once
// Raw non-blocking loopback sockets under epoll: the bench's own ends must cost little beside what they measure.
#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace llorch::bench {

// CLOCK_MONOTONIC, the same in every process of the machine.
std::int64_t now_ns();

// User and system time of this process so far.
double cpu_seconds();

// What cannot go on: prints and exits with 1.
[[noreturn]] void fail(std::string_view what);

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

Fd listen_on_loopback(std::uint16_t& port);  // the kernel chooses the port
Fd accept_from(const Fd& listener);          // get() < 0: nobody waits
Fd connect_to_loopback(std::uint16_t port);

// "http://127.0.0.1:8080/x" or "127.0.0.1:8080" -> 8080
std::uint16_t port_of(std::string_view url);

// What the peer sent. False: it closed. The view holds until the next call of any thread's read_some().
bool read_some(const Fd& fd, std::string_view& bytes, bool& drained);
// From now on the kernel notes when bytes arrive in this socket.
void note_arrivals(const Fd& fd);
// When the newest of the bytes that read_some() gave last had arrived, on now_ns()'s clock; 0 if the kernel did not say,
// as for what came when it had just been asked to. REQUIRES note_arrivals().
std::int64_t arrived_ns();
// Sends what the kernel takes of out[sent..]; clears both when all is gone. False: the peer is gone.
bool send_some(const Fd& fd, std::string& out, std::size_t& sent);

// Edge-triggered for both directions, registered once per socket.
class Poller {
 public:
  Poller();
  void add(const Fd& fd, void* owner);
  // At most until `until_ns`; at once if that is past.
  std::span<const epoll_event> wait(std::int64_t until_ns);

 private:
  Fd epoll_;
  std::array<epoll_event, 512> events_{};
};

}  // namespace llorch::bench
