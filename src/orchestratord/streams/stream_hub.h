#pragma once
// All live streams of the process, and what is common to them: the memory they share, the clock that watches them.
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "orchestratord/streams/answer_queue.h"
#include "orchestratord/streams/replay/flow_governor.h"
#include "orchestratord/streams/stream.h"

namespace llorch::orchestratord::streams {

// Thread-safe. REQUIRES: destroyed after the server, whose exchanges hold streams.
class StreamHub : private Stream::Watcher {
 public:
  struct Checkpoint {
    base::JobId job_id;
    EventId id;
  };
  struct Options {
    config::StreamConfig limits;
    const base::Clock* clock = nullptr;  // REQUIRES not null; outlives the hub
    net::Executor* answers = nullptr;    // makes whole answers; null where nobody asks for one. See AnswerQueue
    // All clients of a running job are gone, and its on_disconnect says that this cancels it. On any thread, no lock held.
    std::function<void(const base::JobId&)> on_clients_gone;
    // Memory is short, and a job was paused for as long as a slow client has: it is to end. On any thread, no lock held.
    std::function<void(const base::JobId&)> on_paused_too_long{};
    // Gets the last event ids of the running streams that moved within the last second.
    std::function<void(std::vector<Checkpoint>)> on_checkpoints;
    // How often the owner calls tick(). Streams that were opened together are looked at in different ticks, so that many
    // streams hold up nobody.
    std::size_t ticks_per_s = 1;
  };
  explicit StreamHub(Options options);
  ~StreamHub() override;

  // The job's stream; made if there is none. `tenant_id`: the tenant that may read it beside the operator; empty:
  // nobody else may.
  StreamPtr open(const base::JobId& job_id, wire::OnDisconnect on_disconnect, std::string tenant_id = {});
  // Null: no such live job, and its buffer is not held either.
  StreamPtr find(const base::JobId& job_id) const;
  // Drops a stream nobody was promised, e.g. of a refused job.
  void forget(const base::JobId& job_id);

  // Slows down the worker of a stream that a relay fills (`paused`), or lets it go on. Called without a lock.
  using Pause = std::function<void(bool paused)>;
  void relay_begins(const Stream& stream, Pause pause);
  void relay_ends(const Stream& stream);

  // Ticks the streams that are due: each once a second, and when its next keep-alive comment is due.
  void tick();
  void abort_clients();

  struct Gauges {
    std::int64_t streams = 0;
    std::int64_t clients = 0;
    std::int64_t bytes_held = 0;
    std::int64_t relays_paused = 0;
  };
  Gauges gauges() const;

 private:
  void on_answer_due(const Stream::Identity& identity, std::function<void()> make) override {
    answers_.add(identity.tenant_id, std::move(make));
  }
  void on_bytes_held(const Stream::Identity& identity, std::int64_t delta) override;
  void on_finished(const Stream::Identity& identity, std::int64_t now_ms) override;
  void on_clients_gone(const base::JobId& job_id) override;
  void on_sent_to_the_end(const base::JobId& job_id) override;
  struct SentLimits {
    std::size_t count_max = 0;
    std::int64_t bytes_max = 0;  // of all streams
  };
  void drop_sent(const SentLimits& limits);
  void govern();
  struct Tenant {
    std::size_t number = 0;  // an index
    std::atomic<std::int64_t> bytes_held{0};
    std::map<std::pair<std::int64_t, std::uint64_t>, base::JobId> finished;  // by the time of the end and the order
    std::deque<base::JobId> sent;  // to the end, oldest first; some are forgotten already
  };
  // These four under the lock. What they take outlives it: the end of a stream reports back.
  std::vector<std::int64_t> held_by_tenant() const;
  Tenant* find_sent(const SentLimits& limits);
  StreamPtr find_forgettable(const std::set<std::uint64_t>& read) const;
  StreamPtr take(const base::JobId& job_id);
  std::vector<StreamPtr> all() const;
  struct Look {
    std::int64_t due_ms = 0;
    std::weak_ptr<Stream> stream;
    bool operator>(const Look& other) const { return due_ms > other.due_ms; }
  };
  std::vector<StreamPtr> take_due(std::int64_t now_ms);

  const Options options_;
  std::atomic<std::int64_t> bytes_held_{0};
  std::atomic<bool> any_paused_{false};
  std::atomic<bool> is_governing_{false};
  mutable std::mutex mutex_;
  std::uint64_t next_order_ = 0;
  std::map<std::string, Tenant>
      tenants_;  // all that ever had a stream: as many as are configured. Streams count in them until they end
  FlowGovernor governor_;
  struct RelayEntry {
    base::JobId job_id;
    Pause pause;
  };
  std::map<std::uint64_t, RelayEntry> relays_;  // by order
  std::unordered_map<base::JobId, EventId> checkpointed_;
  std::priority_queue<Look, std::vector<Look>, std::greater<>>
      looks_;  // one of each stream, and of some forgotten ones
  struct Entry {
    StreamPtr stream;
    Tenant* tenant = nullptr;
    std::optional<std::int64_t> finished_ms;
  };
  std::unordered_map<base::JobId, Entry> streams_;  // destroyed before the rest: streams report to it
  AnswerQueue answers_;                             // destroyed first: it holds streams
};

}  // namespace llorch::orchestratord::streams
