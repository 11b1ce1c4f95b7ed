#pragma once
// Drives a Core by hand: one event at a time, with a store that commits at once unless told otherwise.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "orchestratord/core/core.h"
#include "orchestratord/core/testing/describe.h"
#include "orchestratord/core/testing/units.h"

namespace llorch::orchestratord::core {

// The pauses between attempts are those of the policy.
inline CoreConfig without_jitter() {
  CoreConfig c;
  c.retry.jitter = false;
  return c;
}

class Driver {
 public:
  explicit Driver(CoreConfig config = {}, Restored restored = {}) : core_(std::move(config), entropy_) {
    send(std::move(restored));
  }

  // The commands of this event and, with auto_commit, of the commits it caused.
  const std::vector<Command>& send(Event event) {
    commands_.clear();
    core_.step(std::move(event), now, commands_);
    core_.verify();
    for (std::size_t i = 0; auto_commit && i < commands_.size(); ++i) {
      if (const auto* desired = std::get_if<CommitDesiredState>(&commands_[i])) {
        desired_states_on_disk[desired->pool_id] = desired->desired;
      }
      if (const auto* gone = std::get_if<ForgetPool>(&commands_[i])) desired_states_on_disk.erase(gone->pool_id);
      if (const auto id = commit_of(commands_[i])) {
        core_.step(Committed{{*id}}, now, commands_);
        core_.verify();
      }
    }
    return commands_;
  }
  const std::vector<Command>& after_ms(std::int64_t ms) {
    now.mono_ms += ms;
    now.unix_ms += ms;
    return send(Tick{});
  }

  static std::optional<CommitId> commit_of(const Command& c) {
    if (const auto* a = std::get_if<CommitAdmission>(&c)) return a->commit;
    if (const auto* t = std::get_if<CommitTransition>(&c)) return t->commit;
    if (const auto* s = std::get_if<CommitSession>(&c)) return s->commit;
    if (const auto* d = std::get_if<CommitDesiredState>(&c)) return d->commit;
    if (const auto* f = std::get_if<ForgetPool>(&c)) return f->commit;
    return std::nullopt;
  }

  // The commands of one type from the last send.
  template <class T>
  std::vector<T> all() const {
    std::vector<T> out;
    for (const Command& c : commands_) {
      if (const T* t = std::get_if<T>(&c)) out.push_back(*t);
    }
    return out;
  }
  template <class T>
  T only() const {
    const auto found = all<T>();
    EXPECT_EQ(found.size(), 1u) << dump();
    return found.empty() ? T{} : found.front();
  }
  template <class T>
  bool none() const {
    return all<T>().empty();
  }
  std::string dump() const {
    std::string out;
    for (const Command& c : commands_) out += describe(c) + "\n";
    return out;
  }

  struct SubmitOptions {
    std::string model = "a";
    wire::Priority priority = wire::Priority::kInteractive;
    std::int64_t memory_bytes = 4 * kGb;
    std::int64_t devices = 1;
    std::optional<std::int64_t> timeout_ms, deadline_ms;
    std::int64_t tokens_in = 10, max_tokens = 20;
    wire::Placement placement{};
    std::optional<base::SessionId> session_id{};
    bool replayable = true;
  };
  static jobs::JobSpec spec(const std::string& id, const SubmitOptions& o) {
    return {.job_id = base::JobId(id),
            .correlation_id = base::CorrelationId("c-" + id),
            .model = {.model_ref = "file:/" + o.model + ".gguf",
                      .digest = "sha256:" + o.model,
                      .context_length = 1000,
                      .memory_bytes = o.memory_bytes,
                      .devices = o.devices,
                      .replayable = o.replayable},
            .priority = o.priority,
            .tokens_in = o.tokens_in,
            .max_tokens = o.max_tokens,
            .timeout_ms = o.timeout_ms,
            .deadline_ms = o.deadline_ms,
            .placement = o.placement,
            .session_id = o.session_id};
  }
  const std::vector<Command>& submit(const std::string& id, const SubmitOptions& o) {
    return send(Submit{{++requests}, spec(id, o)});
  }
  const std::vector<Command>& submit(const std::string& id) { return submit(id, SubmitOptions{}); }

