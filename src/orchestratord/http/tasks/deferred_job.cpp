#include "orchestratord/http/tasks/deferred_job.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "orchestratord/http/tasks/collector.h"
#include "orchestratord/http/tasks/job_view.h"
#include "orchestratord/http/tenancy.h"

namespace llorch::orchestratord::http::tasks {
namespace {

bool is_loss(std::string_view code) { return code == base::info(base::ErrorCode::kPayloadLost).name; }

class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(const Context& context, Submitter& submitter, DeferredJobPtr job, DeferredEvents events, DeferredOptions options)
      : context_(context),
        submitter_(submitter),
        job_(std::move(job)),
        events_(std::move(events)),
        options_(options),
        asked_unix_ms_(options.asked_unix_ms.value_or(context.clock->now().unix_ms)) {}

  void submit() {
    context_.request_executor->post([self = shared_from_this()] { self->submit_now(); });
  }

 private:
  void submit_now() {
    Submission submission = job_->submission;
    wire::SubmitRequest& request = submission.request;
    if (tries_ > 0) request.task_id = uuid_of_name(fmt::format("{}/{}", *request.task_id, tries_));
    if (seed_) request.seed = seed_;
    request.on_disconnect = wire::OnDisconnect::kResume;
    submission.counted = options_.count == DeferredCount::kOnArrival;
    submission.charged_max_tokens = charged_max_tokens_;
    submission.is_resumed = options_.asked_unix_ms.has_value();
    submitter_.submit(std::move(submission), [self = shared_from_this()](base::Result<Admission> admission) {
      self->context_.files->post(
          [self, admission = std::move(admission)]() mutable { self->on_admission(std::move(admission)); });
    });
  }

  void on_admission(base::Result<Admission> admission) {
    if (!admission) return events_.done(base::fail(std::move(admission).error()));
    if (!first_) first_ = admission->reply;
    const base::JobId job_id(admission->reply.job_id);
    if (admission->stream == nullptr) return find_ended(job_id, admission->reading);
    auto done = [self = shared_from_this(), stream = admission->stream, job_id,
                 reading = admission->reading](std::optional<base::Result<net::Response>> answer) {
      if (!answer) return;
      // Let go of for want of memory, since it was found: its tokens are held no more.
      const bool is_gone = !*answer && answer->error().code == base::ErrorCode::kStreamOffsetGone;
      if (is_gone || is_loss(stream->error_code().value_or(""))) return self->find_ended(job_id, reading);
      self->events_.done(*std::move(answer));
    };
    // Ahead of every client, so that what is done with the answer is begun before a client has its end.
    auto collector = std::make_shared<Collector>(*context_.files, std::move(done));
    const bool is_held = admission->stream->attach({.exchange = std::move(collector),
                                                    .renderer = job_->make_renderer(*first_, admission->reading),
                                                    .correlation_id = job_->submission.correlation_id,
                                                    .goes_first = true},
                                                   context_.clock->now().mono_ms);
    if (is_held) events_.admitted(*first_, *admission);  // else nobody else could read it either
  }

  void find_ended(const base::JobId& job_id, const std::shared_ptr<const chat::Reading>& reading) {
    context_.store->find(
        job_id, [self = shared_from_this(), reading](base::Result<std::optional<store::JobRecord>> found) {
          self->context_.files->post([self, reading, found = std::move(found)] { self->on_ended(found, reading); });
        });
  }

  void on_ended(const base::Result<std::optional<store::JobRecord>>& found,
                const std::shared_ptr<const chat::Reading>& reading) {
    if (!found) return events_.done(base::fail(found.error()));
    const store::JobRecord* record = *found ? &**found : nullptr;
    const bool has_completed = record != nullptr && record->progress.status == wire::JobStatus::kCompleted;
    if (record != nullptr && !has_completed && record->progress.error && !is_loss(record->progress.error->code)) {
      const auto renderer = job_->make_renderer(*first_, reading);
      std::string body;
      renderer->error(*record->progress.error, std::nullopt, body);
      auto head = renderer->head();
      return events_.done(net::Response{head.status, std::move(head.headers), std::move(body)});
    }
    if (record != nullptr) seed_ = record->seed;
    if (record != nullptr && is_charged(record->progress)) charged_max_tokens_ = record->max_tokens;
    ++tries_;
    submit();
  }

  // Whether this end is the one that the caller was charged for, and has not seen because a process ended or its stream was let go of.
  // What completed before the caller asked, he may have had and deleted.
  bool is_charged(const store::JobProgress& progress) const {
    return progress.status == wire::JobStatus::kCompleted && progress.finished_unix_ms.value_or(0) >= asked_unix_ms_;
  }

  const Context& context_;
  Submitter& submitter_;
  const DeferredJobPtr job_;
  const DeferredEvents events_;
  const DeferredOptions options_;
  const std::int64_t asked_unix_ms_;
  std::optional<wire::SubmitReply> first_;
  std::optional<std::uint64_t> seed_;               // of the first try
  std::optional<std::int64_t> charged_max_tokens_;  // of one that completed
  int tries_ = 0;
};

}  // namespace

bool may_pass(const Context& context, const base::Error& refusal) {
  if (refusal.code == base::ErrorCode::kPoolUnavailable) return !context.pools->all_are_here();
  return base::info(refusal.code).retriable;
}

void run_deferred(const Context& context, Submitter& submitter, const DeferredJobPtr& job, DeferredEvents events,
                  DeferredOptions options) {
  std::make_shared<Run>(context, submitter, job, std::move(events), options)->submit();
}

}  // namespace llorch::orchestratord::http::tasks
