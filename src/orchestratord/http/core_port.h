#pragma once
// How handlers talk to the core: events in, one answer per question. Thread-safe.
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "orchestratord/core/answers.h"
#include "orchestratord/core/events.h"

namespace llorch::orchestratord::http {

// Its templates are instantiated in core_port.cpp: what an Event is made of is compiled once, not by every handler.
class CorePort {
 public:
  using Post = std::function<void(core::Event)>;
  explicit CorePort(Post post);
  ~CorePort();

  // `Event` is one of those of core::Event.
  template <class Event>
  void post(Event event);

  // Posts `event` with a fresh `request`; `done` is called once, on the core's thread, with the answer. Not at all if
  // the core ends first: what it holds is then dropped.
  template <class Answer, class Event>
  void ask(Event event, std::function<void(Answer)> done);

  // The core's side: hands an Answer* command to whoever asked.
  template <class Answer>
  void answer(Answer answer);

  // Drops everyone who still waits.
  void drop_all();

 private:
  struct Waiting;
  template <class Answer>
  struct WaitingFor;

  const Post post_;
  std::mutex mutex_;
  std::uint64_t count_ = 0;
  std::map<core::RequestId, std::unique_ptr<Waiting>> waiting_;
};

}  // namespace llorch::orchestratord::http
