#include "net/client.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "net/server.h"
#include "net/sse/sse.h"

namespace {

// Nobody answers for stuck.test until that is said.
struct StuckName {
  std::mutex mutex;
  std::condition_variable changed;
  int lookups = 0;
  bool is_answered = false;
} g_stuck;

}  // namespace

// In the place of the C library's.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* wanted, addrinfo** found) {
  const std::string host = name == nullptr ? "" : name;
  if (host == "stuck.test") {
    std::unique_lock lock(g_stuck.mutex);
    ++g_stuck.lookups;
    g_stuck.changed.notify_all();
    g_stuck.changed.wait(lock, [] { return g_stuck.is_answered; });
    return EAI_AGAIN;
  }
  static const auto real = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (host == "two-addresses.test") {  // a list goes to freeaddrinfo as a whole
    if (const int code = real("127.0.0.2", service, wanted, found); code != 0) return code;
    return real("127.0.0.1", service, wanted, &(*found)->ai_next);
  }
  return real(host == "localhost" ? "127.0.0.1" : name, service, wanted, found);
}

namespace llorch::net {
namespace {

using base::ErrorCode;

constexpr const char* kClientToken = "0123456789abcdef0123456789abcdef";

struct ClientTest : testing::Test {
  IoRuntime runtime;
  Server server{
      runtime,
      {.component = "test", .auth = rules(), .browsers = {.hosts = {"two-addresses.test"}, .cors_origins = {}}}};
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ExchangePtr> kept;

  // A token may come and need not.
  static http::AuthRules rules() {
    return {.credentials = {http::make_credential(kClientToken, http::Role::kOperator).value()},
            .optional_on_loopback = true};
  }

  void SetUp() override {
    server.route("POST", "/echo", Scope::kPublic, [](Request request, ExchangePtr exchange) {
      Response response{202, {}, request.body};
      response.headers.add("X-Got", std::string(request.headers.get("Authorization").value_or("none")) + "," +
                                        request.correlation_id.value);
      response.headers.add("X-Trace", std::string(request.headers.get("traceparent").value_or("none")));
      exchange->respond(std::move(response));
    });
    server.route("GET", "/big", Scope::kPublic, [](Request, ExchangePtr exchange) {
      exchange->respond(http::text_response(200, std::string(3 << 20, 'b')));
    });
    server.route("GET", "/keep", Scope::kPublic, [this](Request, ExchangePtr exchange) {
      const std::lock_guard lock(mutex);
      kept.push_back(std::move(exchange));
      changed.notify_all();
    });
    server.route("GET", "/peer", Scope::kPublic, [](Request request, ExchangePtr exchange) {
      exchange->respond(http::text_response(200, request.peer.address));
    });
    server.route("GET", "/full", Scope::kPublic, [](Request, ExchangePtr exchange) {
      exchange->respond_error(base::Error{ErrorCode::kQueueFull, "full", {}}.with("retry_after_ms", 1500));
    });
    ASSERT_TRUE(server.start());
  }
  void TearDown() override {
    server.stop(0);
    kept.clear();
  }
  ExchangePtr wait_kept() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !kept.empty(); });
    return kept.front();
  }
  std::string url(std::string_view path) const { return server.url() + std::string(path); }
};

// What a stream delivered so far, and how it ended.
struct Recorder {
  std::mutex mutex;
  std::condition_variable changed;
  int status = 0;
  std::string bytes;
  int ends = 0;
  std::promise<base::Result<>> ended;

  StreamCallbacks callbacks() {
    return {.on_response =
                [this](int got, const http::Headers&) {
                  const std::lock_guard lock(mutex);
                  status = got;
                  changed.notify_all();
                },
            .on_data =
                [this](std::string_view some) {
                  const std::lock_guard lock(mutex);
                  bytes += some;
                  changed.notify_all();
                },
            .on_end =
                [this](base::Result<> result) {
                  if (++ends == 1) ended.set_value(std::move(result));
                }};
  }
  void wait_bytes(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return bytes.size() >= count; });
  }
  std::size_t size() {
    const std::lock_guard lock(mutex);
    return bytes.size();
  }
  base::Result<> wait_end() { return ended.get_future().get(); }
};

