#include "pool_managerd/worker_ports.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "base/error_detail.h"

namespace llorch::pool_managerd {
namespace {

std::uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

// Of so many ports that nobody has, below those that the system gives to whoever does not name one.
config::PortRange free_range(std::uint16_t count) {
  for (std::uint16_t first = static_cast<std::uint16_t>(20'000 + ::getpid() % 8'000);; ++first) {
    const config::PortRange range{first, static_cast<std::uint16_t>(first + count - 1)};
    WorkerPorts ports("127.0.0.1", range);
    std::vector<base::Descriptor> held;
    while (held.size() < count) {
      auto listener = ports.take();
      if (!listener) break;
      held.push_back(std::move(*listener));
    }
    if (held.size() == count) return range;
  }
}

TEST(WorkerPorts, WithoutARangeTheSystemChooses) {
  WorkerPorts ports("127.0.0.1", std::nullopt);
  EXPECT_LT(ports.take().value().get(), 0);
}

// Whoever comes second passes over what the first one has, and nobody is given what is taken.
TEST(WorkerPorts, TwoPoolsShareARangeAndAFullOneRefuses) {
  const config::PortRange range = free_range(3);
  WorkerPorts one("127.0.0.1", range), other("localhost", range);
  auto first = std::optional(one.take().value());
  const auto second = other.take();
  const auto third = one.take();
  ASSERT_TRUE(second && third);
  EXPECT_EQ(port_of(first->get()), range.first);
  EXPECT_EQ(port_of(second->get()), range.first + 1);
  EXPECT_EQ(port_of(third->get()), range.last);
  for (WorkerPorts* ports : {&one, &other, &one}) {
    const auto refused = ports->take();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kPortInUse);
    EXPECT_TRUE(base::has_detail(refused.error(), "reason", "WORKER_PORTS_IN_USE"));
    EXPECT_NE(refused.error().message.find("pool-managerd.worker_ports (" + std::to_string(range.first) + "-"),
              std::string::npos)
        << refused.error().message;
  }
  first.reset();
  EXPECT_EQ(port_of(other.take().value().get()), range.first);
}

TEST(WorkerPorts, ThePortOfAWorkerThatHasJustLeftComesLast) {
  const config::PortRange range = free_range(3);
  WorkerPorts ports("127.0.0.1", range);
  for (const int at : {0, 1, 2, 0}) EXPECT_EQ(port_of(ports.take().value().get()), range.first + at);
}

TEST(WorkerPorts, AnAddressThatIsNotHereIsNoFullRange) {
  WorkerPorts elsewhere("192.0.2.1", config::PortRange{20'000, 20'001}), none("example.org", config::PortRange{1, 2});
  EXPECT_EQ(elsewhere.take().error().code, base::ErrorCode::kIoError);
  EXPECT_EQ(none.take().error().code, base::ErrorCode::kConfigInvalid);
}

}  // namespace
}  // namespace llorch::pool_managerd
