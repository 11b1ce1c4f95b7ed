// sim: runs schedules of the simulated system.
//   sim --seed N [--trace]           one run; --trace prints every event and command
//   sim --from N --schedules K       K runs; prints what they met
//   sim --from N --seconds S         as many runs as fit
// Exit status: 0 all rules held, 1 a rule was broken or a probe was never reached, 2 usage.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "base/entropy.h"
#include "sim/check/batch.h"

using namespace llorch::sim;

namespace {

int run_one(std::uint64_t seed, Plant plant, bool trace) {
  Options options = swarm_options(seed);
  options.plant = plant;
  const RunResult result = run(options, trace);
  if (trace) fmt::print("{}", result.text);
  for (const auto& [what, times] : result.counts) fmt::print("  {:>8} {}\n", times, what);
  fmt::print("seed {}: {} events, drained in {} ms, hash {:016x}\n", seed, result.events, result.drain_ms, result.hash);
  if (result.violation.empty()) return 0;
  fmt::print("VIOLATION: {}\n", result.violation);
  return 1;
}

int run_many(const BatchOptions& options, bool probes_must_be_reached) {
  const BatchResult result = run_batch(options);
  for (const auto& [what, times] : result.counts) fmt::print("  {:>10} {}\n", times, what);
  const auto missed = result.missed();
  for (const std::string& probe : missed) fmt::print("  {:>10} {}\n", "never", probe);
  fmt::print("{} schedules from seed {}, {} events, longest drain {} ms of virtual time\n", result.schedules,
             options.first_seed, result.events, result.drain_ms_max);
  if (!result.violation.empty()) {
    fmt::print("VIOLATION: {}\nreplay: sim --seed {} --trace\n", result.violation, result.violating_seed);
    return 1;
  }
  return probes_must_be_reached && !missed.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs schedules of the simulated system: one seed, one schedule, bit for bit."};
  std::optional<std::uint64_t> seed, from;
  BatchOptions batch;
  bool trace = false, probes = false;
  std::string plant_name;
  app.add_option("--seed", seed, "run this one");
  app.add_flag("--trace", trace, "with --seed: print every event and command");
  app.add_option("--from", from, "first seed of a batch; omitted: a random one");
  app.add_option("--schedules", batch.schedules, "runs of the batch");
  app.add_option("--seconds", batch.seconds, "real time for the batch");
  app.add_flag("--probes", probes, "fail when a probe was never reached");
  app.add_option("--plant", plant_name, "put this bug in, to see it found");
  CLI11_PARSE(app, argc, argv);
  for (int p = 0; p < kPlantsCount && !plant_name.empty(); ++p) {
    if (plant_name == name(static_cast<Plant>(p))) batch.plant = static_cast<Plant>(p);
  }
  if (seed) return run_one(*seed, batch.plant, trace);
  if (batch.schedules <= 0 && batch.seconds <= 0) {
    fmt::print(stderr, "sim: give --seed, --schedules or --seconds\n");
    return 2;
  }
  llorch::base::SystemEntropy entropy;
  batch.first_seed = from ? *from : entropy.next_u64() >> 16;
  return run_many(batch, probes);
}