TEST_F(ClientTest, CallCarriesTokenAndCorrelationId) {
  Client client(runtime);
  const std::string body(1 << 20, 'x');
  const auto response = client.call({.method = "POST",
                                     .url = url("/echo"),
                                     .bearer = kClientToken,
                                     .body = body,
                                     .correlation_id = base::CorrelationId("c-9")});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 202);
  EXPECT_EQ(response->body, body);
  EXPECT_EQ(response->headers.get("X-Got"), "Bearer " + std::string(kClientToken) + ",c-9");
  EXPECT_EQ(response->headers.get("X-Correlation-Id"), "c-9");
  EXPECT_EQ(client.call({.url = url("/big")})->body.size(), std::size_t{3 << 20});
}

TEST_F(ClientTest, ATraceIsHandedOnIfThereIsOne) {
  Client client(runtime);
  base::CorrelationId traced("c-9");
  traced.trace = std::make_shared<const base::TraceContext>(base::TraceContext{.trace_id = std::string(32, 'a')});
  const auto trace_of = [&](const base::CorrelationId& id) {
    const auto response = client.call(
        {.method = "POST", .url = url("/echo"), .bearer = kClientToken, .body = "{}", .correlation_id = id});
    return std::string(response.value().headers.get("X-Trace").value_or(""));
  };
  EXPECT_TRUE(trace_of(traced).starts_with("00-" + std::string(32, 'a') + "-"));
  EXPECT_EQ(trace_of(base::CorrelationId("c-9")), "none");
}

// Whoever answers with a redirect gets no second request, and whoever it names none at all.
TEST_F(ClientTest, ARedirectIsAnAnswerAndNotFollowed) {
  int asked = 0;
  Server named(runtime, {.component = "named"});
  named.route("GET", "/keep", Scope::kPublic, [&](Request, ExchangePtr exchange) {
    ++asked;
    exchange->respond({});
  });
  ASSERT_TRUE(named.start());
  Server redirects(runtime, {.component = "redirects", .auth = rules()});
  redirects.route("GET", "/there", Scope::kPublic, [&](Request, ExchangePtr exchange) {
    exchange->respond({307, {{"Location", named.url() + "/keep"}}, {}});
  });
  ASSERT_TRUE(redirects.start());
  Client client(runtime);
  const auto response = client.call({.url = redirects.url() + "/there", .bearer = kClientToken});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 307);
  EXPECT_EQ(asked, 0);
  redirects.stop(0);
  named.stop(0);
}

TEST_F(ClientTest, ByHostName) {
  Client client(runtime);
  const auto response = client.call(
      {.method = "POST", .url = "http://localhost:" + std::to_string(server.port()) + "/echo", .body = "hi"});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->body, "hi");
}

// Connects of which the kernel answers none: the listener's queue is full, and nobody accepts.
struct FilteredAddress {
  explicit FilteredAddress(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.2", &address.sin_addr);
    const auto* const at = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(bind(listener, at, sizeof(address)), 0);
    EXPECT_EQ(listen(listener, 0), 0);
    for (const int queued : queue) ::connect(queued, at, sizeof(address));
  }
  ~FilteredAddress() {
    close(listener);
    for (const int queued : queue) close(queued);
  }
  static int make(int type) { return socket(AF_INET, SOCK_STREAM | type, 0); }
  const int listener = make(0);
  const std::array<int, 2> queue{make(SOCK_NONBLOCK), make(SOCK_NONBLOCK)};
};

TEST_F(ClientTest, AnAddressThatNothingAnswersFromHoldsUpNoOther) {
  const FilteredAddress filtered(server.port());
  Client client(runtime);
  const std::string port = std::to_string(server.port());
  const auto response =
      client.call({.method = "POST", .url = "http://two-addresses.test:" + port + "/echo", .body = "hi"});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->body, "hi");
  const auto alone = client.call({.url = "http://127.0.0.2:" + port + "/peer", .timeout_ms = 50});
  ASSERT_FALSE(alone) << "the address is not filtered";
  EXPECT_EQ(alone.error().code, ErrorCode::kUnreachable);
}

