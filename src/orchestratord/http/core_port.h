#pragma once
// How handlers talk to the brain: events in, one answer per question. Thread-safe.
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "orchestratord/brain/commands.h"
#include "orchestratord/brain/events.h"

namespace llorch::orchestratord::api {

class BrainPort {
 public:
  using Post = std::function<void(brain::Event)>;
  explicit BrainPort(Post post) : post_(std::move(post)) {}

  void post(brain::Event event) { post_(std::move(event)); }

  // Posts `event` with a fresh `request`; `done` is called once, on the brain's thread, with the answer. Not at all if
  // the brain ends first: what it holds is then dropped.
  template <class Answer, class Event>
  void ask(Event event, std::function<void(Answer)> done) {
    event.request = expect<Answer>(std::move(done));
    post_(std::move(event));
  }

  // The brain's side: hands an Answer* command to whoever asked.
  template <class Answer>
  void answer(Answer answer) {
    brain::Command command(std::move(answer));
    const brain::RequestId id = std::get<Answer>(command).request;
    std::function<void(brain::Command&)> done;
    {
      const std::lock_guard lock(mutex_);
      const auto it = waiting_.find(id);
      if (it == waiting_.end()) return;
      done = std::move(it->second);
      waiting_.erase(it);
    }
    done(command);
  }

  // Drops everyone who still waits.
  void drop_all() {
    std::map<brain::RequestId, std::function<void(brain::Command&)>> dropped;
    const std::lock_guard lock(mutex_);
    dropped.swap(waiting_);
  }

 private:
  template <class Answer>
  brain::RequestId expect(std::function<void(Answer)> done) {
    const std::lock_guard lock(mutex_);
    const brain::RequestId id{++count_};
    waiting_.emplace(id,
                     [done = std::move(done)](brain::Command& command) { done(std::get<Answer>(std::move(command))); });
    return id;
  }

  const Post post_;
  std::mutex mutex_;
  std::uint64_t count_ = 0;
  std::map<brain::RequestId, std::function<void(brain::Command&)>> waiting_;
};

}  // namespace llorch::orchestratord::api
