// sim: runs schedules of the simulated system.
//   sim --seed N [--trace]           one run; --trace prints every event and command
//   sim --from N --schedules K       K runs; prints what they met
//   sim --from N --seconds S         as many runs as fit; Ctrl-C ends them early and prints what there is
// --keep FILE adds one line on the batch to FILE.
// Exit status: 0 all rules held, 1 a rule was broken or a probe was never reached, 2 usage; an interrupted batch ends by the
// signal, once it has printed.
#include <fmt/chrono.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <fstream>

#include "base/entropy.h"
#include "sim/check/batch.h"

using namespace llorch::sim;

namespace {

int run_one(std::uint64_t seed, InjectedBug bug, bool trace) {
  Options options = swarm_options(seed);
  options.bug = bug;
  const RunResult result = run(options, trace);
  if (trace) fmt::print("{}", result.text);
  for (const auto& [what, times] : result.counts) fmt::print("  {:>8} {}\n", times, what);
  fmt::print("seed {}: {} events, drained in {} ms, hash {:016x}\n", seed, result.events, result.drain_ms, result.hash);
  if (result.violation.empty()) return 0;
  fmt::print("VIOLATION: {}\n", result.violation);
  return 1;
}

volatile std::sig_atomic_t interrupted = 0;

// Whether the batch goes on; on a terminal, once in a while, how far it is.
bool go_on(const BatchResult& so_far) {
  using Clock = std::chrono::steady_clock;
  static const auto begun = Clock::now();
  static auto told = begun;
  if (const auto now = Clock::now(); isatty(STDERR_FILENO) != 0 && now - told >= std::chrono::seconds(10)) {
    told = now;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - begun).count();
    fmt::print(stderr, "{} schedules in {} s\n", so_far.schedules, seconds);
  }
  return interrupted == 0;
}

std::string summary(const BatchOptions& options, const BatchResult& result) {
  std::string out = fmt::format("{} schedules from seed {}, {} events, longest drain {} ms of virtual time",
                                result.schedules, options.first_seed, result.events, result.drain_ms_max);
  if (options.bug != InjectedBug::kNone) out += fmt::format(", with {}", name(options.bug));
  if (interrupted != 0) out += ", interrupted";
  return out;
}

struct Reporting {
  bool probes_must_be_reached = false;
  std::string keep;  // a file, or empty
};
int run_many(const BatchOptions& options, const Reporting& reporting) {
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  const BatchResult result = run_batch(options);
  for (const auto& [what, times] : result.counts) fmt::print("  {:>10} {}\n", times, what);
  const auto missed = result.missed();
  for (const std::string& probe : missed) fmt::print("  {:>10} {}\n", "never", probe);
  const std::string line = summary(options, result);
  fmt::print("{}\n", line);
  if (!result.violation.empty())
    fmt::print("VIOLATION: {}\nreplay: sim --seed {} --trace\n", result.violation, result.violating_seed);
  std::fflush(stdout);
  if (!reporting.keep.empty()) {
    const auto now = fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
    std::ofstream kept(reporting.keep, std::ios::app);
    kept << fmt::format("{:%FT%TZ}\t{}", now, line);
    if (!result.violation.empty()) kept << " VIOLATION: " << result.violation;
    kept << std::endl;
    if (!kept) fmt::print(stderr, "sim: cannot write {}\n", reporting.keep);
  }
  if (!result.violation.empty()) return 1;
  if (interrupted != 0) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  return reporting.probes_must_be_reached && !missed.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs schedules of the simulated system: one seed, one schedule, bit for bit."};
  std::optional<std::uint64_t> seed, from;
  BatchOptions batch;
  bool trace = false;
  Reporting reporting;
  std::string bug_name;
  app.add_option("--seed", seed, "run this one");
  app.add_flag("--trace", trace, "with --seed: print every event and command");
  app.add_option("--from", from, "first seed of a batch; omitted: a random one");
  app.add_option("--schedules", batch.schedules, "runs of the batch");
  app.add_option("--seconds", batch.seconds, "real time for the batch");
  app.add_flag("--probes", reporting.probes_must_be_reached, "fail when a probe was never reached");
  app.add_option("--bug", bug_name, "put this bug in, to see it found");
  app.add_option("--keep", reporting.keep, "add one line on the batch to this file");
  CLI11_PARSE(app, argc, argv);
  for (int p = 0; p < kBugsCount && !bug_name.empty(); ++p) {
    if (bug_name == name(static_cast<InjectedBug>(p))) batch.bug = static_cast<InjectedBug>(p);
  }
  if (seed) return run_one(*seed, batch.bug, trace);
  if (batch.schedules <= 0 && batch.seconds <= 0) {
    fmt::print(stderr, "sim: give --seed, --schedules or --seconds\n");
    return 2;
  }
  llorch::base::SystemEntropy entropy;
  batch.first_seed = from ? *from : entropy.next_u64() >> 16;
  batch.go_on = go_on;
  return run_many(batch, reporting);
}
