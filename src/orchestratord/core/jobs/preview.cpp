// What would become of a job, for who asks before submitting it.
#include <fmt/core.h>

#include <utility>

#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {
namespace {

void tell(wire::JobPreview& out, const base::Error& error) {
  const wire::ErrorBody body = wire::error_body(error, {});
  out.reason = body.code;
  out.message = body.message;
  out.retry_after_ms = body.retry_after_ms;
}

}  // namespace

// REQUIRES: nothing refuses the job.
wire::JobPreview Admissions::preview(const jobs::JobSpec& spec, ModelIndex model_index) {
  const std::size_t groups_before = model(model_index).groups.get().size();
  Job probe;
  probe.spec = spec;
  probe.model = model_index;
  probe.arrival = jobs_.next_arrival();
  probe.group = groups_.intern(model_index, spec, {});
  const bool batch = spec.priority == Priority::kBatch;
  wire::JobPreview out{
      .feasible = true,
      .queue_position = queue_.depth(Priority::kInteractive) + (batch ? queue_.depth(Priority::kBatch) : 0),
      .predicted_start_ms = s_.views.predicted_start(probe)};
  if (const auto overload = shed_error(probe.group, spec.priority)) {
    out = {};
    tell(out, *overload);
  } else if (const auto ahead = queue_.ahead_in(probe.group, spec.priority, probe.arrival); ahead > 0) {
    out.decision = {.outcome = "wait", .wait = std::string(placement::code(placement::WaitCode::kTurn))};
    out.reason = out.decision->wait;
    out.message = fmt::format("{} job{} for the same model would go first.", ahead, ahead == 1 ? "" : "s");
  } else {
    Scheduler::Preview decided = s_.scheduler.preview(probe);
    if (decided.wait) {
      wire::WaitReason why = s_.views.wait_reason(probe, decided.wait);
      out.reason = std::move(why.code);
      out.message = std::move(why.human);
    }
    out.decision = std::move(decided.decision);
  }
  if (model(model_index).groups.get().size() > groups_before) groups_.drop_if_empty(probe.group);
  return out;
}

void Admissions::on(QueryPreview& e) {
  const ModelIndex model_index = models_.intern(e.job.model);
  std::optional<base::Error> error;
  if (env_.draining()) {
    error = stopping_error();
  } else if (const std::size_t tenant = queue_.tenant_number(e.job.tenant_id);
             !(error = lasting_refusal(e.job, model_index)) && queue_.refuses(e.job.priority, tenant)) {
    error = queue_full_error(tenant);
  }
  wire::JobPreview out;
  if (error) {
    tell(out, *error);
  } else {
    out = preview(e.job, model_index);
  }
  out.model_ref = e.job.model.model_ref;
  out.tokens_in = e.job.tokens_in;
  out.max_tokens = e.job.max_tokens;
  emit(AnswerQueryPreview{e.request, std::move(out)});
}

}  // namespace llorch::orchestratord::core
