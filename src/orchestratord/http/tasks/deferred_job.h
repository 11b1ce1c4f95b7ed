#pragma once
// A job whose answer nobody waits for on the line: it has a name that a later process finds again, and its answer is gathered.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "orchestratord/http/context.h"
#include "orchestratord/http/tasks/submit.h"

namespace llorch::orchestratord::http::tasks {

// When what failed, and will pass, is tried again.
inline constexpr std::int64_t kDeferredRetryMs = 1000;

struct DeferredJob {
  Submission submission;  // REQUIRES a task_id
  // Of each try. `first`: of the first one, whose ids the answer has.
  std::function<std::shared_ptr<streams::Renderer>(const wire::SubmitReply& first,
                                                   std::shared_ptr<const chat::Reading>)>
      make_renderer;
};
using DeferredJobPtr = std::shared_ptr<const DeferredJob>;

struct DeferredEvents {
  // The job of a try: its id, under which it can be ended, and its stream, which others may read as well.
  std::function<void(const wire::SubmitReply& first, const Admission& now)> admitted;
  // The refusal, or the answer as the renderer has it. Not called where this process stops first: the next one runs the job again.
  std::function<void(base::Result<net::Response>)> done;
};

// Whether the throttle has counted the request that the job came with, or counts each job.
enum class DeferredCount : std::uint8_t { kOnArrival, kEach };
struct DeferredOptions {
  DeferredCount count = DeferredCount::kOnArrival;
  // When an earlier process was asked for the job; absent: this one was. What has completed since then was charged, so what runs again
  // in its place is not. A job under the task's name is the task's, also where that process read its request otherwise.
  std::optional<std::int64_t> asked_unix_ms{};
};

// Whether what was refused now may be admitted later, so that work that was accepted waits for it. Where no device of any pool is
// large enough (POOL_UNAVAILABLE), only a pool that is paired and not here may change that.
bool may_pass(const Context& context, const base::Error& refusal);

// Submits the job, or finds it again, and gathers its answer. One that has completed, and whose tokens are held no more, is
// run again under the task's next name: its seed makes the same bytes. So is one whose prompt did not outlive an earlier process
// (PAYLOAD_LOST), for the caller has its request. A client that goes ends nothing (on_disconnect). Events
// come on the thread of kept files. REQUIRES: `context` and `submitter` outlive the job.
void run_deferred(const Context& context, Submitter& submitter, const DeferredJobPtr& job, DeferredEvents events,
                  DeferredOptions options = {});

}  // namespace llorch::orchestratord::http::tasks
