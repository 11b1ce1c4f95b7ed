#include "base/listeners.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace llorch::base {
namespace {

constexpr std::string_view kHead =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

std::string line(std::string_view local, std::string_view state, int uid) {
  return "   0: " + std::string(local) + " 00000000:0000 " + std::string(state) +
         " 00000000:00000000 00:00000000 00000000 " + std::to_string(uid) + " 0 4711 1 0 100 0 0 10 0\n";
}

TEST(Listeners, AreReadFromTheKernelsTable) {
  const std::string zeros(24, '0');
  const std::string table = std::string(kHead) + line("0100007F:1F90", "0A", 1) + line("0100000A:1F90", "0A", 2) +
                            line("0100007F:1F91", "0A", 3) +                          // another port
                            line("0100007F:1F90", "01", 4) +                          // a connection
                            line(zeros + "01000000:1F90", "0A", 5) +                  // ::1
                            line("0000000000000000FFFF00000100007F:1F90", "0A", 6) +  // ::ffff:127.0.0.1
                            "nonsense\n";
  std::vector<uid_t> users;
  for (const Listener& one : listeners_in(table, 8080).value()) users.push_back(one.uid);
  EXPECT_EQ(users, (std::vector<uid_t>{1, 2, 5, 6}));
  const auto all = listeners_in(table, 8080).value();
  EXPECT_EQ(all[0].address, all[3].address);
  const auto unplaced = listeners_in(table + line("0100007:1F90", "0A", 7), 8080);
  ASSERT_FALSE(unplaced);
  EXPECT_EQ(unplaced.error().code, ErrorCode::kIoError);
}

TEST(Listeners, OwnAddressesAreThoseOfTheMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"}) {
    EXPECT_TRUE(is_own_address(host).value()) << host;
  }
  for (const char* host : {"203.0.113.9", "2001:db8::1", "::ffff:203.0.113.9", "no-address.invalid"}) {
    EXPECT_FALSE(is_own_address(host).value()) << host;
  }
  EXPECT_TRUE(is_address("10.0.0.5"));
  EXPECT_FALSE(is_address("no-address.invalid"));
  // What packets to elsewhere would be sent from, where there is a way.
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{}, from{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  ::inet_pton(AF_INET, "203.0.113.9", &to.sin_addr);
  socklen_t size = sizeof from;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&from), &size) == 0) {
    char text[INET_ADDRSTRLEN];
    const std::string own = ::inet_ntop(AF_INET, &from.sin_addr, text, sizeof text);
    EXPECT_TRUE(is_own_address(own).value()) << own;
    EXPECT_TRUE(is_own_address("::ffff:" + own).value()) << own;
  }
  ::close(fd);
}

TEST(Listeners, AreSeenAsTheyComeAndGo) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_TRUE(listeners_at("127.0.0.1", ntohs(address.sin_port)).value().empty()) << "it does not listen yet";
  ASSERT_EQ(::listen(fd, 1), 0);
  const auto found = listeners_at("127.0.0.1", ntohs(address.sin_port)).value();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].uid, ::geteuid());
  EXPECT_EQ(listeners_at("localhost", ntohs(address.sin_port)).value().size(), 1U);
  EXPECT_TRUE(listeners_at("127.0.0.2", ntohs(address.sin_port)).value().empty())
      << "a connection does not reach it there";
  EXPECT_TRUE(listeners_at("::1", ntohs(address.sin_port)).value().empty());
  ::close(fd);
}

}  // namespace
}  // namespace llorch::base
