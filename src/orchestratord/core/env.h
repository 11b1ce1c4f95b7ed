#pragma once
// What a step gives to all owners of the core's state: time, settings, timers, and the way out for commands.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orchestratord/core/core.h"
#include "orchestratord/core/timers.h"

namespace llorch::orchestratord::core {

using jobs::GroupIndex;
using wire::Priority;

struct Job;
struct JobGroup;
struct Model;
struct State;

// Which groups the scheduling pass decides anew: those that something has changed for since the last one.
class Recheck {
 public:
  void all() { all_ = true; }
  void group(GroupIndex index) { groups_.push_back(index); }
  void groups(const std::vector<GroupIndex>& more) { groups_.insert(groups_.end(), more.begin(), more.end()); }
  // Of a group that waits: looked at by the next pass, which can wait.
  void at_next_pass(GroupIndex index) { at_next_pass_.push_back(index); }

  bool is_due() const { return all_ || !groups_.empty(); }
  bool is_for_all() const { return all_; }
  // The groups named since it was last taken; what follows is for the next pass.
  std::vector<GroupIndex> take() {
    all_ = false;
    std::vector<GroupIndex> taken = std::exchange(groups_, {});
    taken.insert(taken.end(), at_next_pass_.begin(), at_next_pass_.end());
    at_next_pass_.clear();
    return taken;
  }

 private:
  bool all_ = false;
  std::vector<GroupIndex> groups_, at_next_pass_;
};

struct Env {
  Env(CoreConfig c, base::Entropy& e) : config(std::move(c)), entropy(e) {}

  const CoreConfig config;
  base::Entropy& entropy;
  base::Time now;
  std::vector<Command>* out = nullptr;
  TimerQueue timers;
  Recheck recheck;
  bool draining = false;  // no admissions and no dispatches any more
};

// A part of the state and what happens to it. Nobody else changes its tables.
class Owner {
 protected:
  explicit Owner(Env& env) : env_(env) {}
  template <class T>
  void emit(T command) const {
    env_.out->emplace_back(std::move(command));
  }
  void log(base::LogLevel level, std::string_view event, const Job* job, std::string human,
           std::vector<base::LogField> fields = {}) const;
  void log(base::LogLevel level, std::string_view event, std::string human,
           std::vector<base::LogField> fields = {}) const {
    log(level, event, nullptr, std::move(human), std::move(fields));
  }
  void count(Metric metric, std::string_view label = {}, std::int64_t value = 1, Priority priority = {}) const {
    emit(Count{metric, std::string(label), priority, value});
  }
  void recheck_all_at(std::int64_t when_ms) { timers_.arm(when_ms, {.kind = TimerKind::kSchedule}); }

  Env& env_;
  const CoreConfig& config_ = env_.config;
  base::Entropy& entropy_ = env_.entropy;
  const base::Time& now_ = env_.now;
  TimerQueue& timers_ = env_.timers;
  Recheck& recheck_ = env_.recheck;
};

base::Error stopping_error();
base::Error store_error(std::string_view consequence);

}  // namespace llorch::orchestratord::core
