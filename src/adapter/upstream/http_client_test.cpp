#include "adapter/upstream/http_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

namespace llorch::adapter::upstream {
namespace {

// Takes connections and never says a word on them.
class SilentServer {
 public:
  SilentServer() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;
  ~SilentServer() { close(fd_); }
  const std::string& url() const { return url_; }

 private:
  int fd_;
  std::string url_;
};

TEST(HttpClient, ACallIsOverWhenTheClientIsStoppedMeanwhile) {
  const SilentServer server;
  HttpClient client({});
  auto answer = std::async(std::launch::async, [&] { return client.call({.url = server.url()}); });
  std::promise<void> begun;
  client.post([&] { begun.set_value(); });
  begun.get_future().wait();
  client.stop();
  const auto reply = answer.get();
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, base::ErrorCode::kShuttingDown);
}

TEST(HttpClient, ACallOfAStoppedClientIsOverAtOnce) {
  HttpClient client({});
  client.stop();
  const auto reply = client.call({.url = "http://127.0.0.1:1"});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, base::ErrorCode::kShuttingDown);
}

// However the two meet.
TEST(HttpClient, NoCallOutlivesAStop) {
  const SilentServer server;
  for (int round = 0; round < 200; ++round) {
    HttpClient client({});
    std::vector<std::future<base::Result<Reply>>> answers;
    for (int i = 0; i < 4; ++i) {
      answers.push_back(std::async(std::launch::async, [&] { return client.call({.url = server.url()}); }));
    }
    client.stop();
    for (auto& answer : answers) EXPECT_EQ(answer.get().error().code, base::ErrorCode::kShuttingDown);
  }
}

}  // namespace
}  // namespace llorch::adapter::upstream
