#include "cli/top/view.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <map>

#include "cli/context.h"
#include "cli/terminal_text.h"
#include "wire/json.h"

namespace llorch::cli::top {
namespace {

namespace bj = boost::json;

using Rows = std::vector<std::vector<std::string>>;

void append_table(std::string& out, Rows rows) {
  for (auto& row : rows) {
    for (std::string& cell : row) cell = without_controls(cell);
  }
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    out += '\n';
  }
}

std::string rate(double tokens_per_second) { return fmt::format("{:.1f}", tokens_per_second); }

std::string file_name(const std::string& model_ref) { return std::filesystem::path(model_ref).filename().string(); }

bool is_active(const wire::JobView& job) { return !wire::is_terminal(job.status); }

std::vector<const wire::JobView*> active_jobs(const wire::JobList& list) {
  std::vector<const wire::JobView*> out;
  for (const wire::JobView& job : list.tasks) {
    if (is_active(job)) out.push_back(&job);
  }
  std::ranges::stable_sort(out, {}, [](const wire::JobView* job) { return job->queue_position.value_or(0); });
  std::stable_partition(out.begin(), out.end(),
                        [](const wire::JobView* job) { return job->status == wire::JobStatus::kRunning; });
  return out;
}

void add_pool(View& view, const wire::PoolInfo& pool, const std::map<std::string, double>& rates,
              const std::map<std::string, std::int64_t>& jobs) {
  const std::string status(wire::enum_name(pool.status));
  if (pool.gpus.empty()) view.devices.push_back({.pool_id = pool.pool_id, .pool_status = status, .gpu_id = {}});
  for (const wire::GpuInfo& gpu : pool.gpus) {
    view.devices.push_back({.pool_id = pool.pool_id,
                            .pool_status = status,
                            .gpu_id = gpu.gpu_id,
                            .used_bytes = gpu.vram_allocated_bytes,
                            .total_bytes = gpu.vram_total_bytes,
                            .healthy = gpu.healthy});
  }
  const auto value_of = [](const auto& map, const std::string& key) {
    const auto it = map.find(key);
    return it == map.end() ? typename std::remove_cvref_t<decltype(map)>::mapped_type{} : it->second;
  };
  for (const wire::WorkerInfo& worker : pool.workers) {
    view.workers.push_back({.worker_id = worker.worker_id,
                            .pool_id = pool.pool_id,
                            .model = file_name(worker.model_ref),
                            .gpu_id = worker.gpu_id,
                            .status = std::string(wire::enum_name(worker.status)),
                            .jobs = value_of(jobs, worker.worker_id),
                            .slots_total = worker.slots_total,
                            .kv_pages_used = worker.kv_pages_used,
                            .kv_pages_total = worker.kv_pages_total,
                            .tokens_per_second = value_of(rates, worker.worker_id)});
  }
}

}  // namespace

View view_of(const Look& before, const Look& now) {
  std::map<std::string, std::int64_t> tokens_before;
  for (const wire::JobView& job : before.jobs.tasks) tokens_before.emplace(job.job_id, job.tokens_out);
  const double seconds = static_cast<double>(now.at_ms - before.at_ms) / 1000;
  const auto rate_of = [&](const wire::JobView& job) {
    const auto it = tokens_before.find(job.job_id);
    const std::int64_t made = job.tokens_out - (it == tokens_before.end() ? 0 : it->second);
    return static_cast<double>(std::max<std::int64_t>(made, 0)) / seconds;
  };
  View view;
  std::map<std::string, double> rates;       // by worker
  std::map<std::string, std::int64_t> jobs;  // that run, by worker
  for (const wire::JobView& job : now.jobs.tasks) {
    const double job_rate = rate_of(job);
    view.tokens_per_second += job_rate;
    if (job.worker_id) rates[*job.worker_id] += job_rate;
    if (job.worker_id && job.status == wire::JobStatus::kRunning) ++jobs[*job.worker_id];
  }
  for (const wire::JobView* job : active_jobs(now.jobs)) {
    ++(job->status == wire::JobStatus::kRunning ? view.running : view.waiting);
    view.jobs.push_back({.job_id = job->job_id,
                         .status = std::string(wire::enum_name(job->status)),
                         .model = job->model,
                         .tokens_out = job->tokens_out,
                         .tokens_per_second = rate_of(*job),
                         .why = job->reason ? job->reason->human : ""});
  }
  for (const wire::PoolInfo& pool : now.pools.pools) add_pool(view, pool, rates, jobs);
  return view;
}

