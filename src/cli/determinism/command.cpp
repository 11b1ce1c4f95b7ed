#include "cli/determinism/command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/build_id.h"
#include "cli/determinism/report.h"
#include "engine/inference/devices/open_devices.h"
#include "engine/io/model_digest.h"

namespace llorch::cli::determinism {
namespace {

void show_progress(const Progress& p) {
  if (!isatty(STDERR_FILENO)) return;
  constexpr std::size_t kWidth = 24;
  const std::size_t total = p.cells * p.requests;
  const std::size_t filled = (p.cell_index * p.requests + p.done) * kWidth / total;
  fmt::print(stderr, "\r[{:<{}}] {}/{} {:<18} {}/{}\x1b[K", std::string(filled, '#'), kWidth, p.cell_index + 1, p.cells,
             p.cell, p.done, p.requests);
  if (p.cell_index + 1 == p.cells && p.done == p.requests) fmt::print(stderr, "\r\x1b[K");
}

struct Checked {
  Subject subject;
  Report report;
  std::filesystem::path proof;
};

base::Result<Checked> check(const GlobalOptions& global, const CommandOptions& options) {
  const base::SystemClock clock;
  base::SystemEntropy entropy;
  const ProofPlace place = TRY(proof_place(
      state_directory(global), [](const char* name) { return std::getenv(name); }, clock, entropy));
  Checked out;
  const std::string digest = TRY(engine::io::model_digest(options.model));
  out.subject = {.model = std::filesystem::path(options.model).filename().string(),
                 .model_digest = "sha256:" + digest,
                 .engine_build = base::build_id()};
  const auto own_threads = options.threads != 0 ? static_cast<std::uint32_t>(options.threads)
                                                : std::max(1U, std::thread::hardware_concurrency());
  const bool on_gpus = !engine::inference::devices::names_cpu(options.device);
  const MakeDevices make_devices = [&](const DeviceChoice& device) -> MakeDevices::result_type {
    if (on_gpus && !device.isa.empty())
      return base::fail(base::ErrorCode::kGpuUnavailable, "a GPU has no instruction sets to choose from");
    return engine::inference::devices::open_devices(
        {.names = options.device,
         .cpu_threads_count = device.threads != 0 ? device.threads : own_threads,
         .cpu_isa = device.isa});
  };
  out.report =
      TRY(run_matrix({.model = options.model,
                      .kv_dtype = options.kv_dtype == "f32" ? engine::plan::DType::kF32 : engine::plan::DType::kF16,
                      .requests_max = static_cast<std::size_t>(options.seeds),
                      .quick = options.quick},
                     make_devices, clock, show_progress));
  out.proof = TRY(write_proof_bundle(place, out.subject, out.report));
  return out;
}

void print_report(const Checked& checked) {
  const Report& report = checked.report;
  std::vector<std::vector<std::string>> rows;
  std::size_t runs = 0;
  for (const CellResult& cell : report.cells) {
    runs += cell.requests;
    if (!cell.skipped.empty()) {
      rows.push_back({cell.name, "skipped", "", "", "", cell.skipped});
      continue;
    }
    rows.push_back({cell.name, std::to_string(cell.requests), std::to_string(cell.mismatches),
                    std::to_string(cell.counts.steps),
                    fmt::format("{:.1f} s", static_cast<double>(cell.wall_ms) / 1000), ""});
  }
  print_table({"CELL", "REQUESTS", "MISMATCHES", "STEPS", "TIME", ""}, rows);
  for (const Mismatch& mismatch : report.mismatches) fmt::print("{}\n", describe(mismatch));
  fmt::print("{}: {} requests, {} runs, {} mismatches; proof in {}\n",
             report.passed() ? "deterministic" : "NOT DETERMINISTIC", report.requests.size(), runs,
             report.mismatches.size(), checked.proof.string());
}

}  // namespace

int check_determinism(const GlobalOptions& global, const CommandOptions& options) {
  const auto checked = check(global, options);
  if (!checked) return report(checked.error(), global.json);
  if (global.json) {
    fmt::print("{}\n", report_json(checked->subject, checked->report));
  } else {
    print_report(*checked);
  }
  return checked->report.passed() ? kOk : kFailed;
}

}  // namespace llorch::cli::determinism
