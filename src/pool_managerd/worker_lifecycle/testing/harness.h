#pragma once
// A lifecycle core with a clock of its own and a shell that obeys.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "pool_managerd/worker_lifecycle/lifecycle.h"
#include "wire/device_mask.h"

namespace llorch::pool_managerd::worker_lifecycle {

inline constexpr std::int64_t kDeviceBytes = 1000;

// Steps the core, keeps what it commanded, and acts as a shell whose spawns succeed.
struct Harness {
  base::SeededEntropy entropy{1};
  base::ManualClock clock;
  Lifecycle core;
  std::vector<Command> commands;
  std::uint64_t requests = 0;
  std::map<std::string, std::string> tokens;
  bool spawn_works = true;

  explicit Harness(LifecycleConfig config = {.pool_id = "pool-1"}) : core(std::move(config), entropy) {
    run(DevicesRead{{device("cpu"), device("0"), device("1")}});
    commands.clear();
  }
  static gpu_inventory::Device device(std::string id) {
    gpu_inventory::Device d;
    d.gpu_id = std::move(id);
    d.total_bytes = kDeviceBytes;
    return d;
  }
  void run(const Event& event) {
    commands.clear();
    core.step(event, clock.now(), commands);
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const auto* spawn = std::get_if<Spawn>(&commands[i]);
      if (spawn == nullptr) continue;
      tokens[spawn->worker_id.value] = spawn->spawn_token;
      const base::WorkerId id = spawn->worker_id;
      if (spawn_works) {
        core.step(Spawned{id, 4711}, clock.now(), commands);
      } else {
        core.step(SpawnFailed{id, base::Error{base::ErrorCode::kWorkerStartFailed, "no", {}}}, clock.now(), commands);
      }
    }
  }
  // Every worker has a model of its own unless told otherwise.
  void start(const std::string& id, std::int64_t bytes = 400, const std::string& gpu = "cpu",
             const std::string& model = "") {
    const std::string path = "/" + (model.empty() ? id : model) + ".gguf";
    wire::StartWorkerRequest wanted{.worker_id = id, .model_ref = "file:" + path, .gpu_id = gpu};
    model_catalog::ModelPlan plan;
    plan.path = path;
    plan.memory.assign(wire::devices_of(gpu).size(), {.weights_bytes = bytes});
    run(StartAsked{RequestId{++requests}, wanted, plan, base::CorrelationId("c-1")});
  }
  wire::ReadyCallback callback(const std::string& id, std::int64_t bytes = 300) {
    return {.worker_id = id,
            .spawn_token = tokens[id],
            .model_ref = "file:/m.gguf",
            .model_digest = "sha256:ab",
            .uri = "http://127.0.0.1:5000",
            .vram_bytes = bytes,
            .memory_bytes = bytes,
            .slots_total = 2,
            .context_length = 64,
            .device_class = "cpu-x86"};
  }
  void send_ready(const std::string& id, std::int64_t bytes = 300) {
    run(ReadyReceived{RequestId{++requests}, callback(id, bytes)});
  }
  wire::WorkerHealth health(const std::string& id, std::int64_t slots_free = 1) {
    wire::WorkerHealth h;
    h.status = "healthy";
    h.worker_id = id;
    h.slots_free = slots_free;
    return h;
  }
  void answer_probe(std::optional<wire::WorkerHealth> answer) {
    const auto* p = find<Probe>();
    ASSERT_NE(p, nullptr);
    run(ProbeEnded{p->worker_id, p->probe, std::move(answer)});
  }
  void make_ready(const std::string& id, std::int64_t bytes = 400, const std::string& gpu = "cpu") {
    start(id, bytes, gpu);
    send_ready(id, std::min<std::int64_t>(bytes, 300));
    answer_probe(health(id));
  }
  void pass(std::int64_t ms) {
    clock.advance_ms(ms);
    run(Tick{});
  }
  template <class T>
  const T* find() const {
    for (const auto& c : commands) {
      if (const auto* found = std::get_if<T>(&c)) return found;
    }
    return nullptr;
  }
  base::ErrorCode refusal() const { return find<Refuse>() != nullptr ? find<Refuse>()->error.code : base::ErrorCode{}; }
  WorkerStatus status(const std::string& id) const { return core.worker(base::WorkerId(id))->status; }
};

}  // namespace llorch::pool_managerd::worker_lifecycle
