#pragma once
// Many runs: what they met, how many there were, and the first that broke a rule.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/check/probes.h"
#include "sim/world/options.h"

namespace llorch::sim {

struct RunResult {
  std::string violation;  // empty: every rule held
  Counts counts;
  std::uint64_t hash = 0;
  std::int64_t events = 0;
  std::int64_t drain_ms = 0;
  std::string text;  // if asked for
};
RunResult run(const Options& options, bool keep_trace = false);

struct BatchResult {
  std::int64_t schedules = 0;
  std::int64_t events = 0;
  std::int64_t drain_ms_max = 0;
  Counts counts;
  std::string violation;  // of the first run that broke a rule; the batch ends with it
  std::uint64_t violating_seed = 0;
  std::vector<std::string> missed() const;  // probes nobody reached
};
struct BatchOptions {
  std::uint64_t first_seed = 1;
  std::int64_t schedules = 0;  // at most
  std::int64_t seconds = 0;    // of real time; 0: no limit
  InjectedBug bug = InjectedBug::kNone;
  std::function<bool(const BatchResult&)> go_on;  // asked after every run; none: always
};
// Every twentieth run happens twice, and must be the same twice.
BatchResult run_batch(const BatchOptions& options);

}  // namespace llorch::sim
