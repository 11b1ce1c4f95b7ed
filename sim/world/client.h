#pragma once
// Clients: each job of the workload has one, which submits, reads or polls, loses connections, comes back with its
// Last-Event-ID, stalls, cancels, and goes on until it knows how the job ended. Every byte it gets is checked.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"
#include "net/http/principal.h"
#include "net/sse/sse.h"
#include "sim/kernel/network.h"
#include "sim/world/exchange.h"
#include "sim/world/request.h"

namespace llorch::sim {

struct World;

constexpr int kClientsHost = 100;

struct ClientPlan {
  JobRequest request;
  std::int64_t submit_at_ms = 0;
  bool polls = false;
  std::vector<std::int64_t> disconnects_at;      // token counts
  std::optional<std::int64_t> stalls_at;         // a token count
  std::optional<std::int64_t> cancels_after_ms;  // after the submission
  int tries_after_refusal = 2;
};

class Client {
 public:
  Client(World& world, ClientPlan plan);

  Process& process() { return process_; }
  // It knows all it will ever know.
  bool done() const { return done_; }
  bool accepted() const { return accepted_; }
  void stop_stalling();

 private:
  class Reader;

  net::http::Principal principal() const;
  void submit();
  void refused(const base::Error& error);
  void follow();
  void read(bool with_claim);
  void reader_over(bool answered_410);
  void poll();
  void cancel();
  void unknown();
  void ended(std::string_view event, std::string_view data);
  bool take(const net::sse::Event& event);
  bool take_numbered(const net::sse::Event& event);
  void take_token(const net::sse::Event& event);
  void after_token();
  void wrong(const std::string& what);

  World& world_;
  const ClientPlan plan_;
  Process process_;
  bool accepted_ = false, done_ = false, ending_known_ = false, submitted_before_ = false;
  int refusals_ = 0;

  // What it holds of the stream.
  std::string last_event_id_;
  std::int64_t tokens_ = 0;
  std::int64_t next_seq_ = 0;
  base::Sha256 hash_;
  std::optional<bool> diverged_;
  std::size_t disconnects_ = 0;
  bool stalled_ = false;
  std::shared_ptr<Reader> reader_;
};

}  // namespace llorch::sim
