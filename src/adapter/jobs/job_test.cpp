// Jobs against an engine made of real sockets, and a reader that takes as much as the test says.
#include "adapter/jobs/job.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "wire/json.h"

namespace llorch::adapter::jobs {
namespace {

constexpr std::size_t kQueuedBytesMax = 256 << 10;  // of job.cpp

// Gives its nth connection the nth answer, in one write, and reads there until the other side closes.
class ScriptedEngine {
 public:
  explicit ScriptedEngine(std::vector<std::string> answers) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this, answers = std::move(answers)] {
      for (const std::string& answer : answers) answer_one(answer);
    });
  }
  ScriptedEngine(const ScriptedEngine&) = delete;
  ScriptedEngine& operator=(const ScriptedEngine&) = delete;
  // REQUIRES: every client of it has closed its connections.
  ~ScriptedEngine() {
    ::shutdown(fd_, SHUT_RDWR);  // ends accept()
    thread_.join();
    ::close(fd_);
  }
  const std::string& url() const { return url_; }

 private:
  void answer_one(const std::string& events) const {
    const int fd = ::accept(fd_, nullptr, nullptr);
    if (fd < 0) return;
    char bytes[4096];
    std::string request;
    while (!request.ends_with('}')) {
      const ssize_t count = ::read(fd, bytes, sizeof bytes);
      if (count <= 0) break;
      request.append(bytes, static_cast<std::size_t>(count));
    }
    const std::string answer =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nContent-Length: " +
        std::to_string(events.size()) + "\r\n\r\n" + events;
    EXPECT_EQ(::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL), static_cast<ssize_t>(answer.size()));
    while (::read(fd, bytes, sizeof bytes) > 0) {
    }
    ::close(fd);
  }

  int fd_;
  std::string url_;
  std::thread thread_;
};

class Reader final : public net::Exchange {
 public:
  bool respond(net::Response) override { return false; }
  bool respond_error(const base::Error& error) override {
    ADD_FAILURE() << error.message;
    return false;
  }
  bool start_stream(int, net::http::Headers) override { return true; }
  bool write(std::string_view bytes) override {
    const std::lock_guard lock(mutex_);
    stream_ += bytes;
    queued_bytes_ += bytes.size();
    return true;
  }
  bool end() override {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
    return true;
  }
  void abort() override {}
  std::size_t queued_bytes() const override {
    const std::lock_guard lock(mutex_);
    return queued_bytes_;
  }
  std::uint64_t sent_bytes() const override { return 0; }
  bool closed() const override { return false; }
  void on_drain(std::size_t, std::function<void()> fn) override {
    const std::lock_guard lock(mutex_);
    on_drain_ = std::move(fn);
    changed_.notify_all();
  }
  void on_close(std::function<void(net::CloseReason)>) override {}

  // Takes nothing until the job waits for it or has ended. Returns the bytes that were queued.
  std::size_t wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ || on_drain_; });
    return queued_bytes_;
  }
  void wait_for_end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
  }
  void take_all() {
    std::function<void()> fn;
    {
      const std::lock_guard lock(mutex_);
      queued_bytes_ = 0;
      fn = std::exchange(on_drain_, {});
    }
    if (fn) fn();
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  std::vector<net::sse::Event> events() const {
    const std::lock_guard lock(mutex_);
    net::sse::Decoder decoder;
    std::vector<net::sse::Event> out;
    EXPECT_TRUE(decoder.feed(stream_, out));
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string stream_;
  std::size_t queued_bytes_ = 0;
  std::function<void()> on_drain_;
  bool ended_ = false;
};

// A service in front of an engine with these answers.
struct Worker {
  explicit Worker(std::vector<std::string> answers) : engine(std::move(answers)) {}
  ~Worker() { client.stop(); }

  void execute(std::int64_t max_tokens) {
    service.execute({.job_id = "j", .prompt = "Once", .max_tokens = max_tokens}, base::CorrelationId("c"), reader);
  }

  ScriptedEngine engine;
  const base::ManualClock clock;
  base::SeededEntropy entropy{1};
  std::shared_ptr<Reader> reader = std::make_shared<Reader>();
  upstream::HttpClient client{{}};
  Service service{{.engine = engines::engine_of("openai"),
                   .client = &client,
                   .clock = &clock,
                   .entropy = &entropy,
                   .target = {engine.url(), "m"},
                   .facts = {},
                   .identity = {},
                   .bearer = "",
                   .retry = {.attempts_max = 4, .base_ms = 0, .cap_ms = 0}}};
};

std::string texts_of(const std::vector<net::sse::Event>& events) {
  std::string out;
  for (const auto& event : events) {
    if (event.event == "token") out += wire::decode<wire::WorkerTokenEvent>(event.data)->t;
  }
  return out;
}

constexpr std::string_view kOverloaded = "data: {\"error\":\"x\",\"error_type\":\"overloaded\"}\n\n";
constexpr std::string_view kDone = "data: [DONE]\n\n";
std::string text_event(std::string_view text) {
  return "data: {\"choices\":[{\"text\":\"" + std::string(text) + "\"}]}\n\n";
}
std::string usage_event(std::int64_t tokens) {
  return R"(data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":)" + std::to_string(tokens) + "}}\n\n";
}

