// Microseconds of the core's decisions with 1,000 jobs waiting and 64 workers busy. Prints one JSON line per measure:
//   dispatch   a job ends; the step that records it, decides about the waiting jobs and dispatches the next one
//   submit     a job comes while every worker is busy; the step that admits it, and says when it will run
//   decide     core::placement::decide alone, over 64 workers and 64 devices, each of three outcomes
// Usage: decision_bench [ROUNDS]. Build in release; run with nothing else on.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <vector>

#include "base/entropy.h"
#include "orchestratord/core/core.h"
#include "orchestratord/core/placement/placement.h"

namespace {

using namespace llorch;
using namespace llorch::orchestratord;

constexpr int kWorkers = 64;
constexpr int kWaiting = 1000;
constexpr std::int64_t kGb = 1'000'000'000;

class Times {
 public:
  void measure(const auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    us_.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  void print(const char* name, int models) {
    std::ranges::sort(us_);
    const auto at = [&](double share) {
      return us_[static_cast<std::size_t>(share * static_cast<double>(us_.size() - 1))];
    };
    fmt::print(
        R"({{"measure":"{}","models":{},"waiting":{},"workers":{},"p50_us":{:.2f},"p99_us":{:.2f},"max_us":{:.2f}}})"
        "\n",
        name, models, kWaiting, kWorkers, at(0.5), at(0.99), at(1));
  }

 private:
  std::vector<double> us_;
};

// A core whose store commits at once: 64 pools with a device and a busy worker each, and jobs that wait for them.
class Load {
 public:
  explicit Load(int models) : models_(models), core_(config(), entropy_) {
    send(core::Restored{});
    for (int i = 0; i < kWorkers; ++i) send(core::PoolSeen{.request = {}, .state = pool(i), .asked_endpoint = {}});
    for (int i = 0; i < kWorkers + kWaiting; ++i) submit();
    if (running_.size() != kWorkers) std::abort();
  }

  void submit() {
    const int n = submitted_++;
    const std::string id = fmt::format("{:08x}-0000-4000-8000-000000000000", n);
    send(core::Submit{{static_cast<std::uint64_t>(n) + 1},
                      {.job_id = base::JobId(id),
                       .correlation_id = base::CorrelationId("c"),
                       .model = facts(n % models_),
                       .tokens_in = 10,
                       .max_tokens = 20}});
  }
  void end_one() {
    const auto execution = running_.front();
    running_.pop_front();
    send(core::ExecuteEnded{execution, 20, wire::EndEvent{.tokens_in = 10, .tokens_out = 20}, {}});
  }

 private:
  static core::CoreConfig config() {
    core::CoreConfig c;
    c.queue = {.capacity = -1, .policy = config::QueuePolicy::kQueue};
    return c;
  }
  wire::ModelFacts facts(int model) const {
    return {.model_ref = fmt::format("file:/{}.gguf", model),
            .digest = fmt::format("sha256:{}", model),
            .context_length = 1000,
            .memory_bytes = 4 * kGb};
  }
  wire::PoolState pool(int i) const {
    wire::PoolState s{.pool_id = fmt::format("pool-{:02}", i), .endpoint = fmt::format("http://pool-{}", i)};
    s.timestamp_ms = now_.unix_ms;
    s.boot_id = "boot";
    s.gpus.push_back(
        {.gpu_id = "0", .vram_total_bytes = 5 * kGb, .vram_allocated_bytes = 4 * kGb, .vram_available_bytes = kGb});
    const wire::ModelFacts model = facts(i % models_);
    s.workers.push_back({.worker_id = fmt::format("worker-{:02}", i),
                         .model_ref = model.model_ref,
                         .model_digest = model.digest,
                         .gpu_id = "0",
                         .status = wire::WorkerStatus::kReady,
                         .uri = "http://worker",
                         .vram_bytes = 4 * kGb,
                         .slots_total = 1,
                         .context_length = 1000,
                         .kv_dtype = "f16"});
    return s;
  }
  void send(core::Event event) {
    commands_.clear();
    core_.step(std::move(event), now_, commands_);
    for (std::size_t i = 0; i < commands_.size(); ++i) {
      if (const auto* a = std::get_if<core::CommitAdmission>(&commands_[i]))
        commit(a->commit);
      else if (const auto* t = std::get_if<core::CommitTransition>(&commands_[i]))
        commit(t->commit);
      else if (const auto* x = std::get_if<core::Execute>(&commands_[i]))
        running_.push_back(x->execution);
    }
  }
  void commit(core::CommitId id) { core_.step(core::Committed{{id}}, now_, commands_); }

  const int models_;
  base::Time now_{1'000'000, 1'700'000'000'000};
  base::SeededEntropy entropy_{1};
  core::Core core_;
  std::vector<core::Command> commands_;
  std::deque<core::ExecutionId> running_;
  int submitted_ = 0;
};

void measure_core(int models, int rounds) {
  Load load(models);
  Times dispatch, submit;
  for (int i = 0; i < rounds; ++i) {
    dispatch.measure([&] { load.end_one(); });
    submit.measure([&] { load.submit(); });
  }
  dispatch.print("dispatch", models);
  submit.print("submit", models);
}

void measure_decide(int rounds) {
  using namespace core::placement;
  std::vector<WorkerChoice> free, busy;
  std::vector<DeviceChoice> full, roomy;
  for (std::uint32_t i = 0; i < kWorkers; ++i) {
    free.push_back({.worker = i, .slots_free = i % 3, .active = (i * 7) % 5, .device_free_bytes = (i * 13) % 17 * kGb});
    busy.push_back({.worker = i, .slots_free = 0, .active = 1, .device_free_bytes = 0});
    DeviceChoice device{.device = i, .free_bytes = kGb, .potential_bytes = 5 * kGb, .total_bytes = 5 * kGb};
    device.residents.push_back(
        {.worker = i, .bytes = 4 * kGb, .last_used_ms = (i * 31) % 64, .ready = true, .idle = i % 2 == 0});
    full.push_back(device);
    device.free_bytes = static_cast<std::int64_t>(4 + (i * 11) % 7) * kGb;
    roomy.push_back(device);
  }
  const auto measure = [&](const char* name, std::span<const WorkerChoice> workers,
                           std::span<const DeviceChoice> devices) {
    Times times;
    for (int i = 0; i < rounds; ++i) {
      PlacementInput input{.rank = {.arrival = {10}}, .memory_bytes = 4 * kGb};
      input.workers = workers;
      DecisionLog log;
      times.measure([&] {
        (void)decide(
            input, [&] { return Devices{.all = devices, .tiers = {}}; }, log);
      });
    }
    times.print(name, 1);
  };
  measure("decide: use a worker", free, full);
  measure("decide: start one", busy, roomy);
  measure("decide: evict or wait", {}, full);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20'000;
  measure_decide(rounds);
  for (const int models : {1, kWorkers}) measure_core(models, rounds);
  return 0;
}
