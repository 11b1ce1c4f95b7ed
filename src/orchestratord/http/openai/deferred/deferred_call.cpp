#include "orchestratord/http/openai/deferred/deferred_call.h"

#include <fmt/format.h>

#include <utility>

#include "orchestratord/http/openai/deferred/collector.h"
#include "orchestratord/http/tenancy.h"

namespace llorch::orchestratord::http::openai {
namespace {

class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(const Context& context, tasks::Submitter& submitter, DeferredCallPtr call, DeferredEvents events)
      : context_(context), submitter_(submitter), call_(std::move(call)), events_(std::move(events)) {}

  void submit() {
    task_id_ = tries_ == 0 ? call_->task_id : uuid_of_name(fmt::format("{}/{}", call_->task_id, tries_));
    context_.desk->post([self = shared_from_this()] { self->submit_now(); });
  }

 private:
  void submit_now() {
    tasks::Submission submission{.request = call_->call.submission,
                                 .caller = call_->caller,
                                 .correlation_id = call_->identity.correlation_id,
                                 .tool_use = call_->call.tool_use};
    submission.request.task_id = task_id_;
    submission.request.on_disconnect = wire::OnDisconnect::kResume;
    submitter_.submit(std::move(submission), [self = shared_from_this()](base::Result<tasks::Admission> admission) {
      self->context_.files->post(
          [self, admission = std::move(admission)]() mutable { self->on_admission(std::move(admission)); });
    });
  }

  void on_admission(base::Result<tasks::Admission> admission) {
    if (!admission) return events_.done(base::fail(std::move(admission).error()));
    if (admission->stream == nullptr) {
      ++tries_;
      return submit();
    }
    events_.admitted(job_id_of_task(call_->caller, task_id_), *admission);
    auto collector =
        std::make_shared<Collector>(*context_.files, [self = shared_from_this()](std::optional<net::Response> answer) {
          if (answer) self->events_.done(*std::move(answer));
        });
    admission->stream->attach({.exchange = std::move(collector),
                               .renderer = make_renderer(call_->call, call_->identity, admission->reading),
                               .correlation_id = call_->identity.correlation_id},
                              context_.clock->now().mono_ms);
  }

  const Context& context_;
  tasks::Submitter& submitter_;
  const DeferredCallPtr call_;
  const DeferredEvents events_;
  std::string task_id_;
  int tries_ = 0;
};

}  // namespace

void run_deferred(const Context& context, tasks::Submitter& submitter, const DeferredCallPtr& call,
                  DeferredEvents events) {
  std::make_shared<Run>(context, submitter, call, std::move(events))->submit();
}

}  // namespace llorch::orchestratord::http::openai
