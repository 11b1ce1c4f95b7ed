#pragma once
// The parts of every live job that the core must not see, kept so that nobody reads the store for them.
#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "orchestratord/store/store.h"
#include "orchestratord/streams/stream.h"

namespace llorch::orchestratord::http {

struct LiveJobData {
  store::JobRecord record;         // as admitted
  std::string payload;             // JSON of the ExecuteRequest a worker is sent, but for its timeout_ms
  std::string parameters_sha256;   // what a receipt must say of it
  std::int64_t prompt_events = 0;  // of a worker, before those of the output
  streams::StreamPtr stream;
};
using LiveJobPtr = std::shared_ptr<const LiveJobData>;

// Thread-safe.
class JobDirectory {
 public:
  void add(LiveJobPtr job) {
    const std::lock_guard lock(mutex_);
    Entry& entry = jobs_[job->record.job_id];
    entry = {.data = std::move(job)};
  }
  LiveJobPtr find(const base::JobId& job_id) const {
    const std::lock_guard lock(mutex_);
    const auto it = jobs_.find(job_id);
    return it == jobs_.end() ? nullptr : it->second.data;
  }
  // Its end is about to be stored, so whoever asks the store may see it before remove() does.
  void note_end(const base::JobId& job_id) {
    const std::lock_guard lock(mutex_);
    if (const auto it = jobs_.find(job_id); it != jobs_.end()) it->second.has_ended = true;
  }
  // Whether a job of this model has not ended.
  bool any_of_model(const std::string& model_ref) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) {
      return !job.second.has_ended && job.second.data->record.model_ref == model_ref;
    });
  }
  void remove(const base::JobId& job_id) {
    LiveJobPtr dropped;  // outlives the lock
    const std::lock_guard lock(mutex_);
    const auto it = jobs_.find(job_id);
    if (it == jobs_.end()) return;
    dropped = std::move(it->second.data);
    jobs_.erase(it);
  }

 private:
  struct Entry {
    LiveJobPtr data;
    bool has_ended = false;
  };
  mutable std::mutex mutex_;
  std::unordered_map<base::JobId, Entry> jobs_;
};

}  // namespace llorch::orchestratord::http