TEST_F(ClientTest, AnAddressThatRefusesIsFollowedByTheNext) {
  Client client(runtime);
  const auto response = client.call(
      {.method = "POST", .url = "http://two-addresses.test:" + std::to_string(server.port()) + "/echo", .body = "hi"});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->body, "hi");
}

TEST_F(ClientTest, ErrorStatusesAreResponses) {
  Client client(runtime);
  const auto response = client.call({.url = url("/full")});
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 429);
  EXPECT_EQ(response->headers.get("X-Backoff-Ms"), "1500");
  EXPECT_EQ(http::error_of(*response).code, ErrorCode::kQueueFull);
}

TEST_F(ClientTest, ManyRequestsAtOnce) {
  Client client(runtime);
  constexpr int kRequests = 200;
  std::atomic<int> good = 0;
  std::promise<void> all;
  std::atomic<int> left = kRequests;
  for (int i = 0; i < kRequests; ++i) {
    client.request({.method = "POST", .url = url("/echo"), .body = std::to_string(i)},
                   [&, i](base::Result<Response> r) {
                     if (r && r->body == std::to_string(i)) ++good;
                     if (--left == 0) all.set_value();
                   });
  }
  all.get_future().wait();
  EXPECT_EQ(good, kRequests);
}

TEST_F(ClientTest, ACompleteResponseLeavesItsConnectionToTheNextRequest) {
  Client client(runtime);
  const std::string first = client.call({.url = url("/peer")})->body;
  EXPECT_EQ(client.call({.url = url("/peer")})->body, first);
  EXPECT_EQ(client.call({.url = url("/full")})->status, 429);
  EXPECT_EQ(client.call({.url = url("/peer")})->body, first);
  Client other(runtime);
  EXPECT_NE(other.call({.url = url("/peer")})->body, first);

  Recorder recorder;
  StreamHandle handle = client.stream({.url = url("/keep")}, recorder.callbacks());
  wait_kept()->start_stream(200, {});
  EXPECT_NE(client.call({.url = url("/peer")})->body, first) << "the stream has it";
  handle.cancel();
  EXPECT_FALSE(recorder.wait_end());
  EXPECT_NE(client.call({.url = url("/peer")})->body, first) << "it was closed with the stream";
}

TEST_F(ClientTest, AConnectionThatItsServerClosedIsNotUsed) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 2), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::promise<void> closed[2];
  std::thread rude([&] {  // answers, says nothing of closing, closes
    for (int i = 0; i < 2; ++i) {
      const int fd = accept(listener, nullptr, nullptr);
      char request[4096];
      EXPECT_GT(recv(fd, request, sizeof request, 0), 0);
      const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + std::to_string(i);
      EXPECT_EQ(send(fd, answer.data(), answer.size(), 0), static_cast<ssize_t>(answer.size()));
      close(fd);
      closed[i].set_value();
    }
  });
  Client client(runtime);
  for (int i = 0; i < 2; ++i) {
    const auto response = client.call({.url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/"});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->body, std::to_string(i));
    closed[i].get_future().wait();
  }
  rude.join();
  close(listener);
}

TEST_F(ClientTest, Failures) {
  Client client(runtime, {.response_bytes_max = 1 << 20});
  Server gone(runtime, {.component = "gone"});
  ASSERT_TRUE(gone.start());
  const std::string gone_url = gone.url();
  gone.stop(0);
  const auto code = [&](ClientRequest request) {
    const auto result = client.call(std::move(request));
    return result ? ErrorCode::kInternal : result.error().code;
  };
  EXPECT_EQ(code({.url = gone_url}), ErrorCode::kUnreachable);
  EXPECT_EQ(code({.url = "http://no-such-host.invalid/"}), ErrorCode::kUnreachable);
  EXPECT_EQ(code({.url = "https://127.0.0.1/"}), ErrorCode::kInvalidParams);
  EXPECT_EQ(code({.url = url("/big")}), ErrorCode::kPayloadTooLarge);
  EXPECT_EQ(code({.url = url("/keep"), .timeout_ms = 50}), ErrorCode::kTimeout);
}

TEST_F(ClientTest, AConnectionCutInTheResponseIsAnError) {
  Client client(runtime);
  for (const bool started : {false, true}) {
    std::promise<base::Result<Response>> result;
    client.request({.url = url("/keep")}, [&](base::Result<Response> r) { result.set_value(std::move(r)); });
    const ExchangePtr exchange = wait_kept();
    kept.clear();
    if (started) {
      exchange->start_stream(200, {});
      exchange->write("part");
    }
    exchange->abort();
    const auto got = result.get_future().get();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::kIoError);
  }
}

