#include "sim/check/restart_rules.h"

#include <fmt/core.h>

#include <algorithm>

#include "sim/check/oracle.h"
#include "wire/json.h"

namespace llorch::sim {

namespace jobs = orchestratord::core::jobs;

namespace {

// The first thing that differs; empty: nothing.
std::string difference(const core::jobs::JobSpec& one, const core::jobs::JobSpec& other) {
  if (one.correlation_id.value != other.correlation_id.value) return "correlation_id";
  if (wire::encode(one.model) != wire::encode(other.model)) return "model";
  if (one.priority != other.priority) return "priority";
  if (one.tokens_in != other.tokens_in) return "tokens_in";
  if (one.max_tokens != other.max_tokens) return "max_tokens";
  if (one.timeout_ms != other.timeout_ms) return "timeout_ms";
  if (one.deadline_ms != other.deadline_ms) return "deadline_ms";
  if (one.placement != other.placement) return "placement";
  if (one.session_id != other.session_id) return "session_id";
  if (one.tenant_id != other.tenant_id) return "tenant_id";
  return {};
}

}  // namespace

void RestartRules::commanded(const core::Command& command) {
  if (const auto* admission = std::get_if<core::CommitAdmission>(&command)) {
    Known& known = jobs_.at(admission->job_id.value);
    known.session_key.reset();
    if (admission->session) known.session_key = admission->session->key;
    known.told = {};
    known.may_be = {known.told};
    return;
  }
  const auto* transition = std::get_if<core::CommitTransition>(&command);
  if (transition == nullptr) return;
  const core::jobs::JobRecord& record = transition->record;
  Known& known = jobs_.at(record.job_id.value);
  known.told.status = record.status;
  known.told.attempts = record.attempts;
  if (record.worker_version) known.told.worker_version = *record.worker_version;
  known.may_be.push_back(known.told);
  open_[transition->commit.value] = {record.job_id.value, known.told};
}

void RestartRules::heard(const core::Event& event) {
  if (const auto* submit = std::get_if<core::Submit>(&event)) {
    jobs_[submit->job.job_id.value] = {.spec = submit->job};
  } else if (const auto* committed = std::get_if<core::Committed>(&event)) {
    for (const core::CommitId& commit : committed->commits) {
      const auto node = open_.extract(commit.value);
      if (!node) continue;
      // What was told before it can not be found any more.
      auto& may_be = jobs_.at(node.mapped().first).may_be;
      may_be.erase(may_be.begin(), std::find(may_be.begin(), may_be.end(), node.mapped().second));
    }
  } else if (const auto* restored = std::get_if<core::Restored>(&event)) {
    open_.clear();
    for (const core::jobs::RestoredJob& job : restored->jobs) check(job);
  }
}

void RestartRules::check(const core::jobs::RestoredJob& job) {
  const std::string& id = job.spec.job_id.value;
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return oracle_.violate("a restart brings a job that nobody submitted: " + id);
  Known& known = it->second;
  if (const std::string field = difference(known.spec, job.spec); !field.empty()) {
    oracle_.violate(fmt::format("a restart changes {} of {}", field, id));
  }
  if (job.session_key != known.session_key) oracle_.violate("a restart changes the session of " + id);
  if (!job.payload_available) oracle_.violate("a restart does not find the payload of " + id);
  const Progress found{job.status, job.attempts, job.worker_version};
  if (std::find(known.may_be.begin(), known.may_be.end(), found) == known.may_be.end()) {
    oracle_.violate(fmt::format("a restart takes {} for {} after {} attempts, last on '{}'; told was {}, {}, '{}'", id,
                                wire::enum_name(found.status), found.attempts, found.worker_version,
                                wire::enum_name(known.told.status), known.told.attempts, known.told.worker_version));
  }
  known.told = found;
  known.may_be = {found};
}

}  // namespace llorch::sim
