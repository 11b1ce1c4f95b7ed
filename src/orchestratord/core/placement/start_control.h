#pragma once
// How often a model's worker may be started. A failed start is tried once more after a backoff; if that fails too, the
// jobs it was made for end with the pool's code and a new round begins. What is wrong with a pool's copy of the file says
// nothing about another pool's: the next one is asked at once, each pool once a round. Jobs that may run at other places
// have rounds of their own. The backoff is one for the model and keeps growing over rounds until a worker became ready, so
// that a broken model cannot keep a device busy with starts, however its jobs are placed.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/entropy.h"
#include "base/error.h"
#include "base/id.h"
#include "config/config.h"

namespace llorch::orchestratord::core::placement {

// The failed starts of one group since its last round ended.
class StartRound {
 public:
  enum class Verdict : std::uint8_t { kRetry, kGiveUp };

  // `other_pool`: one that is not ruled out could run the group's jobs, too. A pool that is ruled out may fail again: a reload starts
  // there what no job asked for. kGiveUp: its waiting jobs are to fail with `error`; the round starts anew.
  Verdict failed(const base::PoolId& pool, const std::string& gpu_id, const base::Error& error, bool other_pool);

  bool failed_on(const base::PoolId& pool, const std::string& gpu_id) const {
    return failed_on_.contains({pool, gpu_id});
  }
  // The pool started nothing at this place for now, for a reason that is none of the model's: no failure, but any other place with room
  // is better, also of the same pool, until the round is over. A pool that nothing starts in for a time is StartControl::put_off().
  void put_last(const base::PoolId& pool, const std::string& gpu_id) { put_last_.emplace(pool, gpu_id); }
  bool comes_last(const base::PoolId& pool, const std::string& gpu_id) const {
    return failed_on(pool, gpu_id) || put_last_.contains({pool, gpu_id});
  }
  bool has_failures() const { return failures_ > 0; }
  // Its file is missing, broken or unknown there: nothing starts there while another pool could run the jobs.
  bool is_ruled_out(const base::PoolId& pool) const { return ruled_out_.contains(pool); }
  bool rules_out_any() const { return !ruled_out_.empty(); }

 private:
  std::int64_t failures_ = 0;  // that say nothing of a file
  std::set<std::pair<base::PoolId, std::string>> failed_on_, put_last_;
  std::set<base::PoolId> ruled_out_;
};

class StartControl {
 public:
  void failed(const base::Error& error, const config::RetryConfig& retry, std::int64_t now_ms, base::Entropy& entropy);
  // A round goes on in another pool. It waits for nothing, unless this pool is the second time in the way of one.
  void ruled_out(const base::PoolId& pool, const base::Error& error, const config::RetryConfig& retry,
                 std::int64_t now_ms, base::Entropy& entropy);
  // Something outside the model failed (the pool was lost): wait, count nothing.
  void postpone(std::int64_t until_ms) { not_before_ms_ = std::max(not_before_ms_, until_ms); }
  // The pool's disk does not give the file now, which says nothing of the model: until then nothing starts there while another pool could
  // run the jobs.
  void put_off(const base::PoolId& pool, std::int64_t now_ms, std::int64_t until_ms) {
    std::erase_if(put_off_until_ms_, [&](const auto& item) { return item.second <= now_ms; });
    put_off_until_ms_[pool] = until_ms;
  }
  bool is_put_off(const base::PoolId& pool, std::int64_t now_ms) const {
    const auto it = put_off_until_ms_.find(pool);
    return it != put_off_until_ms_.end() && now_ms < it->second;
  }
  bool puts_off_any(std::int64_t now_ms) const {
    return std::ranges::any_of(put_off_until_ms_, [&](const auto& item) { return now_ms < item.second; });
  }
  void ready();

  struct CrashLimits {
    std::int64_t crashes_max = 5;  // within the window; 0: crashes are not counted
    std::int64_t window_ms = 300'000;
  };
  // A worker that had been ready was lost. The first start after it is free; from the second crash within the window on
  // the next start backs off, and after crashes_max it waits until the oldest has left the window. A worker becoming
  // ready does not clear this: in a storm of crashes every worker becomes ready first.
  void crashed(const base::Error& error, const CrashLimits& limits, const config::RetryConfig& retry,
               std::int64_t now_ms, base::Entropy& entropy);
  std::int64_t crashes_count() const { return static_cast<std::int64_t>(crashes_ms_.size()); }

  bool backing_off(std::int64_t now_ms) const { return now_ms < not_before_ms_; }
  std::int64_t not_before_ms() const { return not_before_ms_; }
  const std::optional<base::Error>& last_error() const { return last_error_; }

 private:
  std::int64_t failures_in_a_row_ = 0;
  std::int64_t not_before_ms_ = 0;
  std::optional<base::Error> last_error_;
  std::map<base::PoolId, std::int64_t> put_off_until_ms_;
  std::set<base::PoolId> passed_over_;   // pools that a round went on from without a backoff, since the last one
  std::deque<std::int64_t> crashes_ms_;  // within the window, oldest first
};

}  // namespace llorch::orchestratord::core::placement
