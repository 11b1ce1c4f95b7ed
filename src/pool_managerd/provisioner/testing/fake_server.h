#pragma once
// A server of models that answers as a test says.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "pool_managerd/provisioner/web/web.h"

namespace llorch::pool_managerd::provisioner {

// Answers one request after the other, each on a connection of its own.
class FakeServer {
 public:
  struct Answer {
    int status = 200;
    std::string headers = {};  // lines
    std::string body = {};
    std::size_t sent_max = std::string::npos;  // bytes of the body, behind which the connection ends
  };
  // Of a path with its query. `range`: what follows "bytes="; empty: all is asked for.
  using Answers = std::function<Answer(const std::string& path, const std::string& range)>;

  explicit FakeServer(Answers answers) : answers_(std::move(answers)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_TRUE(::bind(listening_, any, size) == 0 && ::listen(listening_, 64) == 0 &&
                ::getsockname(listening_, any, &size) == 0);
    url_ = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;
  ~FakeServer() {
    ::shutdown(listening_, SHUT_RDWR);
    thread_.join();
    ::close(listening_);
  }

  const std::string& url() const { return url_; }
  int requests() const { return requests_; }

  static Answer part_of(const std::string& content, const std::string& range, const std::string& headers = {}) {
    if (range.empty()) return {.headers = headers, .body = content};
    const std::size_t begin = std::stoul(range), end = std::stoul(range.substr(range.find('-') + 1)) + 1;
    return {.status = 206,
            .headers = headers + fmt::format("Content-Range: bytes {}-{}/{}\r\n", begin, end - 1, content.size()),
            .body = content.substr(begin, end - begin)};
  }

 private:
  void serve() {
    for (int fd = 0; (fd = ::accept(listening_, nullptr, nullptr)) >= 0; ::close(fd)) {
      std::string request;
      char piece[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = ::recv(fd, piece, sizeof piece, 0);
        if (got <= 0) break;
        request.append(piece, static_cast<std::size_t>(got));
      }
      const std::size_t path = request.find(' ') + 1, range = request.find("Range: bytes=");
      if (request.find("\r\n\r\n") == std::string::npos) continue;
      ++requests_;
      const Answer answer = answers_(
          request.substr(path, request.find(' ', path) - path),
          range == std::string::npos ? "" : request.substr(range + 13, request.find('\r', range) - range - 13));
      const std::string reply = fmt::format("HTTP/1.1 {} X\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n",
                                            answer.status, answer.body.size(), answer.headers) +
                                answer.body.substr(0, answer.sent_max);
      for (std::size_t at = 0; at < reply.size();) {
        const ssize_t sent = ::send(fd, reply.data() + at, reply.size() - at, MSG_NOSIGNAL);
        if (sent <= 0) break;  // whoever asked has gone
        at += static_cast<std::size_t>(sent);
      }
    }
  }

  const Answers answers_;
  const int listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string url_;
  std::atomic<int> requests_ = 0;
  std::thread thread_;
};

inline const web::WebOptions kOnlyHere{.egress = {.enabled = true, .allowed_hosts = {"127.0.0.1"}}, .attempts_max = 3};

}  // namespace llorch::pool_managerd::provisioner
