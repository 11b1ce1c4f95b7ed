#pragma once
// A call whose answer nobody waits for on the line: its job has a name that a later process finds again, and its answer is
// gathered.
#include <functional>
#include <memory>
#include <string>

#include "orchestratord/http/context.h"
#include "orchestratord/http/openai/calls.h"
#include "orchestratord/http/tasks/submit.h"

namespace llorch::orchestratord::http::openai {

// When what failed, and will pass, is tried again.
inline constexpr std::int64_t kDeferredRetryMs = 1000;

struct DeferredCall {
  Call call;  // REQUIRES a seed in its submission: whoever runs it once more gets the same bytes
  net::http::Principal caller;
  std::string task_id;  // a UUID; of the first try
  AnswerIdentity identity;
};
using DeferredCallPtr = std::shared_ptr<const DeferredCall>;

struct DeferredEvents {
  // The job has this id, under which it can be ended, and this stream, which others may read as well.
  std::function<void(const base::JobId&, const tasks::Admission&)> admitted;
  // The refusal, or the answer as the call's renderer has it. Not called where this process stops first: the next one runs
  // the call again.
  std::function<void(base::Result<net::Response>)> done;
};

// Submits the call, or finds its job again, and gathers the answer. A job that has ended, and whose tokens are held no more,
// is run again under the task's next name: its seed makes the same bytes. Events come on the thread of kept files.
// REQUIRES: `context` and `submitter` outlive the call.
void run_deferred(const Context& context, tasks::Submitter& submitter, const DeferredCallPtr& call,
                  DeferredEvents events);

}  // namespace llorch::orchestratord::http::openai
