#pragma once
// What the core answers to those who asked it, by the RequestId of the question, and what it lets everybody know unasked.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "orchestratord/core/jobs/ids.h"
#include "orchestratord/core/sessions/standing.h"
#include "orchestratord/core/view.h"
#include "wire/placement_snapshot.h"
#include "wire/pool_control.h"
#include "wire/session.h"
#include "wire/task.h"

namespace llorch::orchestratord::core {

using jobs::RequestId;

struct Admission {
  std::int64_t queue_position = 0;
  std::int64_t predicted_start_ms = 0;
  std::int64_t backoff_ms = 0;
  wire::BudgetRemaining budget;  // of its session
};
// 202, or the refusal. QUEUE_FULL carries policy_label and retry_after_ms in its details. After a refusal the shell
// forgets the job: no row exists.
struct AnswerSubmit {
  RequestId request;
  base::JobId job_id;
  base::Result<Admission> result;
};
// `status` absent: no such live job, look in the store. kCancelled: done and durable (200/202 "cancelled").
// Another terminal status: the job had ended so before. kRunning: "cancelling" — the stream is sealed, but the store has
// not confirmed within the cancellation deadline.
struct AnswerCancel {
  RequestId request;
  base::JobId job_id;
  std::optional<wire::JobStatus> status;
};
struct AnswerQueryJob {
  RequestId request;
  std::optional<LiveJob> job;
};
struct AnswerQueryJobs {
  RequestId request;
  std::vector<LiveJob> jobs;  // oldest admission first
};
struct AnswerQueryPools {
  RequestId request;
  std::vector<PoolView> pools;  // by pool_id
  bool store_failing = false;
};
struct AnswerQueryGauges {
  RequestId request;
  Gauges gauges;
};
struct AnswerQueryPlacement {
  RequestId request;
  wire::PlacementSnapshot snapshot;
};
struct AnswerQueryPreview {
  RequestId request;
  wire::JobPreview preview;
};
struct AnswerArrival {
  RequestId request;
  std::optional<base::Error> refusal;
};
struct AnswerSession {
  RequestId request;
  base::Result<wire::SessionView> result;
  bool created = false;  // by this OpenSession
};
struct AnswerQuerySessions {
  RequestId request;
  std::vector<wire::SessionView> sessions;  // by session_id
};
struct AnswerPool {
  RequestId request;
  base::Result<std::int64_t> heartbeat_interval_ms;
};

struct AnswerPoolControl {
  RequestId request;
  base::Result<wire::PoolControlReply> result;
};
struct AnswerPoolHealth {
  RequestId request;
  std::optional<wire::PoolHealthReport> health;  // absent: no such pool
};

// ---- limits ------------------------------------------------------------------------------------------------------
// The limits that would refuse a submission now, published at every change, so that the API refuses before anybody
// works on the submission. The core still decides, when it gets Submit.
struct PublishStanding {
  std::string tenant_id;  // one that has limits, or had until SetLimits
  sessions::Standing standing;
};
struct PublishQueueRoom {
  struct Refusal {
    std::array<bool, 2> refuses{};  // by priority
    base::Error error;
  };
  std::map<std::string, Refusal> refusals;  // of tenants whose newcomers a full queue refuses; "": of who is no tenant
};

}  // namespace llorch::orchestratord::core
