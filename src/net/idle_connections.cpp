#include "net/idle_connections.h"

#include <algorithm>

namespace llorch::net {
namespace {

using boost::system::error_code;

// Below the least that servers in use keep a connection without a request (5 s), so that a request never meets its end.
constexpr std::chrono::seconds kIdleMax{3};
constexpr std::size_t kIdlePerServerMax = 64;

// Neither closed by the server nor holding bytes that nobody asked for.
bool is_quiet(TcpSocket& socket) {
  char byte = 0;
  error_code error;
  socket.receive(boost::asio::buffer(&byte, 1), TcpSocket::message_peek, error);
  return error == boost::asio::error::would_block;
}

}  // namespace

std::optional<TcpSocket> IdleConnections::take(const std::string& host_field) {
  const auto found = idle_.find(host_field);
  if (found == idle_.end()) return std::nullopt;
  std::vector<Idle>& idle = found->second;
  std::optional<TcpSocket> socket;
  while (!socket && !idle.empty()) {
    if (is_quiet(idle.back().socket)) socket = std::move(idle.back().socket);
    idle.pop_back();
  }
  if (idle.empty()) idle_.erase(found);
  return socket;
}

void IdleConnections::give(const std::string& host_field, TcpSocket socket) {
  std::vector<Idle>& idle = idle_[host_field];
  if (idle.size() >= kIdlePerServerMax) return;
  idle.push_back({std::move(socket), std::chrono::steady_clock::now()});
  watch();
}

void IdleConnections::watch() {
  if (watched_) return;
  watched_ = true;
  timer_.expires_after(kIdleMax);
  timer_.async_wait([weak = weak_from_this()](const error_code& error) {
    if (const auto self = weak.lock(); self && !error) self->drop_old();
  });
}

void IdleConnections::drop_old() {
  watched_ = false;
  const auto kept_since = std::chrono::steady_clock::now() - kIdleMax;
  for (auto& [host_field, idle] : idle_) {
    const auto young = std::find_if(idle.begin(), idle.end(), [&](const Idle& i) { return i.since > kept_since; });
    idle.erase(idle.begin(), young);
  }
  std::erase_if(idle_, [](const auto& server) { return server.second.empty(); });
  if (!idle_.empty()) watch();
}

}  // namespace llorch::net