  wire::PoolState pool_state(const std::string& id = "pool-1", int gpus = 1, std::int64_t bytes = 8 * kGb) {
    wire::PoolState s{.pool_id = id, .endpoint = "http://" + id, .timestamp_ms = now.unix_ms, .boot_id = "boot-1"};
    s.uptime_seconds = now.mono_ms / 1000;
    for (int i = 0; i < gpus; ++i) {
      s.gpus.push_back({.gpu_id = std::to_string(i), .vram_total_bytes = bytes, .vram_available_bytes = bytes});
    }
    return s;
  }
  static wire::WorkerInfo worker(const std::string& id, const std::string& model = "a", const std::string& gpu = "0",
                                 std::int64_t bytes = 4 * kGb) {
    return {.worker_id = id,
            .model_ref = "file:/" + model + ".gguf",
            .model_digest = "sha256:" + model,
            .gpu_id = gpu,
            .status = wire::WorkerStatus::kReady,
            .uri = "http://" + id,
            .vram_bytes = bytes,
            .slots_total = 1,
            .context_length = 1000,
            .kv_dtype = "f16"};
  }
  // A pool with one device and one ready worker of model a.
  wire::PoolState state_of_worker(const std::string& id = "w1", std::int64_t slots = 1) {
    auto s = pool_state();
    s.workers = {worker(id)};
    s.workers[0].slots_total = slots;
    s.gpus[0].vram_allocated_bytes = 4 * kGb;
    s.gpus[0].vram_available_bytes = 4 * kGb;
    return s;
  }
  const std::vector<Command>& add_worker(const std::string& id = "w1", std::int64_t slots = 1) {
    return see(state_of_worker(id, slots));
  }
  // The pool tells this of its own accord.
  const std::vector<Command>& report(const wire::PoolState& s) {
    return send(PoolSeen{.request = RequestId{++requests}, .state = s, .asked_endpoint = {}});
  }
  const std::vector<Command>& see(const wire::PoolState& s) {
    return send(PoolSeen{.request = {}, .state = s, .asked_endpoint = {}, .asked_ms = now.mono_ms});
  }
  const std::vector<Command>& cannot_reach(const std::string& endpoint) {
    return send(PoolUnreachable{endpoint, now.mono_ms});
  }
  // Submits and returns the execution it leads to at once.
  ExecutionId run(const std::string& id, const SubmitOptions& o) {
    submit(id, o);
    return only<Execute>().execution;
  }
  ExecutionId run(const std::string& id) { return run(id, SubmitOptions{}); }
  const std::vector<Command>& end(ExecutionId x, std::int64_t tokens = 20) {
    return send(ExecuteEnded{x, tokens, wire::EndEvent{.tokens_in = 10, .tokens_out = tokens}, {}});
  }
  const std::vector<Command>& lose(ExecutionId x, base::ErrorCode code = base::ErrorCode::kWorkerReset) {
    return send(ExecuteEnded{x, 3, {}, base::Error{code, "lost", {}}});
  }
  LiveJob query(const std::string& id) {
    send(QueryJob{{++requests}, base::JobId(id)});
    return only<AnswerQueryJob>().job.value_or(LiveJob{});
  }

  base::Time now{1'000'000, 1'700'000'000'000};
  std::uint64_t requests = 0;
  bool auto_commit = true;
  std::map<base::PoolId, wire::PoolDesiredState> desired_states_on_disk;  // with auto_commit

 private:
  base::SeededEntropy entropy_{1};
  Core core_;
  std::vector<Command> commands_;
};

}  // namespace llorch::orchestratord::core
