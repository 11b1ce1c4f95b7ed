#pragma once
// What the oracle wants to know of one life of orchestratord beyond events and commands: what its clients are told, and
// which situations it met. Never acts.
#include <map>
#include <set>
#include <string>

#include "net/server.h"
#include "orchestratord/core/commands.h"
#include "orchestratord/core/events.h"
#include "orchestratord/streams/stream_hub.h"

namespace llorch::sim {

struct World;

class Watch {
 public:
  explicit Watch(World& world) : world_(world) {}

  void heard(const orchestratord::core::Event& event);
  void commanded(const orchestratord::core::Command& command, const orchestratord::streams::StreamHub& hub);
  // A submission has come, and is answered.
  void submitted(const std::string& job);
  void submission_answered(const std::string& job, const net::Response& response);
  void cancel_asked(const std::string& job) const;
  void cancel_answered(const std::string& job, const net::Response& response) const;
  // Somebody wants the events of a job; and the status of the answer is known.
  void events_asked(const orchestratord::streams::StreamPtr& stream, const std::string& last_event_id) const;
  void events_answered(const std::string& job, int status, bool from_store) const;
  void crashes() const;

 private:
  World& world_;
  std::set<std::string> submitting_;                 // jobs, until their answer
  std::set<std::string> known_;                      // of those the ones that were on disk before
  std::set<std::uint64_t> in_mid_stream_;            // executions whose client would notice if the process died now
  std::map<std::string, std::int64_t> finished_ms_;  // by job
  std::set<std::string> starting_;                   // start calls without an answer
};

}  // namespace llorch::sim
