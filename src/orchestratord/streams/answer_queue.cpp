#include "orchestratord/streams/answer_queue.h"

#include <utility>

#include "base/assert.h"

namespace llorch::orchestratord::streams {

void AnswerQueue::add(const std::string& tenant_id, std::function<void()> make) {
  ASSERT(executor_ != nullptr, "a hub without an executor makes no whole answer");
  {
    const std::lock_guard lock(mutex_);
    std::deque<std::function<void()>>& waiting = waiting_[tenant_id];
    if (waiting.empty()) turns_.push_back(tenant_id);
    waiting.push_back(std::move(make));
    if (std::exchange(is_making_, true)) return;
  }
  executor_->post([this] { make_next(); });
}

void AnswerQueue::make_next() {
  struct Turn {  // ends also where a library throws
    AnswerQueue& queue;
    ~Turn() { queue.end_turn(); }
  };
  const Turn turn{*this};
  std::function<void()> make;  // gone before the turn ends: what it holds may be large
  {
    const std::lock_guard lock(mutex_);
    const auto tenant = waiting_.find(turns_.front());
    make = std::move(tenant->second.front());
    tenant->second.pop_front();
    if (tenant->second.empty()) {
      waiting_.erase(tenant);
    } else {
      turns_.push_back(tenant->first);
    }
    turns_.pop_front();
  }
  make();
}

void AnswerQueue::end_turn() {
  {
    const std::lock_guard lock(mutex_);
    if (turns_.empty()) {
      is_making_ = false;
      return;
    }
  }
  executor_->post([this] { make_next(); });  // behind what came to the executor meanwhile
}

}  // namespace llorch::orchestratord::streams
