#pragma once
// The figures of a bench as a table and as JSON. Pure.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace llorch::cli::bench {

enum class Phase : std::uint8_t { kPrefill, kDecode };

// One measurement, with the machine's limit probed right before it.
struct Sample {
  double tokens_per_s = 0;
  double share_of_limit = 0;
  std::optional<double> core_share;  // as mean_core_share(): the less of before the probe and after the run
};

struct Figure {
  Phase phase{};
  std::uint32_t context = 0;  // positions each sequence holds before
  std::uint32_t batch = 1;    // sequences at once
  std::uint32_t tokens = 0;   // of each sequence, in one run
  double step_bytes = 0;      // decode: what the mean step must read; prefill: 0
  std::vector<Sample> samples;
};

struct ModelFacts {
  std::string file, architecture, name, weight_type, kv_dtype;
  std::uint64_t parameters = 0, weights_bytes = 0;
};

struct MachineFacts {
  std::uint32_t processors = 0, threads = 0;
  std::string implementation;                                 // as plan::Backend::implementation()
  std::vector<double> read_bytes_per_s, multiply_adds_per_s;  // of every probe
  std::uint64_t read_probe_bytes = 0;
  bool multiplies_integers = false;
  double load_average = 0;            // of the minute before
  std::optional<double> others_busy;  // processors that other programs kept busy meanwhile
  // False: more than a tenth of a processor went to other programs, or may have.
  bool is_quiet() const;
};

struct Report {
  ModelFacts model;
  MachineFacts machine;
  std::string build;
  std::vector<Figure> figures;                   // with a sample at least
  std::vector<std::uint32_t> contexts_left_out;  // of the defaults: longer than the model's context
  bool interrupted = false;
};

// The middle one, or the mean of the two. REQUIRES: one at least.
double median(std::vector<double> values);

std::string report_json(const Report& report);
std::vector<std::string> table_header();
std::vector<std::vector<std::string>> table_rows(std::span<const Figure> figures);
// Lines below the table: model, machine, limits, and what makes the figures say less.
std::string notes(const Report& report);

}  // namespace llorch::cli::bench
