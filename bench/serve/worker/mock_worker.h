#pragma once
// A worker that decodes nothing: answers POST /execute as worker-orcd does (events `started`, `token`, `end` with a
// receipt; one HTTP chunk per event) at a set rate, or as fast as the sockets take it. One thread.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/sha256.h"
#include "bench/serve/io/sockets.h"
#include "wire/worker.h"
#include "net/h1/wire.h"

namespace llorch::bench {

inline constexpr std::string_view kModelDigest = "sha256:relay-bench";

struct MockWorkerOptions {
  double tokens_per_s = 0;        // of each job; 0: as fast as they are taken
  std::int64_t burst_tokens = 1;  // in one write, when as fast as they are taken
  bool stamps = false;            // the text of a token is its time of sending, 16 hex digits of now_ns()
  std::int64_t hold_after = -1;   // a job falls silent after so many tokens
};

class MockWorker {
 public:
  explicit MockWorker(MockWorkerOptions options);
  std::uint16_t port() const { return port_; }
  // Until `stop`.
  void run(const std::atomic<bool>& stop);

 private:
  struct Job {
    wire::ExecuteRequest request;
    std::int64_t next = 0;
    base::Sha256 output;
    std::int64_t due_ns = 0;
  };
  struct Connection {
    explicit Connection(net::h1::ChunkPool& chunks) : parser({}, chunks) {}
    Fd fd;
    net::h1::RequestParser parser;
    std::string in;
    std::string out;
    std::size_t sent = 0;
    std::optional<Job> job;
    std::uint64_t number = 0;
    bool listed = false;  // in taking_
  };
  using ConnectionPtr = std::shared_ptr<Connection>;
  struct Due {
    std::int64_t at_ns = 0;
    std::uint64_t number = 0;
    bool operator>(const Due& other) const { return at_ns > other.at_ns; }
  };

  void accept_all();
  void on_event(std::uint64_t number, std::uint32_t events);
  bool read(Connection& connection);
  void take_request(Connection& connection);
  void begin(Connection& connection, wire::ExecuteRequest request);
  bool waits(const Job& job) const;
  void send_due(std::int64_t now);
  void go_on(Connection& connection);
  void send_as_taken();
  bool write_tokens(Connection& connection, std::int64_t count);
  void write_token(Connection& connection);
  void write_end(Connection& connection);
  bool flush(Connection& connection);
  void drop(std::uint64_t number);

  const MockWorkerOptions options_;
  std::uint16_t port_ = 0;
  Fd listener_;
  Poller poller_;
  std::uint64_t next_number_ = 1;  // 0 is the listener
  net::h1::ChunkPool chunks_;  // outlives the connections
  std::unordered_map<std::uint64_t, ConnectionPtr> connections_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<std::uint64_t> taking_;  // jobs that go as fast as they are taken
};

}  // namespace llorch::bench
