#include "orchestratord/http/openai/deferred/deferred_call.h"

#include <utility>

namespace llorch::orchestratord::http::openai {

tasks::DeferredJobPtr job_of(const DeferredCallPtr& call) {
  auto job = std::make_shared<tasks::DeferredJob>();
  job->submission = {.request = call->call.submission,
                     .caller = call->caller,
                     .correlation_id = call->identity.correlation_id,
                     .tool_use = call->call.tool_use,
                     .long_outputs = tasks::LongOutputs::kCut};
  job->submission.request.task_id = call->task_id;
  job->make_renderer = [call](const wire::SubmitReply&, std::shared_ptr<const chat::Reading> reading) {
    return make_renderer(call->call, call->identity, std::move(reading));
  };
  return job;
}

void run_deferred(const Context& context, tasks::Submitter& submitter, const DeferredCallPtr& call,
                  DeferredCallEvents events, tasks::DeferredOptions options) {
  tasks::run_deferred(context, submitter, job_of(call),
                      {.admitted = [admitted = std::move(events.admitted)](
                                       const wire::SubmitReply&,
                                       const tasks::Admission& now) { admitted(base::JobId(now.reply.job_id), now); },
                       .done = std::move(events.done)},
                      options);
}

}  // namespace llorch::orchestratord::http::openai
