#pragma once
// What a step gives to all owners of the core's state: time, settings, timers, and the way out for commands.
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log_limiter.h"
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

class Env {
 public:
  Env(CoreConfig config, base::Entropy& entropy) : config_(std::move(config)), entropy_(entropy) {}

  // REQUIRES: time does not go back.
  void begin_step(base::Time now, std::vector<Command>& out);
  // From here on there are no admissions and no dispatches.
  void begin_draining() { draining_ = true; }
  bool draining() const { return draining_; }

 private:
  friend class Owner;
  const CoreConfig config_;
  base::Entropy& entropy_;
  base::Time now_;
  std::vector<Command>* out_ = nullptr;  // of the step that runs
  TimerQueue timers_;
  Recheck recheck_;
  struct LineKind {
    std::string_view event;
    base::LogLevel level;
    std::string pool_id;  // of what a node causes; else ""
    auto operator<=>(const LineKind&) const = default;
  };
  std::map<LineKind, base::LogLimiter> limited_lines_;
  bool draining_ = false;
};

// A value in a row that the keeper of a table hands out: everybody reads it, the keeper alone writes it.
template <class T, class Keeper>
class WrittenBy {
 public:
  operator const T&() const { return value_; }
  const T& get() const { return value_; }
  // Of an optional value: its own.
  explicit operator bool() const requires requires(const T& value) { value.has_value(); }
  { return value_.has_value(); }
  const T& operator->() const { return value_; }
  const auto& operator*() const { return *value_; }

 private:
  friend Keeper;
  WrittenBy& operator=(T value) {
    value_ = std::move(value);
    return *this;
  }
  T value_{};
};

// A part of the state and what happens to it. Nobody else changes its tables.
class Owner {
 protected:
  explicit Owner(Env& env) : env_(env) {}
  template <class T>
  void emit(T command) const {
    env_.out_->emplace_back(std::move(command));
  }
  void log(base::LogLevel level, std::string_view event, const Job* job, std::string human,
           std::vector<base::LogField> fields = {}) const;
  void log(base::LogLevel level, std::string_view event, std::string human,
           std::vector<base::LogField> fields = {}) const {
    log(level, event, nullptr, std::move(human), std::move(fields));
  }
  // The same of what clients or pools decide how often it happens: so many lines of an event and level in each period, as many as honest
  // ones cause; without a job, of each pool. REQUIRES: `event` is a literal.
  void log_limited(base::LogLevel level, std::string_view event, const Job* job, std::string human,
                   std::vector<base::LogField> fields = {}) const;
  void count(Metric metric, std::string_view label = {}, std::int64_t value = 1, Priority priority = {}) const {
    emit(Count{metric, std::string(label), priority, value});
  }
  void recheck_all_at(std::int64_t when_ms) { timers_.arm(when_ms, {.kind = TimerKind::kSchedule}); }

  Env& env_;
  const CoreConfig& config_ = env_.config_;
  base::Entropy& entropy_ = env_.entropy_;
  const base::Time& now_ = env_.now_;
  TimerQueue& timers_ = env_.timers_;
  Recheck& recheck_ = env_.recheck_;
};

base::Error stopping_error();
base::Error store_error(std::string_view consequence);

}  // namespace llorch::orchestratord::core
