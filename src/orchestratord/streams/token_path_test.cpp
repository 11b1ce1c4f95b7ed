// The way of a token through the process, counted in allocations. A program of its own: it replaces operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <new>
#include <thread>

#include "base/clock.h"
#include "net/server.h"
#include "net/sse/sse.h"
#include "orchestratord/streams/relay.h"
#include "orchestratord/streams/replay/sse_renderer.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace {
thread_local bool counts_here = false;
std::atomic<std::int64_t> allocations{0};
}  // namespace

// Not inlined: the compiler would see malloc() meet delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (counts_here) ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace llorch::orchestratord::streams {
namespace {

constexpr std::int64_t kWarmUpTokens = 300;
constexpr std::int64_t kTokens = 1000;
// Buffers that hold the whole stream double a few times on the way.
constexpr std::int64_t kAllocationsMax = kTokens / 20;

std::string token_frame(std::int64_t i) {
  std::string frame;
  const std::string json = wire::encode(wire::WorkerTokenEvent{
      .t = i % 7 == 0 ? " a longer text of a token\n" : " word", .i = i, .id = i, .logprobs = {}});
  net::sse::append_event(frame, {.event = "token", .id = {}, .data = json});
  return frame;
}

// What a job's stream sends, read token by token.
class StreamReader {
 public:
  StreamReader(net::Client& client, const std::string& url) {
    handle_ = client.stream({.url = url}, {.on_response = {},
                                           .on_data =
                                               [this](std::string_view bytes) {
                                                 std::vector<net::sse::Event> events;
                                                 EXPECT_TRUE(decoder_.feed(bytes, events));
                                                 for (const auto& event : events) tokens_ += event.event == "token";
                                               },
                                           .on_end = [this](const base::Result<>&) { ended_.set_value(); }});
  }
  ~StreamReader() {
    handle_.cancel();
    ended_.get_future().wait();
  }
  std::int64_t tokens() const { return tokens_; }

 private:
  net::sse::Decoder decoder_;
  std::atomic<std::int64_t> tokens_{0};
  std::promise<void> ended_;
  net::StreamHandle handle_;
};

// OC-CTRL-2026: a buffered encoder that allocates nothing per token, all the way from the worker's socket to the client's.
TEST(TokenPath, AllocatesNothingPerToken) {
  base::SystemClock clock;
  net::IoRuntime others;  // the worker and the client
  net::IoRuntime ours;    // one thread: everything in between
  net::Server worker(others, {.component = "worker"});
  std::promise<net::ExchangePtr> serving;
  worker.route("POST", "/execute", net::Scope::kPublic,
               [&serving](const net::Request&, const net::ExchangePtr& e) { serving.set_value(e); });
  ASSERT_TRUE(worker.start());
  StreamHub hub({.limits = {}, .clock = &clock, .on_clients_gone = {}, .on_checkpoints = {}});
  const StreamPtr stream = hub.open(base::JobId("job"), wire::OnDisconnect::kResume);
  stream->queued({.job_id = "job"});
  std::promise<Relay::Reports::Outcome> ended;
  std::atomic<bool> over = false;
  {
    net::Server server(ours, {.component = "orchestratord"});
    server.route("GET", "/events", net::Scope::kPublic, [&](const net::Request&, const net::ExchangePtr& exchange) {
      stream->attach({.exchange = exchange, .renderer = std::make_shared<SseRenderer>()}, clock.now().mono_ms);
    });
    ASSERT_TRUE(server.start());
    net::Client worker_client(ours), reader_client(others);
    Relay relay({.client = &worker_client, .hub = &hub, .clock = &clock});
    Relay::Order order;
    order.execution = 1;
    order.stream = stream;
    order.worker_uri = worker.url();
    order.payload = R"({"job_id":"job"})";
    order.expected.seed = 1;
    relay.execute(order, {.started = [] {},
                          .progress = [](std::int64_t) {},
                          .ended =
                              [&](Relay::Reports::Outcome o) {
                                over = true;
                                ended.set_value(std::move(o));
                              }});
    const net::ExchangePtr exchange = serving.get_future().get();
    StreamReader reader(reader_client, server.url() + "/events");
    exchange->start_stream(200, net::http::sse_headers());
    exchange->write("event: started\ndata: {\"job_id\":\"job\",\"seed\":1}\n\n");
    for (std::int64_t i = 0; i < kWarmUpTokens + kTokens; ++i) {
      if (i == kWarmUpTokens) {
        std::promise<void> counting;
        ours.post([&counting] {
          counts_here = true;
          counting.set_value();
        });
        counting.get_future().wait();
      }
      exchange->write(token_frame(i));
      while (reader.tokens() <= i && !over)
        std::this_thread::yield();  // one by one: nothing is spared by coming together
    }
    ASSERT_FALSE(over) << "the job ended before its tokens did";
    std::promise<void> counted;
    ours.post([&counted] {
      counts_here = false;
      counted.set_value();
    });
    counted.get_future().wait();
    relay.abort(1);
    ended.get_future().wait();
  }
  EXPECT_LE(allocations, kAllocationsMax);
}

}  // namespace
}  // namespace llorch::orchestratord::streams
