#pragma once
// What `llorch top` shows: two looks at a stack, and what happened between them. Pure.
#include <cstdint>
#include <string>
#include <vector>

#include "wire/pool.h"
#include "wire/task.h"

namespace llorch::cli::top {

struct Look {
  wire::JobList jobs;  // the newest
  wire::PoolList pools;
  std::int64_t at_ms = 0;  // of a clock that never goes back
};

struct Device {
  std::string pool_id;
  std::string pool_status;
  std::string gpu_id;  // empty: the pool has none
  std::int64_t used_bytes = 0;
  std::int64_t total_bytes = 0;
  bool healthy = true;
};
struct Worker {
  std::string worker_id;
  std::string pool_id;
  std::string model;  // the name of its file or directory
  std::string gpu_id;
  std::string status;
  std::int64_t jobs = 0;
  std::int64_t slots_total = 0;
  std::int64_t kv_pages_used = 0;
  std::int64_t kv_pages_total = 0;
  double tokens_per_second = 0;
};
struct Job {
  std::string job_id;
  std::string status;
  std::string model;
  std::int64_t tokens_out = 0;
  double tokens_per_second = 0;
  std::string why;  // it waits; empty: it does not
};
struct View {
  std::int64_t waiting = 0;
  std::int64_t running = 0;
  double tokens_per_second = 0;  // of all jobs, those included that ended since
  std::vector<Device> devices;
  std::vector<Worker> workers;
  std::vector<Job> jobs;  // that run, then those that wait in the order they will start
};

// Tokens of a job that began after `before` count whole; of a run that was begun again, none that are made once more.
// REQUIRES: now.at_ms > before.at_ms.
View view_of(const Look& before, const Look& now);

std::string to_json(const View& view);
// Lines, each cut to `columns` characters, at most `rows` of them; 0: as many as there are.
std::string to_text(const View& view, std::size_t columns, std::size_t rows);

}  // namespace llorch::cli::top
