#include "bench/serve/load/streams.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "bench/serve/io/sockets.h"
#include "bench/serve/load/requests.h"
#include "bench/serve/load/response.h"
#include "bench/serve/load/samples.h"

namespace llorch::bench {
namespace {

// At most so many jobs on their way to their first event, so that a crowd that begins at once is no part of the measure.
constexpr int kOpeningMax = 64;

class Streams;

struct Client final : StreamChecker::Sink {
  explicit Client(Streams& all, int n) : owner(all), number(n) {}
  void on_token(std::int64_t sent_ns) override;

  Streams& owner;
  const int number;
  Fd fd;
  ResponseReader reader;
  std::string out;
  std::size_t sent = 0;
  std::string reply;  // of the submission
  std::optional<StreamChecker> checker;
  bool opening = false;  // no event of its stream yet
  bool seen = false;     // an event of any stream
};

class Streams {
 public:
  explicit Streams(const StreamOptions& options) : options_(options) {
    for (int i = 0; i < options.streams; ++i) idle_.push_back(std::make_unique<Client>(*this, i));
  }

  std::string run();
  void hold();
  void count_token(std::int64_t sent_ns) {
    if (!measuring_) return;
    ++events_;
    if (sent_ns == 0) return;
    if (arrived_ns_ == 0) fail("the kernel does not say when bytes arrive");
    latency_.add(arrived_ns_ - sent_ns);
    read_latency_.add(now_ns() - sent_ns);
  }

 private:
  void turn(std::int64_t until_ns);
  void open_some();
  void begin_job(Client& client);
  void on_event(Client& client);
  void take(Client& client, std::string_view bytes);
  void take_end(Client& client);

  const StreamOptions options_;
  Poller poller_;
  std::vector<std::unique_ptr<Client>> idle_, open_;
  std::vector<Client*> renewed_;  // ended; their next job waits for its turn
  int opening_ = 0;
  int seen_ = 0;
  std::uint64_t seed_ = 0;
  std::int64_t arrived_ns_ = 0;  // of the bytes that are looked at
  bool measuring_ = false;
  std::int64_t events_ = 0, jobs_ = 0;
  Samples latency_;       // from the worker's send until the bytes are in the client's socket
  Samples read_latency_;  // until the client, which shares the cores, has read them
};

void Client::on_token(std::int64_t sent_ns) { owner.count_token(sent_ns); }

std::string Streams::run() {
  while (seen_ < options_.streams) turn(now_ns() + 10'000'000);
  const std::int64_t begin = now_ns() + static_cast<std::int64_t>(options_.warm_up_s * 1e9);
  const std::int64_t end = begin + static_cast<std::int64_t>(options_.seconds * 1e9);
  while (now_ns() < begin) turn(begin);
  measuring_ = true;
  announce("begin");
  const double cpu = cpu_seconds();
  const std::int64_t began = now_ns();
  if (options_.jobs_max > 0) {
    while (jobs_ < options_.jobs_max) turn(now_ns() + 100'000'000);
  } else {
    while (now_ns() < end) turn(end);
  }
  const double seconds = static_cast<double>(now_ns() - began) * 1e-9;
  announce("end");
  return fmt::format(
      R"({{"mode":"{}","streams":{},"seconds":{:.3f},"events":{},"events_per_s":{:.0f},"jobs_ended":{},"latency":{},)"
      R"("read_latency":{},)"
      R"("load_cpu_s":{:.3f}}})",
      options_.direct ? "direct" : "relay", options_.streams, seconds, events_, static_cast<double>(events_) / seconds,
      jobs_, latency_.json(), read_latency_.json(), cpu_seconds() - cpu);
}

void Streams::hold() {
  while (seen_ < options_.streams) turn(now_ns() + 10'000'000);
  announce("open");
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (::poll(&input, 1, 0) == 0) turn(now_ns() + 50'000'000);
}

void Streams::turn(std::int64_t until_ns) {
  open_some();
  for (const epoll_event& event : poller_.wait(until_ns)) on_event(*static_cast<Client*>(event.data.ptr));
}

void Streams::open_some() {
  while (opening_ < kOpeningMax && !renewed_.empty()) {
    Client& client = *renewed_.back();
    renewed_.pop_back();
    begin_job(client);
  }
  while (opening_ < kOpeningMax && !idle_.empty()) {
    open_.push_back(std::move(idle_.back()));
    idle_.pop_back();
    begin_job(*open_.back());
  }
}

void Streams::begin_job(Client& client) {
  ++opening_;
  client.opening = true;
  client.checker.reset();
  client.reply.clear();
  client.reader.reset();
  if (client.fd.get() < 0) {
    client.fd = connect_to_loopback(options_.port);
    if (options_.stamps) note_arrivals(client.fd);
    poller_.add(client.fd, &client);
  }
  const Submission submission{.tokens = options_.tokens, .seed = ++seed_};
  if (options_.direct) {
    append_execute(client.out, submission);
    client.checker.emplace(
        StreamChecker::Options{.tokens = options_.tokens, .has_ids = false, .has_stamps = options_.stamps}, client);
  } else {
    append_submission(client.out, submission);
  }
  if (!send_some(client.fd, client.out, client.sent)) fail("the server closed a connection");
}

void Streams::on_event(Client& client) {
  if (client.fd.get() < 0) return;
  if (!send_some(client.fd, client.out, client.sent)) fail("the server closed a connection");
  bool drained = false;
  while (!drained && client.fd.get() >= 0) {
    std::string_view bytes;
    if (!read_some(client.fd, bytes, drained)) fail("the server closed a stream before its end");
    if (options_.stamps) arrived_ns_ = arrived_ns();
    take(client, bytes);
  }
}

void Streams::take(Client& client, std::string_view bytes) {
  while (!bytes.empty()) {
    bytes = client.reader.feed(bytes, [&](std::string_view body) {
      if (client.checker) {
        client.checker->feed(body);
      } else {
        client.reply += body;
      }
    });
    if (client.opening && client.checker && client.checker->seen()) {
      client.opening = false;
      --opening_;
      if (!client.seen) ++seen_;
      client.seen = true;
    }
    if (!client.reader.done()) return;
    if (client.checker) {
      take_end(client);
    } else {
      if (client.reader.status() != 202) fail(fmt::format("refused: {}", client.reply));
      append_get(client.out, events_url_of(client.reply));
      client.reader.reset();
      client.checker.emplace(
          StreamChecker::Options{.tokens = options_.tokens,
                                 .checks_hashes = options_.hash_every > 0 && client.number % options_.hash_every == 0,
                                 .has_stamps = options_.stamps},
          client);
      if (!send_some(client.fd, client.out, client.sent)) fail("the server closed a connection");
    }
  }
}

void Streams::take_end(Client& client) {
  if (client.reader.status() != 200 || !client.checker->ended()) fail("a stream broke off without its terminal event");
  if (measuring_) ++jobs_;
  if (options_.direct) client.fd = Fd();
  client.reader.reset();
  renewed_.push_back(&client);
}

}  // namespace

std::string measure_streams(const StreamOptions& options) { return Streams(options).run(); }
void hold_streams(const StreamOptions& options) { Streams(options).hold(); }

}  // namespace llorch::bench
