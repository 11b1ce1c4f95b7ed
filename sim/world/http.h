#pragma once
// HTTP between simulated processes, down to the bytes: the real parsers read what the real writers wrote, and a write may
// arrive in any pieces, or not to its end. In the place of net::Client, by the rules of net/client.h.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/client.h"
#include "sim/kernel/network.h"

namespace llorch::sim {

struct World;

struct HttpRequest {
  std::string method, target, body;
};

// The server's side of one exchange; used in its process.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void respond(const net::Response& response) = 0;
  // 200 with events; then any number of write(), and end() unless the process dies.
  virtual void start_stream() = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void end() = 0;
  // Called at most once, if the client is gone before the end.
  virtual void on_broken(std::function<void()> fn) = 0;
};
using HttpReplyPtr = std::shared_ptr<HttpReply>;

// What listens at an address: a pool manager or a worker.
class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual Process& process() = 0;
  // In its process.
  virtual void serve(HttpRequest request, const HttpReplyPtr& reply) = 0;
};

// The client of one process; every URL leads to a pool or a worker. REQUIRES: the world and the process outlive it.
class HttpClient final : public net::Transport {
 public:
  HttpClient(World& world, Process& self) : world_(world), self_(self) {}
  void request(net::ClientRequest request, std::function<void(base::Result<net::Response>)> done) override;
  net::StreamHandle stream(net::ClientRequest request, net::StreamCallbacks callbacks) override;

 private:
  World& world_;
  Process& self_;
};

}  // namespace llorch::sim
