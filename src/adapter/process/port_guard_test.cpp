#include "adapter/process/port_guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

namespace llorch::adapter::process {
namespace {

enum class Begin { kListening, kBound };

// A socket that listens, or has its place and will. `host`: an address of either family. At a given port it takes connections of its
// family alone.
class Listening {
 public:
  explicit Listening(const std::string& host = "127.0.0.1", std::uint16_t port = 0, Begin begin = Begin::kListening) {
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    const bool is_v6 = host.find(':') != std::string::npos;
    v4.sin_family = AF_INET;
    v6.sin6_family = AF_INET6;
    v4.sin_port = v6.sin6_port = htons(port);
    inet_pton(is_v6 ? AF_INET6 : AF_INET, host.c_str(),
              is_v6 ? static_cast<void*>(&v6.sin6_addr) : static_cast<void*>(&v4.sin_addr));
    fd_ = ::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int alone = port != 0 ? 1 : 0;
    if (is_v6) ::setsockopt(fd_, IPPROTO_IPV6, IPV6_V6ONLY, &alone, sizeof alone);
    auto* address = is_v6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
    socklen_t size = is_v6 ? sizeof v6 : sizeof v4;
    is_bound_ = ::bind(fd_, address, size) == 0 && ::getsockname(fd_, address, &size) == 0;
    if (begin == Begin::kListening) listen();
    port_ = ntohs(is_v6 ? v6.sin6_port : v4.sin_port);
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void listen() { listens_ = is_bound_ && ::listen(fd_, 8) == 0; }
  bool is_bound() const { return is_bound_; }
  bool listens() const { return listens_; }
  std::uint16_t port() const { return port_; }

 private:
  int fd_ = -1;
  bool is_bound_ = false, listens_ = false;
  std::uint16_t port_ = 0;
};

// Whether this machine can listen there at all: not every one has IPv6.
bool is_there(const std::string& host) { return host.find(':') == std::string::npos || Listening("::1").listens(); }

// A process that does `first` and then nothing until it is killed.
class Child {
 public:
  explicit Child(const std::function<void()>& first) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      first();
      [[maybe_unused]] const ssize_t told = ::write(ends[1], "x", 1);
      for (;;) ::pause();
    }
    char byte = 0;
    ::close(ends[1]);
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    ::close(ends[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST(PortGuard, AnEngineAndItsDescendantsMayListen) {
  Listening socket;
  ASSERT_TRUE(socket.listens());
  PortGuard guard({.place = {"127.0.0.1", socket.port()}, .pid = ::getpid()});
  EXPECT_EQ(guard.look().value(), PortState::kEngine);
  EXPECT_EQ(guard.look().value(), PortState::kEngine);
  {
    // The process that listens is a child of a child of the one that was started.
    const Child holder([&] {
      if (::fork() == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) ::pause();
      }
      socket.close();
    });
    socket.close();
    PortGuard of_descendant({.place = {"127.0.0.1", socket.port()}, .pid = ::getpid()});
    EXPECT_EQ(of_descendant.look().value(), PortState::kEngine);
    EXPECT_EQ(PortGuard({.place = {"127.0.0.1", socket.port()}, .pid = holder.pid()}).look().value(),
              PortState::kEngine);
  }
}

TEST(PortGuard, AFreePort) {
  Listening socket;
  socket.close();
  EXPECT_EQ(PortGuard({.place = {"127.0.0.1", socket.port()}, .pid = ::getpid()}).look().value(), PortState::kFree);
}

// Whom a connection to `host` reaches if `listener` is the only one there.
TEST(PortGuard, SomebodyElseMayNotListenWhereTheEngineIsAsked) {
  const struct {
    const char* host;
    const char* listener;
    bool is_reached;
  } cases[] = {
      {"127.0.0.1", "127.0.0.1", true},
      {"127.0.0.1", "0.0.0.0", true},
      {"127.0.0.1", "::", true},
      {"127.0.0.1", "::ffff:127.0.0.1", true},
      {"127.0.0.1", "::ffff:0.0.0.0", true},
      {"127.0.0.1", "127.0.0.2", false},
      {"127.0.0.1", "::ffff:127.0.0.2", false},
      {"127.0.0.1", "::1", false},
      {"127.1", "127.0.0.1", true},
      {"::ffff:127.0.0.1", "127.0.0.1", true},
      {"0.0.0.0", "127.0.0.1", true},
      {"127.0.0.2", "127.0.0.2", true},
      {"127.0.0.2", "127.0.0.1", false},
      {"::1", "::1", true},
      {"::1", "::", true},
      {"::1", "127.0.0.1", false},
      {"::1", "0.0.0.0", false},
      {"::", "::1", true},
      {"localhost", "127.0.0.1", true},
      {"localhost", "::1", true},
      {"localhost", "0.0.0.0", true},
      {"localhost", "::", true},
      {"localhost", "127.0.0.2", false},
      {"engine.test", "127.1.2.3", true},  // only a resolver knows
      {"engine.test", "::1", true},
  };
  for (const auto& [host, listener, is_reached] : cases) {
    SCOPED_TRACE(std::string(listener) + " for " + host);
    Listening socket(listener);
    if (!is_there(listener)) continue;
    ASSERT_TRUE(socket.listens());
    const Child engine([&] { socket.close(); });
    const auto seen = PortGuard({.place = {host, socket.port()}, .pid = engine.pid()}).look();
    if (!is_reached) {
      ASSERT_TRUE(seen) << seen.error().message;
      EXPECT_EQ(*seen, PortState::kFree);
      continue;
    }
    ASSERT_FALSE(seen);
    EXPECT_EQ(seen.error().code, base::ErrorCode::kWorkerStartFailed);
    EXPECT_NE(seen.error().message.find("process " + std::to_string(::getpid()) + " ("), std::string::npos)
        << seen.error().message;
  }
}

// Any user may take the port at an address that nobody asks: that is no reason to end an engine.
TEST(PortGuard, SomebodyBesideTheEngineMayListenWhereNobodyAsks) {
  const struct {
    const char* host;
    const char* engine;
    const char* beside;
    bool is_reached;
  } cases[] = {
      {"127.0.0.1", "127.0.0.1", "127.1.2.3", false}, {"127.0.0.1", "127.0.0.1", "::1", false},
      {"127.0.0.1", "127.0.0.1", "::", false},  // of IPv6 alone, or it could not listen
      {"127.0.0.1", "0.0.0.0", "::", false},          {"::1", "::1", "0.0.0.0", false},
      {"localhost", "127.0.0.1", "127.1.2.3", false}, {"localhost", "127.0.0.1", "::1", true},
      {"localhost", "127.0.0.1", "::", true},         {"localhost", "::1", "127.0.0.1", true},
      {"localhost", "::1", "0.0.0.0", true},
  };
  for (const auto& [host, at, beside, is_reached] : cases) {
    SCOPED_TRACE(std::string(beside) + " beside " + at + " for " + host);
    if (!is_there(at) || !is_there(beside)) continue;
    // A port that is free at one address may be somebody's at the other.
    std::unique_ptr<Listening> engines, other;
    for (int tries = 0; tries < 100 && !(other && other->is_bound()); ++tries) {
      engines = std::make_unique<Listening>(at);
      other = std::make_unique<Listening>(beside, engines->port(), Begin::kBound);
    }
    const Listening& socket = *engines;
    ASSERT_TRUE(socket.listens() && other->is_bound());
    const Child engine([&] { other->close(); });
    PortGuard guard({.place = {host, socket.port()}, .pid = engine.pid()});
    EXPECT_EQ(guard.look().value(), PortState::kEngine);
    other->listen();
    ASSERT_TRUE(other->listens());
    EXPECT_EQ(guard.look().has_value(), !is_reached);
  }
}

TEST(PortGuard, AContainersPortIsPublishedForIt) {
  Listening socket;
  const Child engine([&] { socket.close(); });
  PortGuard guard({.place = {"127.0.0.1", socket.port()}, .pid = engine.pid(), .in_container = true});
  EXPECT_EQ(guard.look().value(), PortState::kEngine);
  socket.close();
  EXPECT_EQ(guard.look().value(), PortState::kEngine);  // the kernel may publish it
  if (::geteuid() != 0) GTEST_SKIP() << "only root has processes of other users";
  const Child stranger([&] {
    ASSERT_EQ(::setresuid(12345, 12345, 12345), 0);
    static const Listening taken("127.0.0.1", socket.port());
    ASSERT_TRUE(taken.listens());
  });
  const auto seen = guard.look();
  ASSERT_FALSE(seen);
  EXPECT_NE(seen.error().message.find("user 12345"), std::string::npos) << seen.error().message;
}

TEST(PortGuard, PlacesAndPrograms) {
  const auto is = [](std::string_view endpoint, std::string_view host, int port) {
    const Place place = place_of(endpoint);
    return place.host == host && place.port == port;
  };
  EXPECT_TRUE(is("http://127.0.0.1:8123/v1", "127.0.0.1", 8123));
  EXPECT_TRUE(is("grpc://[::1]:8001", "::1", 8001));
  EXPECT_TRUE(is("http://localhost", "localhost", 80));
  EXPECT_TRUE(is("localhost", "", 0));
  EXPECT_TRUE(starts_container("/usr/bin/podman") && starts_container("docker"));
  EXPECT_FALSE(starts_container("/opt/docker/llama-server"));
}

}  // namespace
}  // namespace llorch::adapter::process
