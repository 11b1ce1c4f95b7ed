// ps, queue, show, cancel: jobs as a person sees them.
#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>

#include "base/error_detail.h"
#include "base/id.h"
#include "cli/commands.h"
#include "cli/terminal_text.h"
#include "net/http/url.h"
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

constexpr std::size_t kJobsMax = 3'000;  // a server may keep a million, and each page counts in a tenant's throttle
constexpr std::size_t kRecentJobs = 50;  // that `ps` shows whether they live or have ended

struct Look {
  std::string left_out;                  // what was not looked at, and why; empty: nothing
  std::optional<base::Error> broke_off;  // the why, where it is no bound of ours
  std::optional<std::string> behind;     // ?before= of what follows the first page
};

// A tenant's throttle has room for no more, or the record of the job that the page was to begin behind is gone.
bool is_of_a_later_page(const base::Error& error) {
  return error.code == base::ErrorCode::kQuotaExceeded ||
         (error.code == base::ErrorCode::kInvalidParams && base::has_detail(error, "field", "before"));
}

// Shows the jobs to `look`, the newest first and at most 3,000 of them, until it returns true: it has seen enough. `recent`: those
// before the newest so many are the live ones alone, where the server knows such a list; an older one answers with all. Those of
// `tenant` alone, if one is named; a server that knows no such list answers with all jobs and says of none whose it is.
base::Result<Look> look_through(Api& api, std::size_t recent, const std::function<bool(JobView& job)>& look,
                                const std::optional<std::string>& tenant = std::nullopt) {
  const std::string of_tenant = tenant ? "&tenant=" + net::http::percent_encode(*tenant) : std::string();
  const std::string any = "/v2/tasks?limit=", live = "/v2/tasks?live=true&limit=1000";
  const std::string next = recent < kJobsMax ? live : any + "1000";
  Look out;
  std::size_t seen = 0;
  for (std::string path = recent == 0 ? live : any + std::to_string(std::min<std::size_t>(recent, 1000));;) {
    const auto body = api.call("GET", path + of_tenant);
    if (!body && seen > 0 && is_of_a_later_page(body.error())) {
      out.left_out = fmt::format("jobs before the newest {} were not looked at: {}", seen, body.error().message);
      out.broke_off = body.error();
      return out;
    }
    if (!body) return base::fail(body.error());
    auto list = TRY(wire::decode<wire::JobList>(*body));
    if (seen == 0) out.behind = list.next_before;
    for (JobView& job : list.tasks) {
      ++seen;
      if (tenant && job.tenant_id != tenant) continue;
      if (look(job)) return out;
    }
    if (!list.next_before || list.tasks.empty()) return out;
    if (seen >= kJobsMax) {
      out.left_out = fmt::format("jobs before the newest {} were not looked at", seen);
      return out;
    }
    path = next + "&before=" + net::http::percent_encode(*list.next_before);
  }
}

void say_left_out(const std::string& what, bool json) {
  if (what.empty()) return;
  if (json) {
    fmt::print(stderr, "{}\n",
               boost::json::serialize(boost::json::object{{"event", "jobs_left_out"}, {"human", what}}));
  } else {
    print_text(stderr, "llorch: {}\n", without_controls(what));
  }
}

// With a column TENANT before the last one where a tenant's job is listed. REQUIRES: a row for each job.
void print_jobs(std::vector<std::string> header, std::vector<std::vector<std::string>> rows,
                const std::vector<JobView>& jobs) {
  if (std::ranges::any_of(jobs, [](const JobView& job) { return job.tenant_id.has_value(); })) {
    header.insert(std::prev(header.end()), "TENANT");
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      rows[i].insert(std::prev(rows[i].end()), jobs[i].tenant_id.value_or("-"));
    }
  }
  print_table(header, std::move(rows));
}

base::Result<> check_tenant(const std::optional<std::string>& tenant) {
  if (!tenant || base::is_valid_identifier(*tenant, 64)) return {};
  return base::fail(base::ErrorCode::kInvalidParams, "a tenant's id is 1 to 64 characters of A-Z, a-z, 0-9, _ and -");
}

// A call about one job: "/v2/tasks/{id}" and `rest`.
base::Result<std::string> fetch_job(const GlobalOptions& global, const std::string& method, const std::string& job_id,
                                    const std::string& rest = "") {
  auto api = TRY(Api::connect(global));
  const std::string id = TRY(whole_job_id(*api, job_id, global.json));
  return api->call(method, "/v2/tasks/" + id + rest);
}

}  // namespace

base::Result<std::string> whole_job_id(Api& api, const std::string& job_id, bool json) {
  if (!base::is_valid_identifier(job_id)) {
    return base::fail(base::ErrorCode::kInvalidParams, "a job id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
  }
  constexpr std::size_t kUuidSize = 36;  // every job's id is a UUID
  const bool is_part = job_id.size() < kUuidSize &&
                       std::ranges::all_of(job_id, [](unsigned char c) { return std::isxdigit(c) != 0 || c == '-'; });
  if (!is_part) return job_id;
  std::vector<std::string> found;
  Look seen = TRY(look_through(api, kJobsMax, [&](const JobView& job) {
    if (job.job_id.starts_with(job_id)) found.push_back(job.job_id);
    return found.size() > 1;
  }));
  if (found.size() > 1) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("several jobs have an id that begins with {}, {} and {} among them: type more of it",
                                  job_id, found[0], found[1]));
  }
  if (seen.broke_off) return base::fail(*std::move(seen.broke_off));
  if (found.empty() && seen.left_out.empty()) return job_id;
  if (found.empty()) {
    return base::fail(
        base::Error{base::ErrorCode::kJobNotFound, fmt::format("no job's id begins with {}", job_id), {}}.with(
            "looked_at", seen.left_out));
  }
  say_left_out(seen.left_out, json);
  return found.front();
}

