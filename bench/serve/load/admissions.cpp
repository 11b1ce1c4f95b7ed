#include "bench/serve/load/admissions.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "bench/serve/io/sockets.h"
#include "bench/serve/load/requests.h"
#include "bench/serve/load/response.h"
#include "bench/serve/load/samples.h"

namespace llorch::bench {
namespace {

struct Connection {
  Fd fd;
  ResponseReader reader;
  std::string out;
  std::size_t sent = 0;
  std::int64_t due_ns = 0;
  std::int64_t sent_ns = 0;
  bool busy = false;
  Api api = Api::kV2;  // with options.answers
};

class Admissions {
 public:
  explicit Admissions(const AdmissionOptions& options) : options_(options), arrivals_(options.jobs_per_s * 1e-9) {
    for (int i = 0; i < options.connections; ++i) {
      auto& connection = connections_.emplace_back(std::make_unique<Connection>());
      connection->fd = connect_to_loopback(options.port);
      poller_.add(connection->fd, connection.get());
      free_.push_back(connection.get());
    }
  }

  std::string run() {
    const std::int64_t start = now_ns();
    const std::int64_t begin = start + static_cast<std::int64_t>(options_.warm_up_s * 1e9);
    const std::int64_t end = begin + static_cast<std::int64_t>(options_.seconds * 1e9);
    std::int64_t next = start;
    bool measuring = false;
    double cpu = 0;
    while (next < end || answered_ < submitted_) {
      for (const epoll_event& event : poller_.wait(next < end ? next : now_ns() + 100'000'000)) {
        on_event(*static_cast<Connection*>(event.data.ptr));
      }
      const std::int64_t now = now_ns();
      if (!measuring && now >= begin) {
        measuring = true;
        cpu = cpu_seconds();
        announce("begin");
      }
      for (; next <= now && next < end; next += static_cast<std::int64_t>(arrivals_(random_))) {
        due_.push_back(next);
        ++submitted_;
      }
      send_due();
      begin_ns_ = begin;
    }
    cpu = cpu_seconds() - cpu;
    announce("end");
    const std::string apis = options_.answers ? fmt::format(R"("v2":{},"v1":{},)", v2_.json(), v1_.json()) : "";
    return fmt::format(
        R"({{"mode":"admission","jobs_per_s":{},"jobs":{},"seconds":{},"admission":{},"on_the_wire":{},{}"load_cpu_s":{:.3f}}})",
        options_.jobs_per_s, total_.count(), options_.seconds, total_.json(), wire_.json(), apis, cpu);
  }

 private:
  void send_due() {
    while (!due_.empty() && !free_.empty()) {
      Connection& connection = *free_.back();
      free_.pop_back();
      connection.busy = true;
      connection.due_ns = due_.front();
      due_.pop_front();
      const Submission submission{.tokens = options_.tokens, .seed = ++seed_};
      if (options_.answers) {
        connection.api = seed_ % 2 == 0 ? Api::kV2 : Api::kV1;
        append_waiting_submission(connection.out, submission, connection.api);
      } else {
        append_submission(connection.out, submission);
      }
      connection.sent_ns = now_ns();
      if (!send_some(connection.fd, connection.out, connection.sent)) fail("orchestratord closed a connection");
    }
  }

  void on_event(Connection& connection) {
    if (!send_some(connection.fd, connection.out, connection.sent)) fail("orchestratord closed a connection");
    bool drained = false;
    while (!drained) {
      std::string_view bytes;
      if (!read_some(connection.fd, bytes, drained)) fail("orchestratord closed a connection");
      if (bytes.empty()) return;
      if (!connection.busy) fail("an answer that nobody asked for");
      bytes = connection.reader.feed(bytes, [&](std::string_view body) {
        if (connection.reader.status() != (options_.answers ? 200 : 202)) fail(fmt::format("refused: {}", body));
      });
      if (connection.reader.done()) take_answer(connection);
    }
  }

  void take_answer(Connection& connection) {
    const std::int64_t now = now_ns();
    if (connection.due_ns >= begin_ns_) {
      total_.add(now - connection.due_ns);
      wire_.add(now - connection.sent_ns);
      if (options_.answers) (connection.api == Api::kV2 ? v2_ : v1_).add(now - connection.sent_ns);
    }
    connection.reader.reset();
    connection.busy = false;
    ++answered_;
    free_.push_back(&connection);
  }

  const AdmissionOptions options_;
  Poller poller_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> free_;  // the last one used goes first: its memory is warm
  std::deque<std::int64_t> due_;
  std::mt19937_64 random_{1};
  std::exponential_distribution<double> arrivals_;
  std::uint64_t seed_ = 0;
  std::int64_t submitted_ = 0, answered_ = 0;
  std::int64_t begin_ns_ = INT64_MAX;
  Samples total_, wire_;
  Samples v2_, v1_;  // of wire_
};

}  // namespace

std::string measure_admissions(const AdmissionOptions& options) { return Admissions(options).run(); }

}  // namespace llorch::bench
