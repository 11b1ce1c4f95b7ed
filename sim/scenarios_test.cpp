// Bugs of the field. Each is a scripted world without random faults, many times with another seed for delays and orders, and
// a rule of its own. With the rule's counterpart injected (world/options.h) at least one seed must fail: a scenario that
// cannot fail proves nothing.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "sim/world/world.h"

namespace llorch::sim {
namespace {

constexpr std::int64_t kGb = 1'000'000'000;

ClientPlan job(int number, int model, std::int64_t at_ms, std::int64_t tokens = 5) {
  ClientPlan plan;
  plan.request.task_id = job_name(number);
  plan.request.model = model;
  plan.request.max_tokens = tokens;
  plan.request.seed = static_cast<std::uint64_t>(number);
  plan.submit_at_ms = at_ms;
  return plan;
}

std::int64_t count(const World& world, std::string_view what) {
  const auto it = world.oracle.counts().find(what);
  return it == world.oracle.counts().end() ? 0 : it->second;
}

// Empty if everything that was asked for was completed within this much virtual time after now.
std::string all_completed(World& world, std::int64_t within_ms) {
  world.heal();
  world.run_to_the_end();
  if (!world.oracle.violation().empty()) return world.oracle.violation();
  const auto completed = count(world, "job completed"), asked = static_cast<std::int64_t>(world.clients.size());
  if (completed != asked) return fmt::format("{} of {} jobs completed", completed, asked);
  if (world.drain_ms() > within_ms) return fmt::format("took {} ms", world.drain_ms());
  return {};
}

Options quiet(std::uint64_t seed, InjectedBug bug) {
  Options o = quiet_options();
  o.seed = seed;
  o.bug = bug;
  return o;
}

// llama-swap #588: requests for two models in turns, room for one: a batch lost half of them between swaps.
std::string swaps_between_queued_requests_lose_none(std::uint64_t seed, InjectedBug bug) {
  World world(quiet(seed, bug));
  world.start();
  for (int i = 0; i < 20; ++i) world.add_client(job(i, i % 2, 1 + i * 10));
  if (auto failure = all_completed(world, 60'000); !failure.empty()) return failure;
  // One swap for the batch and one back at most, not one per request.
  const auto swaps = count(world, "evicted an idle worker") + count(world, "reserved a worker for a model that waited");
  return swaps <= 4 ? "" : fmt::format("{} swaps", swaps);
}

// llama-swap #97: the next model is started before the memory of the last one is free. The devices check every allocation.
std::string the_next_model_waits_for_the_memory_of_the_last(std::uint64_t seed, InjectedBug bug) {
  Options o = quiet(seed, bug);
  o.faults.exit_slow = 1'000;
  o.pools[0].devices[0].reports_free = seed % 2 == 0;
  World world(o);
  world.start();
  for (int i = 0; i < 6; ++i) world.add_client(job(i, i % 2, 1 + i * 4'000));
  world.run_for(25'000);
  const bool held = count(world, "memory of a dead worker held on") > 0;
  if (auto failure = all_completed(world, 120'000); !failure.empty()) return failure;
  return held ? "" : "no memory was held on: the scenario shows nothing";
}

// llama.cpp #21678: the router stopped models that were busy or loading, over and over. The oracle refuses every stop of a
// worker that is not idle and every eviction before a load has paid off, the pool every kill of one that works.
std::string busy_and_loading_models_are_left_alone(std::uint64_t seed, InjectedBug bug) {
  Options o = quiet(seed, bug);
  o.models.push_back({.name = "c", .bytes = 7 * kGb, .load_ms = 5'000});
  o.models[0].load_ms = o.models[1].load_ms = 5'000;
  o.core.memory_patience_ms = 2'000;
  o.work.token_ms = 200;
  World world(o);
  world.start();
  for (int i = 0; i < 12; ++i) world.add_client(job(i, i % 3, 1 + i * 700, 30));
  if (auto failure = all_completed(world, 600'000); !failure.empty()) return failure;
  const auto loads = count(world, "worker started");
  return loads <= 12 ? "" : fmt::format("{} loads for 12 jobs", loads);
}

// LocalAI #6994: with a single active model allowed, two models asked for at once waited for each other for ever.
std::string a_single_active_model_does_not_deadlock(std::uint64_t seed, InjectedBug bug) {
  Options o = quiet(seed, bug);
  o.core.workers_per_gpu = 1;
  o.pools[0].devices[0].bytes = 100 * kGb;  // memory is not what stands in the way
  World world(o);
  world.start();
  for (int i = 0; i < 8; ++i) world.add_client(job(i, i % 2, 1));
  return all_completed(world, 120'000);
}

// LocalAI #10719: clients that poll a broken model loaded it again and again and leaked. Its jobs end with the reason, starts
// back off (1 s doubling to 60 s), and nothing of them stays.
std::string polling_a_broken_model_does_not_load_it_again_and_again(std::uint64_t seed, InjectedBug bug) {
  Options o = quiet(seed, bug);
  o.models[0].broken = true;
  o.core.queue.capacity = 1'000;
  World world(o);
  world.start();
  for (int i = 0; i < 300; ++i) world.add_client(job(i, i % 10 == 0 ? 1 : 0, 1 + i * 200));
  world.run_for(60'000);
  world.heal();
  world.run_to_the_end();
  if (!world.oracle.violation().empty()) return world.oracle.violation();
  const auto completed = count(world, "job completed"), broken = count(world, "ended: CORRUPT_FILE");
  if (completed != 30 || broken != 270) return fmt::format("{} completed, {} ended with the reason", completed, broken);
  const auto starts = count(world, "worker started");
  return starts >= 3 && starts <= 16 ? "" : fmt::format("{} loads", starts);
}

// llama-swap #946: the unload after the idle time races a request, and the group hangs for ever while its health says ok.
// Requests come at every offset around the moment of the unload; all are served, by the old worker or by the next.
std::string a_request_that_races_with_the_unload_is_served(std::uint64_t seed, InjectedBug bug) {
  Options o = quiet(seed, bug);
  o.core.eviction.worker_idle_ttl_ms = 3'000;
  o.faults.exit_slow = seed % 3 == 0 ? 1'000 : 0;
  World world(o);
  world.start();
  // Each comes about as long after the end of the last one as the idle time is.
  for (int i = 0; i < 12; ++i) {
    const auto jitter_ms = static_cast<std::int64_t>(seed * 37 + static_cast<std::uint64_t>(i) * 53) % 400 - 200;
    world.add_client(job(i, 0, 3'000 + i * 3'250 + jitter_ms));
  }
  world.run_for(45'000);
  return all_completed(world, 30'000);
}

// The same race when another model wants the room.
std::string a_request_for_a_model_that_is_being_stopped_is_served(std::uint64_t seed, InjectedBug bug) {
  World world(quiet(seed, bug));
  world.start();
  world.add_client(job(0, 0, 1));
  world.add_client(job(1, 1, 6'000));  // stops the worker of model 0
  for (int i = 2; i < 6; ++i) world.add_client(job(i, 0, 6'000 + static_cast<std::int64_t>(seed) * 5 + i));
  return all_completed(world, 120'000);
}

// A steady stream for one model must not starve another: its job waits for the patience, a reservation, one running job and two
// loads, and no longer.
std::string a_steady_stream_starves_nobody(std::uint64_t seed, InjectedBug bug) {
  Options o = quiet(seed, bug);
  o.core.memory_patience_ms = 5'000;
  o.core.timeout.queue_ms = 0;
  o.work.token_ms = 100;
  World world(o);
  world.start();
  for (int i = 0; i < 60; ++i) world.add_client(job(i, 0, 1 + i * 500, 8));
  world.add_client(job(1'000, 1, 3'000));
  const Client& other = *world.clients.back();
  world.run_for(25'000);
  if (!world.oracle.violation().empty()) return world.oracle.violation();
  if (!other.done()) return "the other model's job has not ended";
  return all_completed(world, 120'000);
}

// An operator drains the only pool under a running job and restarts orchestratord: nothing is sent there until the drain is
// taken back, and then everything ends.
std::string a_drain_survives_a_restart(std::uint64_t seed, InjectedBug bug) {
  Options o = quiet(seed, bug);
  o.work.token_ms = 500;
  World world(o);
  world.start();
  for (int i = 0; i < 6; ++i) world.add_client(job(i, 0, 1 + i * 1'000, 30));
  const auto at = [&](std::int64_t ms, auto act) { world.loop.at(world.loop.now_us() + ms * kMs, act); };
  at(5'000, [&] { world.operators->drain("pool-0", 1'500); });
  at(9'000, [&] { world.crash_orchestrator(); });
  world.run_for(25'000);
  if (!world.oracle.violation().empty()) return world.oracle.violation();
  if (count(world, "job put back by an operator") == 0)
    return "nothing ran at the deadline: the scenario shows nothing";
  return all_completed(world, 120'000);
}

struct Scenario {
  const char* name;
  std::string (*run)(std::uint64_t seed, InjectedBug bug);
  InjectedBug bug;
};
constexpr Scenario kScenarios[] = {
    {"llama_swap_946_unload_races_request", a_request_that_races_with_the_unload_is_served,
     InjectedBug::kUnloadRacesRequest},
    {"llama_swap_588_swaps_lose_requests", swaps_between_queued_requests_lose_none, InjectedBug::kSwapLosesJobs},
    {"llama_swap_97_memory_not_free_yet", the_next_model_waits_for_the_memory_of_the_last,
     InjectedBug::kFreeMemoryAtSignal},
    {"llama_cpp_21678_loading_model_killed", busy_and_loading_models_are_left_alone, InjectedBug::kEvictsLoading},
    {"LocalAI_6994_single_active_deadlock", a_single_active_model_does_not_deadlock, InjectedBug::kStopIsLost},
    {"LocalAI_10719_broken_model_polled", polling_a_broken_model_does_not_load_it_again_and_again,
     InjectedBug::kNoStartBackoff},
    {"request_for_a_model_being_stopped", a_request_for_a_model_that_is_being_stopped_is_served,
     InjectedBug::kStopIsLost},
    {"steady_stream_starves_nobody", a_steady_stream_starves_nobody, InjectedBug::kStopIsLost},
    {"drain_survives_a_restart", a_drain_survives_a_restart, InjectedBug::kDrainForgotten},
};

class Field : public testing::TestWithParam<Scenario> {};

// ORCH-3038, OC-CTRL-2002, OC-CORE-1018: the field's bugs are not ours.
TEST_P(Field, IsNotRepeated) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed)
    EXPECT_EQ(GetParam().run(seed, InjectedBug::kNone), "") << "seed " << seed;
}

TEST_P(Field, IsFoundWhenInjected) {
  std::string failure;
  std::uint64_t seed = 0;
  while (failure.empty() && seed < 30) failure = GetParam().run(++seed, GetParam().bug);
  EXPECT_NE(failure, "") << name(GetParam().bug);
  std::cout << name(GetParam().bug) << ", seed " << seed << ": " << failure << "\n";
}

INSTANTIATE_TEST_SUITE_P(Bugs, Field, testing::ValuesIn(kScenarios),
                         [](const auto& scenario) { return std::string(scenario.param.name); });

}  // namespace
}  // namespace llorch::sim
