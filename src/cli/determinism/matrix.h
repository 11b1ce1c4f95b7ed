#pragma once
// The determinism matrix: the requests of the corpus alone, and then under everything that must not change a bit.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/determinism/corpus.h"
#include "cli/determinism/run.h"
#include "engine/inference/devices/open_devices.h"
#include "engine/inference/engine.h"
#include "engine/plan/dtype.h"

namespace llorch::cli::determinism {

struct DeviceChoice {
  std::uint32_t threads = 0;  // 0 = as many as the caller's own choice
  std::string isa;            // "" = the best there is
};

// Makes the device of a cell, or several that share the model. GPU_UNAVAILABLE: not on this machine, the cell is skipped and
// said so.
using MakeDevices = std::function<base::Result<engine::inference::devices::OpenDevices>(const DeviceChoice&)>;

// One set of circumstances. Every cell loads the model anew.
struct Cell {
  enum class Kind : std::uint8_t {
    kOnce,
    kTwice,        // as many as there are slots, and at once again with everything they left behind
    kInterrupted,  // an engine is lost in the middle; another one begins again
    kReplicas,     // two engines, each of which answers every request
  };
  std::string name;
  Kind kind = Kind::kOnce;
  std::uint32_t slots = 1;
  std::uint32_t chunk = 512;
  std::uint32_t contexts = 0;  // as many positions as so many slots full of the longest request; 0: as there are slots
  DeviceChoice device{};
  bool foretold = false;   // tokens of the reference are computed ahead
  bool predicted = false;  // those that the model's own layer for further tokens says; skipped where there is none
  Circumstances circumstances{};
};

// The first one is the reference: every request alone.
std::vector<Cell> all_cells();
// A choice of them that still has every kind of circumstance.
std::vector<Cell> quick_cells();

struct MatrixOptions {
  std::filesystem::path model;
  engine::plan::DType kv_dtype = engine::plan::DType::kF16;
  std::size_t requests_max = 0;  // of the corpus; 0 = all
  bool quick = false;
};

struct Mismatch {
  std::string cell;
  std::uint64_t seed = 0;
  Departure at;
};

struct CellResult {
  std::string name;
  std::string skipped;  // why it did not run; empty: it ran
  std::size_t requests = 0;
  std::size_t mismatches = 0;
  RunCounts counts;
  std::int64_t started_unix_ms = 0;
  std::int64_t wall_ms = 0;
};

struct RequestResult {
  std::uint64_t seed = 0;
  std::size_t prompt_tokens = 0;
  std::size_t tokens = 0;
  std::string tokens_sha256;  // of the reference; what every cell that matches has too
};

struct Report {
  engine::inference::EngineFacts facts;
  std::vector<RequestResult> requests;
  std::vector<CellResult> cells;
  std::vector<Mismatch> mismatches;  // at most one per cell and request: the first
  bool passed() const { return mismatches.empty(); }
};

// After every request of every cell.
struct Progress {
  std::string_view cell;
  std::size_t cell_index = 0, cells = 0;
  std::size_t done = 0, requests = 0;
};
using OnProgress = std::function<void(const Progress&)>;

// Errors: those of loading the model and of running it.
base::Result<Report> run_matrix(const MatrixOptions& options, const MakeDevices& make_devices, const base::Clock& clock,
                                const OnProgress& progress = {});

}  // namespace llorch::cli::determinism
