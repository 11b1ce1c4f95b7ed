#pragma once
// A call whose answer nobody waits for on the line.
#include <functional>
#include <memory>
#include <string>

#include "orchestratord/http/openai/calls.h"
#include "orchestratord/http/tasks/deferred_job.h"

namespace llorch::orchestratord::http::openai {

using tasks::kDeferredRetryMs;

struct DeferredCall {
  Call call;  // REQUIRES a seed in its submission
  net::http::Principal caller;
  std::string task_id;  // a UUID
  AnswerIdentity identity;
};
using DeferredCallPtr = std::shared_ptr<const DeferredCall>;

tasks::DeferredJobPtr job_of(const DeferredCallPtr& call);

struct DeferredCallEvents {
  std::function<void(const base::JobId&, const tasks::Admission&)> admitted;
  std::function<void(base::Result<net::Response>)> done;
};

// tasks::run_deferred() of job_of(call).
void run_deferred(const Context& context, tasks::Submitter& submitter, const DeferredCallPtr& call,
                  DeferredCallEvents events, tasks::DeferredOptions options = {});

}  // namespace llorch::orchestratord::http::openai