int queue(const GlobalOptions& global) {
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  wire::JobList list;
  const auto looked = look_through(**api, 0, [&](JobView& job) {
    if (job.queue_position) list.tasks.push_back(std::move(job));
    return false;
  });
  if (!looked) return report(looked.error(), global.json);
  say_left_out(looked->left_out, global.json);
  std::ranges::stable_sort(list.tasks, {}, [](const JobView& job) { return *job.queue_position; });
  if (global.json) return fmt::print("{}\n", wire::encode(list)), kOk;
  std::vector<std::vector<std::string>> rows;
  for (const JobView& job : list.tasks) {
    const auto start_ms = job.predicted_start_ms;
    rows.push_back({std::to_string(*job.queue_position), job.job_id, job.model,
                    start_ms ? fmt::format("{:.1f} s", static_cast<double>(*start_ms) / 1000) : "?", waiting_for(job)});
  }
  print_jobs({"POS", "JOB", "MODEL", "STARTS IN", "WHY"}, std::move(rows), list.tasks);
  return kOk;
}

int ps(const GlobalOptions& global, const std::optional<std::string>& tenant) {
  if (const auto named = check_tenant(tenant); !named) return report(named.error(), global.json);
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  wire::JobList list;
  std::size_t seen = 0;
  const auto note = [&](JobView& job) {
    // Of those that have ended the newest; what waits or runs may be older than them.
    if (++seen <= kRecentJobs || !wire::is_terminal(job.status)) list.tasks.push_back(std::move(job));
    return false;
  };
  auto looked = look_through(**api, kRecentJobs, note, tenant);
  if (!looked) return report(looked.error(), global.json);
  list.next_before = std::move(looked->behind);
  say_left_out(looked->left_out, global.json);
  if (global.json) return fmt::print("{}\n", wire::encode(list)), kOk;
  std::vector<std::vector<std::string>> rows;
  for (const JobView& job : list.tasks) {
    rows.push_back({job.job_id, status_word(job), job.model,
                    job.queue_position ? std::to_string(*job.queue_position) : "-",
                    fmt::format("{}/{}", job.tokens_in, job.tokens_out), job.submitted_at, waiting_for(job)});
  }
  print_jobs({"JOB", "STATUS", "MODEL", "POS", "IN/OUT", "SUBMITTED", "WHY"}, std::move(rows), list.tasks);
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
  if (!body && body.error().code == base::ErrorCode::kJobNotFound) {
    return report({none.code, none.message, body.error().details}, global.json);
  }
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto job = wire::decode<JobView>(*body);
  if (!job) return report(job.error(), global.json);
  print_text(
      "job        {}\nstatus     {}\nmodel      {} ({})\nsubmitted  {}\nattempts   {}\ntokens     {} in, {} out\n",
      job->job_id, status_word(*job), job->model, job->model_ref, job->submitted_at, job->attempts, job->tokens_in,
      job->tokens_out);
  if (job->tenant_id) print_text("tenant     {}\n", *job->tenant_id);
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

namespace {

int print_cancelled(const GlobalOptions& global, const std::string& body) {
  if (global.json) return fmt::print("{}\n", body), kOk;
  const auto reply = wire::decode<wire::CancelReply>(body);
  if (!reply) return report(reply.error(), global.json);
  print_text("{}: {}\n", reply->job_id, reply->status);
  return kOk;
}

}  // namespace

int cancel_job(const GlobalOptions& global, const std::string& job_id) {
  const auto body = fetch_job(global, "POST", job_id, "/cancel");
  if (!body) return report(body.error(), global.json);
  return print_cancelled(global, *body);
}

namespace {

std::chrono::milliseconds wait_of(const base::Error& error) {
  constexpr std::int64_t kUnsaidMs = 1000, kLongestMs = 60'000;
  const std::int64_t wait_ms = base::number_detail(error, "retry_after_ms").value_or(kUnsaidMs);
  return std::chrono::milliseconds(std::clamp<std::int64_t>(wait_ms, 1, kLongestMs));
}

// Each counts in the caller's throttle: one that is refused for it is asked for again once there is room.
base::Result<std::string> cancel_in_time(Api& api, const std::string& job_id) {
  for (;;) {
    auto body = api.call("POST", "/v2/tasks/" + job_id + "/cancel");
    if (body || body.error().code != base::ErrorCode::kQuotaExceeded) return body;
    std::this_thread::sleep_for(wait_of(body.error()));
  }
}

}  // namespace

int cancel_jobs_of(const GlobalOptions& global, const std::string& tenant) {
  if (const auto named = check_tenant(tenant); !named) return report(named.error(), global.json);
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  std::vector<std::string> live;  // the newest first: none that waits starts in the place of one that was ended
  const auto note = [&](const JobView& job) {
    if (!wire::is_terminal(job.status)) live.push_back(job.job_id);
    return false;
  };
  const auto looked = look_through(**api, 0, note, tenant);
  if (!looked) return report(looked.error(), global.json);
  say_left_out(looked->left_out, global.json);
  int code = kOk;
  for (const std::string& job_id : live) {
    auto body = cancel_in_time(**api, job_id);
    if (!body && body.error().code == base::ErrorCode::kJobNotFound) continue;  // it has ended, and its record is gone
    const int ended =
        body ? print_cancelled(global, *body) : report(std::move(body).error().with("job_id", job_id), global.json);
    if (code == kOk) code = ended;
    if (ended == kUnreachable) break;
  }
  if (live.empty() && !global.json) print_text(stderr, "llorch: no job of {} waits or runs\n", tenant);
  return code;
}

}  // namespace llorch::cli
