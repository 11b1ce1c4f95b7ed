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

// A socket that listens. `host`: an address of either family.
class Listening {
 public:
  explicit Listening(const std::string& host = "127.0.0.1", std::uint16_t port = 0) {
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    const bool is_v6 = host.find(':') != std::string::npos;
    v4.sin_family = AF_INET;
    v6.sin6_family = AF_INET6;
    v4.sin_port = v6.sin6_port = htons(port);
    inet_pton(is_v6 ? AF_INET6 : AF_INET, host.c_str(),
              is_v6 ? static_cast<void*>(&v6.sin6_addr) : static_cast<void*>(&v4.sin_addr));
    fd_ = ::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto* address = is_v6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
    socklen_t size = is_v6 ? sizeof v6 : sizeof v4;
    listens_ = ::bind(fd_, address, size) == 0 && ::listen(fd_, 8) == 0 && ::getsockname(fd_, address, &size) == 0;
    port_ = ntohs(is_v6 ? v6.sin6_port : v4.sin_port);
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool listens() const { return listens_; }
  std::uint16_t port() const { return port_; }

 private:
  int fd_ = -1;
  bool listens_ = false;
  std::uint16_t port_ = 0;
};

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
  PortGuard guard({.port = socket.port(), .pid = ::getpid()});
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
    PortGuard of_descendant({.port = socket.port(), .pid = ::getpid()});
    EXPECT_EQ(of_descendant.look().value(), PortState::kEngine);
    EXPECT_EQ(PortGuard({.port = socket.port(), .pid = holder.pid()}).look().value(), PortState::kEngine);
  }
}

TEST(PortGuard, AFreePort) {
  Listening socket;
  socket.close();
  EXPECT_EQ(PortGuard({.port = socket.port(), .pid = ::getpid()}).look().value(), PortState::kFree);
}

TEST(PortGuard, SomebodyElseMayNot) {
  for (const char* host : {"127.0.0.1", "0.0.0.0", "127.1.2.3", "::1", "::", "::ffff:127.0.0.1"}) {
    Listening socket(host);
    if (!socket.listens() && std::string(host).find(':') != std::string::npos) continue;  // a machine without IPv6
    ASSERT_TRUE(socket.listens()) << host;
    const Child engine([&] { socket.close(); });
    const auto seen = PortGuard({.port = socket.port(), .pid = engine.pid()}).look();
    ASSERT_FALSE(seen) << host;
    EXPECT_EQ(seen.error().code, base::ErrorCode::kWorkerStartFailed);
    EXPECT_NE(seen.error().message.find("process " + std::to_string(::getpid()) + " ("), std::string::npos)
        << seen.error().message;
  }
}

// Also where the engine listens as well, at another address.
TEST(PortGuard, SomebodyBesideTheEngineMayNot) {
  Listening socket("127.0.0.1");
  ASSERT_TRUE(socket.listens());
  const Child engine([] {});
  PortGuard guard({.port = socket.port(), .pid = engine.pid()});
  EXPECT_EQ(guard.look().value(), PortState::kEngine);
  const Listening beside("127.1.2.3", socket.port());
  ASSERT_TRUE(beside.listens());
  EXPECT_FALSE(guard.look());
}

TEST(PortGuard, AContainersPortIsPublishedForIt) {
  Listening socket;
  const Child engine([&] { socket.close(); });
  PortGuard guard({.port = socket.port(), .pid = engine.pid(), .in_container = true});
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

TEST(PortGuard, PortsAndPrograms) {
  EXPECT_EQ(port_of("http://127.0.0.1:8123/v1"), 8123);
  EXPECT_EQ(port_of("grpc://[::1]:8001"), 8001);
  EXPECT_EQ(port_of("http://localhost"), 80);
  EXPECT_EQ(port_of("localhost"), 0);
  EXPECT_TRUE(starts_container("/usr/bin/podman") && starts_container("docker"));
  EXPECT_FALSE(starts_container("/opt/docker/llama-server"));
}

}  // namespace
}  // namespace llorch::adapter::process
