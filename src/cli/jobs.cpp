// ps, show, cancel: the queue as a person sees it.
#include <fmt/core.h>

#include "base/id.h"
#include "cli/commands.h"
#include "wire/json.h"
#include "wire/task.h"

namespace llorch::cli {
namespace {

using wire::JobView;

std::string status_word(const JobView& job) { return std::string(wire::enum_name(job.status)); }

std::string waiting_for(const JobView& job) {
  if (job.error) return job.error->code;
  if (job.reason) return job.reason->human;
  return "";
}

base::Result<std::string> checked(const std::string& job_id) {
  if (base::is_valid_identifier(job_id)) return job_id;
  return base::fail(base::ErrorCode::kInvalidParams, "a job id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
}

base::Result<std::string> fetch(const GlobalOptions& global, const std::string& method, const std::string& path) {
  auto api = TRY(Api::connect(global));
  return api->call(method, path);
}

}  // namespace

int ps(const GlobalOptions& global) {
  const auto body = fetch(global, "GET", "/v2/tasks");
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto list = wire::decode<wire::JobList>(*body);
  if (!list) return report(list.error(), global.json);
  std::vector<std::vector<std::string>> rows;
  for (const JobView& job : list->tasks) {
    rows.push_back({job.job_id, status_word(job), job.model,
                    job.queue_position ? std::to_string(*job.queue_position) : "-",
                    fmt::format("{}/{}", job.tokens_in, job.tokens_out), job.submitted_at, waiting_for(job)});
  }
  print_table({"JOB", "STATUS", "MODEL", "POS", "IN/OUT", "SUBMITTED", "WHY"}, rows);
  return kOk;
}

int show_job(const GlobalOptions& global, const std::string& job_id) {
  const auto id = checked(job_id);
  if (!id) return report(id.error(), global.json);
  const auto body = fetch(global, "GET", "/v2/tasks/" + *id);
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto job = wire::decode<JobView>(*body);
  if (!job) return report(job.error(), global.json);
  fmt::print(
      "job        {}\nstatus     {}\nmodel      {} ({})\nsubmitted  {}\nattempts   {}\ntokens     {} in, {} out\n",
      job->job_id, status_word(*job), job->model, job->model_ref, job->submitted_at, job->attempts, job->tokens_in,
      job->tokens_out);
  if (job->queue_position) fmt::print("position   {}\n", *job->queue_position);
  if (job->predicted_start_ms) fmt::print("starts in  {} ms (predicted)\n", *job->predicted_start_ms);
  if (job->reason) fmt::print("waits for  {} ({})\n", job->reason->human, job->reason->code);
  if (job->worker_id) fmt::print("worker     {}\n", *job->worker_id);
  if (job->started_at) fmt::print("started    {}\n", *job->started_at);
  if (job->finished_at) fmt::print("finished   {}\n", *job->finished_at);
  if (job->error) fmt::print("error      {}: {}\n", job->error->code, job->error->message);
  if (job->receipt) {
    fmt::print(
        "receipt    model {}\n           build {} numerics {} device {} kv {} sampler {}\n           seed {} output "
        "{}\n",
        job->receipt->model_digest, job->receipt->engine_build, job->receipt->numerics, job->receipt->device_class,
        job->receipt->kv_dtype, job->receipt->sampler, job->receipt->seed, job->receipt->output_sha256);
  }
  return kOk;
}

int cancel_job(const GlobalOptions& global, const std::string& job_id) {
  const auto id = checked(job_id);
  if (!id) return report(id.error(), global.json);
  const auto body = fetch(global, "POST", "/v2/tasks/" + *id + "/cancel");
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto reply = wire::decode<wire::CancelReply>(*body);
  if (!reply) return report(reply.error(), global.json);
  fmt::print("{}: {}\n", reply->job_id, reply->status);
  return kOk;
}

}  // namespace llorch::cli
