#pragma once
// What must hold of sessions and throttles, checked as it happens. Part of the oracle.
//
//  - What the rows of a session's jobs have used, and what those that live may still take, is within its budgets and turns,
//    over all lives; of a time budget, but for a millisecond per job that a restart found.
//  - A session ends when its client says so or its age does: not before its time, and not after it.
//  - A worker is called warm when the last job of the session ended well there.
//  - A caller is held up by a bucket that is empty and by nothing else.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "orchestratord/core/commands.h"
#include "orchestratord/core/events.h"
#include "sim/kernel/loop.h"
#include "sim/world/disk.h"
#include "sim/world/options.h"

namespace llorch::sim {

// A decision may be late by as much as the loop and a hang of the process make it.
constexpr std::int64_t kBoundSlackMs = 2'500;

class Oracle;

class SessionRules {
 public:
  SessionRules(Oracle& oracle, const Options& options, const Loop& loop)
      : oracle_(oracle), options_(options), loop_(loop) {}

  void life_begins(const Disk& disk);
  void heard(const orchestratord::core::Event& event);
  void commanded(const orchestratord::core::Command& command, const Disk& disk);
  void check_bounds();

 private:
  // Of a session that the core knows.
  struct Session {
    std::optional<std::int64_t> active_ms;  // its last use in this life
    std::int64_t jobs_live = 0;
    std::string last_worker;  // where its last job ended well
  };
  struct Bucket {
    double level = 0;
    std::int64_t filled_ms = 0;
  };
  struct Caller {
    Bucket requests, tokens;
  };
  struct Submission {
    std::string job, caller;  // no job: it arrives
    std::int64_t tokens = 0;
    bool counted = false;  // as a request
  };
  // Whether the last event is a reason to forget a session before its time.
  enum class Hearing : std::uint8_t { kOther, kMayForget };

  void on(const orchestratord::core::CommitAdmission& c, const Disk& disk);
  void on(const orchestratord::core::AnswerArrival& c, const Disk& disk);
  void on(const orchestratord::core::AnswerSubmit& c, const Disk& disk);
  void on(const orchestratord::core::CommitSession& c, const Disk& disk);
  void on(const orchestratord::core::ForgetSession& c, const Disk& disk);
  void on(const orchestratord::core::AnswerSession& c, const Disk& disk);
  void on(const orchestratord::core::Execute& c, const Disk& disk);
  void on(const orchestratord::core::PublishMetrics& c, const Disk& disk);
  void on(const orchestratord::core::Finish& c, const Disk& disk);
  template <class T>
  void on(const T&, const Disk&) {}
  void check_budgets(std::int64_t key, const Disk& disk);
  void check_refusal(const base::Error& error);
  void throttled(bool passed, bool enqueued);
  static void fill(Bucket& bucket, double per_second, double burst, std::int64_t now_ms);
  double burst(double per_second) const;

  Oracle& oracle_;
  const Options& options_;
  const Loop& loop_;
  std::map<std::int64_t, orchestratord::core::sessions::SessionRecord> records_;  // of all lives
  std::map<std::string, std::int64_t> key_of_;                                    // by job
  std::map<std::string, std::string> worker_of_;                                  // by job: where it ran last
  std::map<std::string, bool> warm_;  // by job: whether that is where its session's last job ended
  std::int64_t lives_ = 0;
  // Of this life:
  std::map<std::int64_t, Session> sessions_;
  std::map<std::string, Caller> callers_;
  std::optional<Submission> submission_;
  Hearing hearing_ = Hearing::kOther;
};

}  // namespace llorch::sim
