#include "orchestratord/store/testing/postgres_proxy.h"

#include <endian.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/assert.h"

namespace llorch::orchestratord::store::testing {
namespace {

constexpr std::string_view kSocketName = ".s.PGSQL.5432";
constexpr std::string_view kSync{"S\0\0\0\4", 5};  // the message that ends a round trip

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT(path.size() < sizeof address.sun_path, "path={}", path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Empty: closed.
std::string receive(int fd) {
  std::array<char, 65536> buffer;
  const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
  return n > 0 ? std::string(buffer.data(), static_cast<std::size_t>(n)) : std::string();
}

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

int listen_at(const std::string& path) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path);
  ASSERT(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "errno={}", errno);
  ASSERT(::listen(listener, 8) == 0);
  return listener;
}

// A message of the server: its kind, its length, what it says.
std::string message(char kind, std::string_view body) {
  const std::uint32_t length = htobe32(static_cast<std::uint32_t>(body.size() + sizeof length));
  std::string out(1, kind);
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  return out.append(body);
}
std::string parameter(std::string_view name, std::string_view value) {
  std::string body(name);
  body.append(1, '\0').append(value).append(1, '\0');
  return message('S', body);
}

}  // namespace

SilentServer::SilentServer(const std::filesystem::path& directory) : listener_(listen_at(directory / kSocketName)) {
  thread_ = std::thread([this] {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    (void)receive(client);
    (void)send_all(client, message('R', std::string(4, '\0')) + parameter("server_version", "15.0") +
                               parameter("default_transaction_read_only", "off") + parameter("in_hot_standby", "off") +
                               message('Z', "I"));
    (void)receive(client);
    ::close(client);
  });
}

SilentServer::~SilentServer() {
  ::shutdown(listener_, SHUT_RDWR);
  thread_.join();
  ::close(listener_);
}

PostgresProxy::PostgresProxy(const std::filesystem::path& directory, const std::filesystem::path& server_directory)
    : listen_path_(directory / kSocketName),
      server_path_(server_directory / kSocketName),
      listener_(listen_at(listen_path_)) {
  thread_ = std::thread([this] { run(); });
}

PostgresProxy::~PostgresProxy() {
  stop_ = true;
  thread_.join();
  ::close(listener_);
}

void PostgresProxy::lose(int round_trip, Loss loss) {
  loss_ = loss;
  round_trips_left_ = round_trip;
}

// One client at a time: a store has one connection.
void PostgresProxy::run() {
  while (!stop_) {
    pollfd p{.fd = listener_, .events = POLLIN, .revents = 0};
    if (::poll(&p, 1, 10) <= 0) continue;
    const int client = ::accept(listener_, nullptr, nullptr);
    if (client >= 0 && !closed_) relay(client);
    ::close(client);
  }
}

void PostgresProxy::relay(int client) {
  const int server = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(server_path_);
  bool alive = ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  while (alive && !stop_) {
    std::array<pollfd, 2> fds{pollfd{.fd = client, .events = POLLIN, .revents = 0},
                              pollfd{.fd = server, .events = POLLIN, .revents = 0}};
    if (::poll(fds.data(), fds.size(), 10) <= 0) continue;
    if (fds[1].revents != 0) {
      const std::string answer = receive(server);
      alive = !answer.empty() && send_all(client, answer);
    }
    if (!alive || fds[0].revents == 0) continue;
    const std::string request = receive(client);
    const bool last = request.ends_with(kSync) && round_trips_left_ > 0 && --round_trips_left_ == 0;
    if (last) closed_ = true;
    if (last && loss_ == Loss::kRequest) break;
    alive = !request.empty() && send_all(server, request);
    if (last) break;
  }
  if (closed_ && loss_ == Loss::kAnswer) (void)receive(server);  // the server is done when it has answered
  ::close(server);
}

}  // namespace llorch::orchestratord::store::testing
