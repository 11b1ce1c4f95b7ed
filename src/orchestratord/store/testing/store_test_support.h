#pragma once
// What the tests of this directory share.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <sstream>
#include <string>

#include "base/clock.h"
#include "base/entropy.h"
#include "base/sha256.h"
#include "orchestratord/store/payload/sealing.h"
#include "orchestratord/store/sqlite_store.h"

namespace llorch::orchestratord::store {

class TempDir {
 public:
  TempDir() {
    static std::atomic<int> n{0};
    // Memory: SIGKILL and injected faults do not tell it from a disk, and a real fsync would make the tests slow.
    const std::filesystem::path memory = "/dev/shm";
    const bool in_memory = ::access(memory.c_str(), W_OK) == 0;
    path_ = (in_memory ? memory : std::filesystem::temp_directory_path()) /
            ("llorch-store-" + std::to_string(::getpid()) + "-" + std::to_string(n++));
    std::filesystem::create_directories(path_);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline const base::SystemClock kClock;
inline base::SystemEntropy g_entropy;

inline SqliteStoreOptions options_in(const TempDir& dir) {
  SqliteStoreOptions options;
  options.directory = dir.path();
  options.retention.ms = 100LL * 365 * 24 * 3600 * 1000;  // the test jobs finish at a fixed time in the past
  options.clock = &kClock;
  options.entropy = &g_entropy;
  return options;
}

inline std::unique_ptr<Store> open_in(const TempDir& dir) { return open_sqlite_store(options_in(dir)).value(); }

inline Admission admission(const std::string& job_id, std::optional<std::string> payload = "payload") {
  Admission a;
  a.job.job_id = base::JobId(job_id);
  a.job.task_id = job_id;
  a.job.correlation_id = base::CorrelationId("c-" + job_id);
  a.job.request_sha256 = base::to_hex(base::sha256(job_id));
  a.job.model = "demo";
  a.job.model_ref = "file:/models/demo.gguf";
  a.job.facts.model_ref = a.job.model_ref;
  a.job.facts.digest = "sha256:00";
  a.job.facts.context_length = 512;
  a.job.prompt_sha256 = base::to_hex(base::sha256("prompt"));
  a.job.params = R"({"temperature":0.7})";
  a.job.max_tokens = 16;
  a.job.seed = 0xffff'ffff'ffff'fff0u;
  a.job.tokens_in = 3;
  a.job.submitted_unix_ms = 1'700'000'000'000;
  a.payload = std::move(payload);
  return a;
}

inline core::sessions::SessionRecord session_row(std::int64_t key, std::int64_t touched_unix_ms = 1'700'000'000'000) {
  return {.key = key,
          .session_id = base::SessionId("session-1"),
          .created_unix_ms = 1'700'000'000'000,
          .touched_unix_ms = touched_unix_ms,
          .token_budget = 1000,
          .time_budget_ms = std::nullopt,
          .cost_budget_nano = 5'000'000,
          .prompt_token_cost_nano = 1,
          .output_token_cost_nano = 2000};
}
inline Admission in_session(const std::string& job_id, std::int64_t key) {
  Admission a = admission(job_id);
  a.job.session_id = "session-1";
  a.job.session_key = key;
  a.session = session_row(key);
  return a;
}

inline Transition moved_to(const std::string& job_id, wire::JobStatus status) {
  Transition t{base::JobId(job_id), {}};
  t.progress.status = status;
  t.progress.attempts = 1;
  return t;
}

inline Transition finished(const std::string& job_id, std::int64_t unix_ms = 1'700'000'001'000) {
  Transition t = moved_to(job_id, wire::JobStatus::kCompleted);
  t.progress.finished_unix_ms = unix_ms;
  t.progress.tokens_out = 5;
  t.progress.end = wire::EndEvent{.job_id = job_id, .tokens_in = 3, .tokens_out = 5, .decode_time_ms = 7};
  t.progress.last_event_id = "7-0123456789abcdef";
  return t;
}

inline Transition cancelled(const std::string& job_id) {
  Transition t = moved_to(job_id, wire::JobStatus::kCancelled);
  t.progress.finished_unix_ms = 1'700'000'001'000;
  t.progress.error = wire::ErrorBody{.code = "CANCELLED", .message = "the job was cancelled"};
  return t;
}

inline base::Result<> admit(Store& store, Admission a) {
  std::promise<base::Result<>> done;
  store.admit(std::move(a), [&](base::Result<> r) { done.set_value(std::move(r)); });
  return done.get_future().get();
}

inline base::Result<> apply(Store& store, Transition t) {
  std::promise<base::Result<>> done;
  store.transition(std::move(t), [&](base::Result<> r) { done.set_value(std::move(r)); });
  return done.get_future().get();
}

inline base::Result<std::optional<JobRecord>> find(Store& store, const std::string& job_id) {
  std::promise<base::Result<std::optional<JobRecord>>> done;
  store.find(base::JobId(job_id), [&](auto r) { done.set_value(std::move(r)); });
  return done.get_future().get();
}

inline std::vector<RestoredJob> live_jobs(Store& store) { return store.restore().value().jobs; }

// Whether any file below `dir` holds `needle`.
inline bool found_on_disk(const std::filesystem::path& dir, std::string_view needle) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    std::ostringstream bytes;  // in blocks: a server's directory has a hundred megabytes
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    if (bytes.view().find(needle) != std::string_view::npos) return true;
  }
  return false;
}

inline std::string key_file_bytes(const TempDir& dir) {
  std::ifstream in(dir.path() / "payload.keys", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace llorch::orchestratord::store