TEST_F(ClientTest, StreamsEventsAsTheyCome) {
  Client client(runtime);
  Recorder recorder;
  client.stream({.url = url("/keep")}, recorder.callbacks());
  const ExchangePtr exchange = wait_kept();
  exchange->start_stream(200, http::sse_headers());
  std::string sent;
  for (int i = 0; i < 100; ++i) {
    std::string event;
    sse::append_event(event, {.event = "token", .id = std::to_string(i), .data = "{}"});
    sent += event;
    exchange->write(std::move(event));
    if (i % 10 == 0) recorder.wait_bytes(sent.size());
  }
  exchange->end();
  EXPECT_TRUE(recorder.wait_end());
  EXPECT_EQ(recorder.status, 200);
  EXPECT_EQ(recorder.bytes, sent);
  sse::Decoder decoder;
  std::vector<sse::Event> events;
  ASSERT_TRUE(decoder.feed(recorder.bytes, events));
  EXPECT_EQ(events.size(), 100u);
}

TEST_F(ClientTest, CancelClosesTheConnection) {
  Client client(runtime);
  Recorder recorder;
  StreamHandle handle = client.stream({.url = url("/keep")}, recorder.callbacks());
  const ExchangePtr exchange = wait_kept();
  exchange->start_stream(200, {});
  exchange->write("x");
  recorder.wait_bytes(1);
  std::promise<CloseReason> closed;
  exchange->on_close([&](CloseReason reason) { closed.set_value(reason); });
  handle.cancel();
  handle.cancel();
  EXPECT_EQ(closed.get_future().get(), CloseReason::kPeerGone);
  const auto result = recorder.wait_end();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(recorder.ends, 1);
  handle.pause();
  handle.resume();
}

