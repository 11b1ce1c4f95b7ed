#pragma once
// Tells a collector of traces about jobs that have ended.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "net/client.h"
#include "orchestratord/traces/job_spans.h"

namespace llorch::orchestratord::traces {

struct SpanExporterLimits {
  std::size_t jobs_max = 8192;         // that wait, 0.5 KiB each: half a minute of the busiest daemon
  std::size_t jobs_per_request = 256;  // 0.5 MiB of JSON
  std::int64_t request_timeout_ms = 10'000;
  std::int64_t pause_ms = 1'000, pause_ms_max = 30'000;  // after a failure; doubles with each
};

// Thread-safe. Spans of one job go together; what a collector refuses for good, or what finds the queue full, is dropped.
class SpanExporter {
 public:
  enum class Outcome { kExported, kDropped };
  struct Options {
    net::Transport* client = nullptr;  // these REQUIRE not null; the client may go first, with a request still open
    const base::Clock* clock = nullptr;
    base::Entropy* entropy = nullptr;
    std::string endpoint;         // "http://host:4318"
    std::string service_version;  // this build
    std::function<void(Outcome outcome, std::int64_t jobs)> count;
    SpanExporterLimits limits{};
  };
  explicit SpanExporter(Options options) : options_(std::move(options)) {}
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Never waits.
  void add(FinishedJob job);
  // Sends the next request unless one is on its way or a pause lasts. REQUIRES: called a few times a second, not two at once.
  void tick();

 private:
  struct Batch {
    std::string body;
    std::int64_t jobs = 0;
  };
  std::shared_ptr<const Batch> next_batch();
  void send(std::shared_ptr<const Batch> batch);
  void answered(const std::shared_ptr<const Batch>& batch, const base::Result<net::Response>& response);

  const Options options_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::deque<FinishedJob> jobs_;
  std::shared_ptr<const Batch> unsent_;  // comes before `jobs_`
  bool on_its_way_ = false;
  bool failing_ = false;
  std::int64_t pause_ms_ = 0, paused_until_ms_ = 0;  // mono
};

}  // namespace llorch::orchestratord::traces
