#include "orchestratord/http/core_port.h"

#include <utility>

namespace llorch::orchestratord::http {

struct CorePort::Waiting {
  virtual ~Waiting() = default;
};
template <class Answer>
struct CorePort::WaitingFor : Waiting {
  explicit WaitingFor(std::function<void(Answer)> call) : done(std::move(call)) {}
  const std::function<void(Answer)> done;
};

CorePort::CorePort(Post post) : post_(std::move(post)) {}
CorePort::~CorePort() = default;

template <class Event>
void CorePort::post(Event event) {
  post_(std::move(event));
}

template <class Answer, class Event>
void CorePort::ask(Event event, std::function<void(Answer)> done) {
  {
    const std::lock_guard lock(mutex_);
    event.request = core::RequestId{++count_};
    waiting_.emplace(core::RequestId{count_}, std::make_unique<WaitingFor<Answer>>(std::move(done)));
  }
  post_(std::move(event));
}

template <class Answer>
void CorePort::answer(Answer answer) {
  std::unique_ptr<Waiting> waiting;
  {
    const std::lock_guard lock(mutex_);
    const auto it = waiting_.find(answer.request);
    if (it == waiting_.end()) return;
    waiting = std::move(it->second);
    waiting_.erase(it);
  }
  dynamic_cast<WaitingFor<Answer>&>(*waiting).done(std::move(answer));
}

void CorePort::drop_all() {
  std::map<core::RequestId, std::unique_ptr<Waiting>> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(waiting_);
}

template void CorePort::post(core::CancelRequested);
template void CorePort::post(core::PoolDeregistered);
template void CorePort::post(core::WorkerReady);
template void CorePort::post(core::WorkerFailed);
template void CorePort::post(core::Committed);
template void CorePort::post(core::CommitFailed);
template void CorePort::post(core::StreamCounted);
template void CorePort::post(core::ExecuteStarted);
template void CorePort::post(core::ExecuteProgress);
template void CorePort::post(core::ExecuteEnded);
template void CorePort::post(core::QueueReviewed);
template void CorePort::post(core::Shutdown);

template void CorePort::ask(core::Submit, std::function<void(core::AnswerSubmit)>);
template void CorePort::ask(core::CancelRequested, std::function<void(core::AnswerCancel)>);
template void CorePort::ask(core::QueryJob, std::function<void(core::AnswerQueryJob)>);
template void CorePort::ask(core::QueryJobs, std::function<void(core::AnswerQueryJobs)>);
template void CorePort::ask(core::QueryPools, std::function<void(core::AnswerQueryPools)>);
template void CorePort::ask(core::QueryGauges, std::function<void(core::AnswerQueryGauges)>);
template void CorePort::ask(core::QueryPlacement, std::function<void(core::AnswerQueryPlacement)>);
template void CorePort::ask(core::QueryPreview, std::function<void(core::AnswerQueryPreview)>);
template void CorePort::ask(core::CountArrival, std::function<void(core::AnswerArrival)>);
template void CorePort::ask(core::OpenSession, std::function<void(core::AnswerSession)>);
template void CorePort::ask(core::QuerySession, std::function<void(core::AnswerSession)>);
template void CorePort::ask(core::CloseSession, std::function<void(core::AnswerSession)>);
template void CorePort::ask(core::QuerySessions, std::function<void(core::AnswerQuerySessions)>);
template void CorePort::ask(core::PoolSeen, std::function<void(core::AnswerPool)>);
template void CorePort::ask(core::PoolDeregistered, std::function<void(core::AnswerPool)>);
template void CorePort::ask(core::DrainPool, std::function<void(core::AnswerPoolControl)>);
template void CorePort::ask(core::UndrainPool, std::function<void(core::AnswerPoolControl)>);
template void CorePort::ask(core::ReloadPool, std::function<void(core::AnswerPoolControl)>);
template void CorePort::ask(core::PurgePool, std::function<void(core::AnswerPoolControl)>);
template void CorePort::ask(core::QueryPoolHealth, std::function<void(core::AnswerPoolHealth)>);

template void CorePort::answer(core::AnswerSubmit);
template void CorePort::answer(core::AnswerCancel);
template void CorePort::answer(core::AnswerQueryJob);
template void CorePort::answer(core::AnswerQueryJobs);
template void CorePort::answer(core::AnswerQueryPools);
template void CorePort::answer(core::AnswerQueryGauges);
template void CorePort::answer(core::AnswerQueryPlacement);
template void CorePort::answer(core::AnswerQueryPreview);
template void CorePort::answer(core::AnswerArrival);
template void CorePort::answer(core::AnswerSession);
template void CorePort::answer(core::AnswerQuerySessions);
template void CorePort::answer(core::AnswerPool);
template void CorePort::answer(core::AnswerPoolControl);
template void CorePort::answer(core::AnswerPoolHealth);

}  // namespace llorch::orchestratord::http
