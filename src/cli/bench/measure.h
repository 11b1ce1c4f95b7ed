#pragma once
// Times prefill and decode on a loaded engine, with a probe of the machine's limit before every figure.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/bench/probes.h"
#include "cli/bench/report.h"
#include "cli/bench/traffic.h"
#include "engine/inference/engine.h"

namespace llorch::cli::bench {

struct Shape {
  std::uint32_t prompt_tokens = 0;      // of a prefill; at least 1
  std::uint32_t generate_tokens = 0;    // of each sequence; at least 1
  std::vector<std::uint32_t> batches;   // at least one, each at least 1
  std::vector<std::uint32_t> contexts;  // at least one; positions held before a measurement
  std::uint32_t threads = 1;
  std::uint32_t runs = 1;

  std::uint32_t batch_max() const;
  std::uint64_t positions_max() const;  // of a sequence
};

struct Hooks {
  std::function<bool()> should_stop;
  // Parts of the work that are done, of so many, and the part at hand.
  std::function<void(std::size_t done, std::size_t total, const std::string& part)> progress;
};

// Adds figures and probes to `report`, which keeps them when a later one fails or `should_stop` ends it (`interrupted`, at
// the next step). Errors: those of the engine's steps.
// REQUIRES: the engine has batch_max() slots and positions_max() positions in each.
base::Result<> measure(engine::inference::Engine& engine, const Traffic& traffic, const Shape& shape,
                       const Hooks& hooks, Report& report);

}  // namespace llorch::cli::bench