TEST(Job, NothingIsReadBehindTheErrorThatEndsAnAttempt) {
  const std::string more_errors = std::string(kOverloaded) + std::string(kOverloaded);
  for (const std::string& behind : {std::string(kDone), text_event("a"), more_errors, std::string("data: {{\n\n")}) {
    Worker worker({std::string(kOverloaded) + behind, text_event("b") + std::string(kDone)});
    worker.execute(8);
    worker.reader->wait();
    const auto events = worker.reader->events();
    EXPECT_EQ(events.back().event, "end") << behind << events.back().data;
    EXPECT_EQ(texts_of(events), "b") << behind;
    EXPECT_EQ(worker.service.counts().retries, 1) << behind;
  }
}

// Else an answer that is cut short would count as whole.
TEST(Job, AnAttemptKnowsNothingOfTheOneBefore) {
  const std::string finish = "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n";
  for (const std::string& before : {finish, usage_event(3)}) {
    Worker worker({before + std::string(kOverloaded), text_event("b")});
    worker.execute(8);
    worker.reader->wait();
    const auto events = worker.reader->events();
    EXPECT_EQ(events.back().event, "error") << before;
    EXPECT_THAT(events.back().data, testing::HasSubstr("WORKER_RESET")) << before;
    EXPECT_EQ(texts_of(events), "b") << before;
  }
}

// Tokens that an engine counts and never sent are events as well, which the reader takes before there are more.
TEST(Job, CountedTokensWaitForTheReader) {
  Worker worker({text_event("b") + usage_event(1'000'000'000) + std::string(kDone)});
  worker.execute(20'000);
  std::size_t queued_bytes_max = 0;
  for (;;) {
    queued_bytes_max = std::max(queued_bytes_max, worker.reader->wait());
    if (worker.reader->ended()) break;
    worker.reader->take_all();
  }
  EXPECT_LE(queued_bytes_max, kQueuedBytesMax);
  const auto events = worker.reader->events();
  EXPECT_EQ(std::ranges::count(events, "token", &net::sse::Event::event), 20'000);
  EXPECT_EQ(events.back().event, "end");
  EXPECT_THAT(events.back().data, testing::HasSubstr(R"("tokens_out":20000)"));
}

TEST(Job, ACancelEndsCountedTokensThatNobodyTakes) {
  Worker worker({text_event("b") + usage_event(1'000'000'000) + std::string(kDone)});
  worker.execute(20'000);
  worker.reader->wait();
  EXPECT_TRUE(worker.service.cancel({.job_id = "j"}));
  worker.reader->wait_for_end();
  EXPECT_THAT(worker.reader->events().back().data, testing::HasSubstr("CANCELLED"));
  worker.reader->take_all();  // what waited for that does nothing any more
  EXPECT_EQ(worker.service.slots_free(), 1);
}

}  // namespace
}  // namespace llorch::adapter::jobs
