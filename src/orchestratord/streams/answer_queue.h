#pragma once
// Whose whole answer is made next. One is made at a time, those of a tenant in the order of their jobs' ends, tenants by turns:
// however many answers somebody asks for, who waits for the executor or for an answer waits for one of them.
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "net/executor.h"

namespace llorch::orchestratord::streams {

// Thread-safe. REQUIRES: the executor outlives it, and runs nothing any more when it ends.
class AnswerQueue {
 public:
  // `executor`: null where nobody asks for a whole answer.
  explicit AnswerQueue(net::Executor* executor) : executor_(executor) {}

  // Runs `make` on the executor. Never within this call.
  void add(const std::string& tenant_id, std::function<void()> make);

 private:
  void make_next();
  void end_turn();

  net::Executor* const executor_;
  std::mutex mutex_;
  std::map<std::string, std::deque<std::function<void()>>> waiting_;  // by tenant; none is empty
  std::deque<std::string> turns_;                                     // the tenants that wait, each once
  bool is_making_ = false;
};

}  // namespace llorch::orchestratord::streams
