#include "sim/check/batch.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "sim/world/world.h"

namespace llorch::sim {
namespace {
constexpr std::int64_t kRepeatEvery = 20;
}

RunResult run(const Options& options, bool keep_trace) {
  World world(options, keep_trace);
  world.start();
  world.run();
  return {.violation = world.oracle.violation(),
          .counts = world.oracle.counts(),
          .hash = world.hash(),
          .events = world.loop.events_count(),
          .drain_ms = world.drain_ms(),
          .text = std::move(world.text)};
}

std::vector<std::string> BatchResult::missed() const {
  std::vector<std::string> out;
  for (const std::string_view probe : kProbes) {
    if (!counts.contains(probe)) out.emplace_back(probe);
  }
  return out;
}

BatchResult run_batch(const BatchOptions& options) {
  BatchResult out;
  const auto begin = std::chrono::steady_clock::now();
  const auto time_is_up = [&] {
    return options.seconds > 0 && std::chrono::steady_clock::now() - begin >= std::chrono::seconds(options.seconds);
  };
  const std::int64_t limit = options.schedules > 0 ? options.schedules : std::numeric_limits<std::int64_t>::max();
  while (out.schedules < limit && !time_is_up()) {
    const std::uint64_t seed = options.first_seed + static_cast<std::uint64_t>(out.schedules);
    Options o = swarm_options(seed);
    o.bug = options.bug;
    RunResult result = run(o);
    out.events += result.events;
    out.drain_ms_max = std::max(out.drain_ms_max, result.drain_ms);
    for (const auto& [what, times] : result.counts) out.counts[what] += times;
    if (result.violation.empty() && out.schedules % kRepeatEvery == 0 && run(o).hash != result.hash) {
      result.violation = "seed " + std::to_string(seed) + ": two runs of one seed differ";
    }
    ++out.schedules;
    if (!result.violation.empty()) {
      out.violation = result.violation;
      out.violating_seed = seed;
      break;
    }
    if (options.go_on && !options.go_on(out)) break;
  }
  return out;
}

}  // namespace llorch::sim
