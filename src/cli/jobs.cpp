// ps, queue, show, cancel: jobs as a person sees them.
#include <fmt/core.h>

#include <algorithm>

#include "base/id.h"
#include "cli/commands.h"
#include "cli/terminal_text.h"
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

base::Result<std::string> fetch(const GlobalOptions& global, const std::string& method, const std::string& path) {
  auto api = TRY(Api::connect(global));
  return api->call(method, path);
}

// A call about one job: "/v2/tasks/{id}" and `rest`.
base::Result<std::string> fetch_job(const GlobalOptions& global, const std::string& method, const std::string& job_id,
                                    const std::string& rest = "") {
  auto api = TRY(Api::connect(global));
  const std::string id = TRY(whole_job_id(*api, job_id));
  return api->call(method, "/v2/tasks/" + id + rest);
}

}  // namespace

base::Result<std::string> whole_job_id(Api& api, const std::string& job_id) {
  if (!base::is_valid_identifier(job_id)) {
    return base::fail(base::ErrorCode::kInvalidParams, "a job id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
  }
  if (base::is_uuid(job_id)) return job_id;
  const std::string body = TRY(api.call("GET", "/v2/tasks?limit=1000"));
  const auto list = TRY(wire::decode<wire::JobList>(body));
  std::vector<std::string> found;
  for (const JobView& job : list.tasks) {
    if (job.job_id == job_id) return job_id;
    if (job.job_id.starts_with(job_id)) found.push_back(job.job_id);
  }
  if (found.size() > 1) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("{} jobs have an id that begins with {}, {} and {} among them: type more of it",
                                  found.size(), job_id, found[0], found[1]));
  }
  return found.empty() ? job_id : found.front();
}

int queue(const GlobalOptions& global) {
  const auto body = fetch(global, "GET", "/v2/tasks?limit=1000");
  if (!body) return report(body.error(), global.json);
  auto list = wire::decode<wire::JobList>(*body);
  if (!list) return report(list.error(), global.json);
  std::erase_if(list->tasks, [](const JobView& job) { return !job.queue_position; });
  std::ranges::sort(list->tasks, {}, [](const JobView& job) { return *job.queue_position; });
  if (global.json) return fmt::print("{}\n", wire::encode(*list)), kOk;
  std::vector<std::vector<std::string>> rows;
  for (const JobView& job : list->tasks) {
    const auto start_ms = job.predicted_start_ms;
    rows.push_back({std::to_string(*job.queue_position), job.job_id, job.model,
                    start_ms ? fmt::format("{:.1f} s", static_cast<double>(*start_ms) / 1000) : "?", waiting_for(job)});
  }
  print_table({"POS", "JOB", "MODEL", "STARTS IN", "WHY"}, rows);
  return kOk;
}

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
  const base::Error none{
      base::ErrorCode::kNotFound,
      fmt::format("{}: neither a model nor a job has this name or id; llorch ls lists models, llorch "
                  "ps jobs",
                  job_id),
      {}};
  if (!base::is_valid_identifier(job_id)) return report(none, global.json);  // no job's id
  const auto body = fetch_job(global, "GET", job_id);
  if (!body && body.error().code == base::ErrorCode::kJobNotFound) return report(none, global.json);
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto job = wire::decode<JobView>(*body);
  if (!job) return report(job.error(), global.json);
  print_text(
      "job        {}\nstatus     {}\nmodel      {} ({})\nsubmitted  {}\nattempts   {}\ntokens     {} in, {} out\n",
      job->job_id, status_word(*job), job->model, job->model_ref, job->submitted_at, job->attempts, job->tokens_in,
      job->tokens_out);
  if (job->queue_position) print_text("position   {}\n", *job->queue_position);
  if (job->predicted_start_ms) print_text("starts in  {} ms (predicted)\n", *job->predicted_start_ms);
  if (job->reason) print_text("waits for  {} ({})\n", without_controls(job->reason->human), job->reason->code);
  if (job->worker_id) print_text("worker     {}\n", *job->worker_id);
  if (job->started_at) print_text("started    {}\n", *job->started_at);
  if (job->finished_at) print_text("finished   {}\n", *job->finished_at);
  if (job->error) print_text("error      {}: {}\n", job->error->code, without_controls(job->error->message));
  if (job->receipt) {
    print_text(
        "receipt    model {}\n           build {} numerics {} device {} kv {} sampler {}\n           seed {} output "
        "{}\n",
        job->receipt->model_digest, job->receipt->engine_build, job->receipt->numerics, job->receipt->device_class,
        job->receipt->kv_dtype, job->receipt->sampler, job->receipt->seed, job->receipt->output_sha256);
  }
  return kOk;
}

int cancel_job(const GlobalOptions& global, const std::string& job_id) {
  const auto body = fetch_job(global, "POST", job_id, "/cancel");
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto reply = wire::decode<wire::CancelReply>(*body);
  if (!reply) return report(reply.error(), global.json);
  print_text("{}: {}\n", reply->job_id, reply->status);
  return kOk;
}

}  // namespace llorch::cli
