#pragma once
// How handlers talk to the core: events in, one answer per question. Thread-safe.
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "orchestratord/core/commands.h"
#include "orchestratord/core/events.h"

namespace llorch::orchestratord::http {

class CorePort {
 public:
  using Post = std::function<void(core::Event)>;
  explicit CorePort(Post post) : post_(std::move(post)) {}

  void post(core::Event event) { post_(std::move(event)); }

  // Posts `event` with a fresh `request`; `done` is called once, on the core's thread, with the answer. Not at all if
  // the core ends first: what it holds is then dropped.
  template <class Answer, class Event>
  void ask(Event event, std::function<void(Answer)> done) {
    event.request = expect<Answer>(std::move(done));
    post_(std::move(event));
  }

  // The core's side: hands an Answer* command to whoever asked.
  template <class Answer>
  void answer(Answer answer) {
    core::Command command(std::move(answer));
    const core::RequestId id = std::get<Answer>(command).request;
    std::function<void(core::Command&)> done;
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
    std::map<core::RequestId, std::function<void(core::Command&)>> dropped;
    const std::lock_guard lock(mutex_);
    dropped.swap(waiting_);
  }

 private:
  template <class Answer>
  core::RequestId expect(std::function<void(Answer)> done) {
    const std::lock_guard lock(mutex_);
    const core::RequestId id{++count_};
    waiting_.emplace(id,
                     [done = std::move(done)](core::Command& command) { done(std::get<Answer>(std::move(command))); });
    return id;
  }

  const Post post_;
  std::mutex mutex_;
  std::uint64_t count_ = 0;
  std::map<core::RequestId, std::function<void(core::Command&)>> waiting_;
};

}  // namespace llorch::orchestratord::http