std::string to_json(const View& view) {
  bj::array devices, workers, jobs;
  for (const Device& d : view.devices) {
    devices.push_back({{"pool_id", d.pool_id},
                       {"pool_status", d.pool_status},
                       {"gpu_id", d.gpu_id},
                       {"used_bytes", d.used_bytes},
                       {"total_bytes", d.total_bytes},
                       {"healthy", d.healthy}});
  }
  for (const Worker& w : view.workers) {
    workers.push_back({{"worker_id", w.worker_id},
                       {"pool_id", w.pool_id},
                       {"model", w.model},
                       {"gpu_id", w.gpu_id},
                       {"status", w.status},
                       {"jobs", w.jobs},
                       {"slots_total", w.slots_total},
                       {"kv_pages_used", w.kv_pages_used},
                       {"kv_pages_total", w.kv_pages_total},
                       {"tokens_per_second", w.tokens_per_second}});
  }
  for (const Job& j : view.jobs) {
    jobs.push_back({{"job_id", j.job_id},
                    {"status", j.status},
                    {"model", j.model},
                    {"tokens_out", j.tokens_out},
                    {"tokens_per_second", j.tokens_per_second},
                    {"why", j.why}});
  }
  return bj::serialize(bj::object{{"waiting", view.waiting},
                                  {"running", view.running},
                                  {"tokens_per_second", view.tokens_per_second},
                                  {"devices", std::move(devices)},
                                  {"workers", std::move(workers)},
                                  {"jobs", std::move(jobs)}});
}

std::string to_text(const View& view, std::size_t columns, std::size_t rows) {
  std::string whole =
      fmt::format("{} running, {} waiting, {} tokens/s\n\n", view.running, view.waiting, rate(view.tokens_per_second));
  Rows devices{{"POOL", "STATE", "DEVICE", "MEMORY"}};
  for (const Device& d : view.devices) {
    devices.push_back({d.pool_id, d.pool_status,
                       d.gpu_id.empty() ? "-"
                       : d.healthy      ? d.gpu_id
                                        : d.gpu_id + " (fault)",
                       fmt::format("{} of {}", human_bytes(d.used_bytes), human_bytes(d.total_bytes))});
  }
  append_table(whole, std::move(devices));
  Rows workers{{"WORKER", "MODEL", "DEVICE", "STATE", "JOBS", "CACHE PAGES", "TOKENS/S"}};
  for (const Worker& w : view.workers) {
    workers.push_back({w.worker_id, w.model, w.gpu_id, w.status, fmt::format("{}/{}", w.jobs, w.slots_total),
                       w.kv_pages_total > 0 ? fmt::format("{}/{}", w.kv_pages_used, w.kv_pages_total) : "-",
                       rate(w.tokens_per_second)});
  }
  append_table(whole += '\n', std::move(workers));
  Rows jobs{{"JOB", "STATUS", "MODEL", "OUT", "TOKENS/S", "WHY"}};
  for (const Job& j : view.jobs) {
    jobs.push_back({j.job_id, j.status, j.model, std::to_string(j.tokens_out), rate(j.tokens_per_second), j.why});
  }
  append_table(whole += '\n', std::move(jobs));
  if (columns == 0 && rows == 0) return whole;
  std::string out;
  std::size_t begin = 0;
  for (std::size_t row = 0; begin < whole.size() && (rows == 0 || row < rows); ++row) {
    const std::size_t end = whole.find('\n', begin);
    const std::string_view line(whole.data() + begin, end - begin);
    out += (columns == 0 ? std::string(line) : cut(line, columns)) + "\n";
    begin = end + 1;
  }
  return out;
}

}  // namespace llorch::cli::top