TEST_F(ClientTest, PauseSlowsTheSenderDown) {
  Client client(runtime);
  Recorder recorder;
  StreamHandle handle = client.stream({.url = url("/keep"), .idle_timeout_ms = 600'000}, recorder.callbacks());
  const ExchangePtr exchange = wait_kept();
  exchange->start_stream(200, {});
  exchange->write("x");
  recorder.wait_bytes(1);
  handle.pause();
  constexpr std::size_t kBytes = 32 << 20;  // more than any socket buffer
  exchange->write(std::string(kBytes, 'y'));
  exchange->end();
  for (std::size_t before = 1, now = 0; now != before; now = recorder.size()) {
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GT(exchange->queued_bytes(), kBytes / 4);
  EXPECT_LE(recorder.size(), std::size_t{1 + (64 << 10)});
  handle.resume();
  EXPECT_TRUE(recorder.wait_end());
  EXPECT_EQ(recorder.size(), kBytes + 1);
}

TEST_F(ClientTest, SilenceEndsAStreamWithAnIdleTimeout) {
  Client client(runtime);
  Recorder recorder;
  client.stream({.url = url("/keep"), .idle_timeout_ms = 50}, recorder.callbacks());
  const ExchangePtr exchange = wait_kept();
  exchange->start_stream(200, {});
  const auto result = recorder.wait_end();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kTimeout);
}

TEST_F(ClientTest, NoHeadWithinTheTimeoutEndsAStream) {
  Client client(runtime);
  Recorder recorder;
  client.stream({.url = url("/keep"), .timeout_ms = 50}, recorder.callbacks());
  const auto result = recorder.wait_end();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(recorder.status, 0);
}

TEST_F(ClientTest, DestructorEndsEverythingFirst) {
  Recorder recorder;
  bool done = false;
  StreamHandle handle;
  {
    Client client(runtime);
    handle = client.stream({.url = url("/keep")}, recorder.callbacks());
    client.request({.url = url("/keep")}, [&](base::Result<Response> r) {
      EXPECT_EQ(r.error().code, ErrorCode::kCancelled);
      done = true;
    });
    wait_kept();
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(recorder.ends, 1);
  EXPECT_EQ(recorder.wait_end().error().code, ErrorCode::kCancelled);
  handle.cancel();
}

TEST_F(ClientTest, SurvivesARuntimeThatStopsFirst) {
  Recorder recorder;
  {
    Client client(runtime);
    client.stream({.url = url("/keep")}, recorder.callbacks());
    wait_kept();
    runtime.stop();
  }
  EXPECT_EQ(recorder.wait_end().error().code, ErrorCode::kCancelled);
}

// What a callback throws ends that callback: the request is over, what it held is released, and the client can end.
TEST_F(ClientTest, ACallbackThatThrowsLeavesNothingBehind) {
  const auto held = std::make_shared<int>(0);
  {
    Client client(runtime);
    client.request({.url = url("/big")}, [held](const base::Result<Response>&) { throw std::length_error(""); });
    while (held.use_count() > 1) std::this_thread::yield();
    EXPECT_TRUE(client.call({.url = url("/big")}));
  }
  EXPECT_EQ(held.use_count(), 1);
}

constexpr ClientOptions kPatient{.connect_timeout_ms = 3'600'000, .request_timeout_ms = 3'600'000};

// A request for it waits for its own time alone, and so does whoever asks for the same name; nobody's end waits for the answer.
TEST_F(ClientTest, ANameThatNobodyAnswersForHoldsUpNoOther) {
  std::promise<ErrorCode> first, second;
  {
    const std::lock_guard lock(g_stuck.mutex);
    g_stuck.lookups = 0;
    g_stuck.is_answered = false;
  }
  {
    Client client(runtime, kPatient);
    client.request({.url = "http://stuck.test:1/"},
                   [&](const base::Result<Response>& r) { first.set_value(r.error().code); });
    {
      std::unique_lock lock(g_stuck.mutex);
      g_stuck.changed.wait(lock, [] { return g_stuck.lookups > 0; });
    }
    client.request({.url = "http://stuck.test:2/"},
                   [&](const base::Result<Response>& r) { second.set_value(r.error().code); });
    std::string here = url("/peer");
    here.replace(here.find("127.0.0.1"), 9, "localhost");
    for (int i = 0; i < 2; ++i) {
      const auto response = client.call({.url = here});
      EXPECT_EQ(response ? response->status : 0, 200);
    }
  }
  EXPECT_EQ(first.get_future().get(), ErrorCode::kCancelled);
  EXPECT_EQ(second.get_future().get(), ErrorCode::kCancelled);
  {
    const std::lock_guard lock(g_stuck.mutex);
    EXPECT_EQ(g_stuck.lookups, 1);
    g_stuck.is_answered = true;
  }
  g_stuck.changed.notify_all();
}

TEST_F(ClientTest, ANameThatIsNoneIsUnreachable) {
  Client client(runtime, kPatient);
  {
    const std::lock_guard lock(g_stuck.mutex);
    g_stuck.is_answered = true;
  }
  EXPECT_EQ(client.call({.url = "http://stuck.test/"}).error().code, ErrorCode::kUnreachable);
}

}  // namespace
}  // namespace llorch::net
