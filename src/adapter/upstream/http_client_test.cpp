#include "adapter/upstream/http_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
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
  int fd() const { return fd_; }

 private:
  int fd_;
  std::string url_;
};

// Says `words` on its first connection and reads there until the other side closes.
class AnsweringServer {
 public:
  explicit AnsweringServer(std::string words)
      : thread_([this, words = std::move(words)] {
          const int fd = ::accept(server_.fd(), nullptr, nullptr);
          char bytes[4096];
          EXPECT_GT(::read(fd, bytes, sizeof bytes), 0);
          EXPECT_EQ(::write(fd, words.data(), words.size()), static_cast<ssize_t>(words.size()));
          while (::read(fd, bytes, sizeof bytes) > 0) {
          }
          ::close(fd);
        }) {}
  AnsweringServer(const AnsweringServer&) = delete;
  AnsweringServer& operator=(const AnsweringServer&) = delete;
  ~AnsweringServer() { thread_.join(); }
  const std::string& url() const { return server_.url(); }

 private:
  const SilentServer server_;
  std::thread thread_;
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

// resume() hands over bytes that were kept. Whoever ends the transfer at these is still inside its callback, and it must be there after that.
TEST(HttpClient, ATransferMayBeCancelledByWhatItsResumptionTells) {
  const AnsweringServer server("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
  HttpClient client({});
  struct Seen {
    TransferId id{};
    int tellings = 0;
    std::weak_ptr<int> transfer;  // as long as its callbacks
    bool lived = false, gone = false;
    std::promise<void> paused, cancelled, looked;
  } seen;
  client.post([&] {
    auto lives = std::make_shared<int>();
    seen.transfer = lives;
    seen.id = client.start({.url = server.url()}, {.on_head = {},
                                                   .on_data =
                                                       [&client, &seen](std::string_view) {
                                                         HttpClient& c = client;  // a freed callback has no captures
                                                         Seen& s = seen;
                                                         if (++s.tellings == 1) {
                                                           s.paused.set_value();
                                                           return false;
                                                         }
                                                         c.cancel(s.id);
                                                         s.lived = !s.transfer.expired();
                                                         s.cancelled.set_value();
                                                         return true;
                                                       },
                                                   .on_end = [lives](const base::Result<>&) { ADD_FAILURE(); }});
  });
  seen.paused.get_future().wait();
  client.post([&] { client.resume(seen.id); });
  seen.cancelled.get_future().wait();
  client.post([&] {
    seen.gone = seen.transfer.expired();
    seen.looked.set_value();
  });
  seen.looked.get_future().wait();
  EXPECT_TRUE(seen.lived);
  EXPECT_TRUE(seen.gone) << "and it is closed behind that";
  EXPECT_EQ(seen.tellings, 2);
}

TEST(HttpClient, ATimerThatIsCancelledHoldsNothing) {
  HttpClient client({});
  auto held = std::make_shared<int>();
  std::promise<std::vector<long>> seen;
  std::promise<void> ran;
  client.post([&] {
    const auto never = client.start_timer(1'800'000, [held] { ADD_FAILURE(); });
    const auto soon = client.start_timer(1, [held] { ADD_FAILURE(); });
    std::vector<long> counts{held.use_count()};
    client.cancel(soon);
    counts.push_back(held.use_count());
    client.cancel(never);
    client.cancel(never);
    counts.push_back(held.use_count());
    client.start_timer(2, [&client, &ran, soon] {
      client.cancel(soon);
      ran.set_value();
    });
    seen.set_value(counts);
  });
  EXPECT_EQ(seen.get_future().get(), (std::vector<long>{3, 2, 1}));
  ran.get_future().wait();
}

TEST(HttpClient, NothingIsSentOnAConnectionThatIsRefused) {
  const SilentServer server;
  HttpClient client({});
  const auto reply = client.call({.url = server.url(), .bearer = "key", .may_send = [] { return false; }});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, base::ErrorCode::kIoError);
  const int connection = ::accept(server.fd(), nullptr, nullptr);
  char byte = 0;
  EXPECT_EQ(::read(connection, &byte, 1), 0) << "there was a connection, and it was closed";
  ::close(connection);
}

// Also on one that is used again.
TEST(HttpClient, EachRequestAsksWhetherItMayBeSent) {
  const AnsweringServer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  HttpClient client({});
  int asked = 0;
  const Call call{.url = server.url(), .may_send = [&asked] { return ++asked == 1; }};
  EXPECT_TRUE(client.call(call));
  EXPECT_FALSE(client.call(call));
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace llorch::adapter::upstream
