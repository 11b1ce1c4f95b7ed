#pragma once
// Runs jobs on workers: POST {worker}/execute, its events into the job's stream. The token path touches neither core
// nor store.
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/client.h"
#include "orchestratord/streams/stream_hub.h"
#include "wire/task.h"

namespace llorch::orchestratord::streams {

// Thread-safe. REQUIRES: `client`, `hub` and `clock` outlive it; destroyed after `client` has no callback running.
class Relay {
 public:
  struct Options {
    net::Transport* client = nullptr;
    StreamHub* hub = nullptr;
    const base::Clock* clock = nullptr;
    // Names this process, so that its execution ids are none of an earlier process. Has the characters of an
    // identifier.
    std::string boot_id = "boot";
    std::int64_t head_timeout_ms = 30'000;  // until the worker's answer begins
  };
  // Called on the io thread, `ended` last and exactly once.
  struct Reports {
    std::function<void()> started;
    // The first token at once, then at most once per second; also while the worker is slowed down, so that a pause of
    // ours never looks like its silence. This one may come on another thread and late.
    std::function<void(std::int64_t tokens_out)> progress;
    struct Outcome {
      std::int64_t tokens_out = 0;        // of this attempt
      std::optional<wire::EndEvent> end;  // else `error`: the worker's own, UNREACHABLE, WORKER_RESET,
      std::optional<base::Error> error;   // REPLAY_DIVERGED, CANCELLED after abort()
    };
    std::function<void(Outcome)> ended;
  };
  struct Order {
    std::uint64_t execution = 0;  // never used before
    StreamPtr stream;
    std::string worker_uri;
    std::string bearer;           // with which that worker is called; empty: none
    std::string payload;          // an ExecuteRequest without execution_id and timeout_ms
    std::int64_t timeout_ms = 0;  // of this attempt
    base::CorrelationId correlation_id;
    std::string worker_id;  // these five go into the event `started`
    std::string model;
    std::int64_t queue_wait_ms = 0;
    std::int64_t queue_position = 0;
    std::int64_t predicted_start_ms = 0;
    bool holds_stream = false;  // no client is told of a token before Stream::release()
    // A worker that sends more is broken: what it sends is held in memory.
    std::int64_t tokens_max = std::numeric_limits<std::int64_t>::max();
    std::int64_t prompt_events = 0;  // tokens of the prompt that it tells before them
    // Of a job of vectors or scores each token is one, and there are tokens_max.
    wire::Workload workload = wire::Workload::kCompletion;
    // What a receipt must say of the job; an empty text is not compared. Output hash and token count are compared with
    // what was relayed.
    struct Expected {
      std::uint64_t seed = 0;
      std::string prompt_sha256;
      std::string parameters_sha256;
      std::string model_digest;
    };
    Expected expected;
  };

  explicit Relay(Options options) : options_(std::move(options)) {}

  void execute(Order order, Reports reports);
  // Tells the worker and closes the connection. No effect after the end.
  void abort(std::uint64_t execution);
  // Once per second.
  void tick();

 private:
  class Execution;
  // `is_closed`: nothing more comes of it.
  void drop(std::uint64_t execution, bool is_closed);

  const Options options_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Execution>> running_;
  std::vector<std::weak_ptr<Execution>> ending_;  // have ended, and may still have an open answer
};

}  // namespace llorch::orchestratord::streams
