#include "cli/bench/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/assert.h"
#include "cli/bench/probes.h"

namespace llorch::cli::bench {
namespace {

namespace bj = boost::json;

constexpr double kQuietProcessors = 0.1;
constexpr double kQuietLoad = 0.5;  // where the system does not say what others use

std::vector<double> rates_of(const Figure& figure) {
  std::vector<double> out;
  for (const Sample& sample : figure.samples) out.push_back(sample.tokens_per_s);
  return out;
}

double share_of(const Figure& figure) {
  std::vector<double> out;
  for (const Sample& sample : figure.samples) out.push_back(sample.share_of_limit);
  return median(std::move(out));
}

bool is_shared(const Sample& sample) { return sample.core_share.value_or(1) < kAloneShare; }

const char* phase_name(Phase phase) { return phase == Phase::kPrefill ? "prefill" : "decode"; }
const char* limit_name(Phase phase) { return phase == Phase::kPrefill ? "multiply_adds" : "memory_read"; }

// Four digits, which is more than two runs agree in.
std::string rate_text(double rate) {
  return rate >= 1000  ? fmt::format("{:.0f}", rate)
         : rate >= 100 ? fmt::format("{:.1f}", rate)
                       : fmt::format("{:.2f}", rate);
}

bj::value optional_json(std::optional<double> value) { return value ? bj::value(*value) : bj::value(nullptr); }

bj::object figure_json(const Figure& figure) {
  const std::vector<double> rates = rates_of(figure);
  bj::array samples;
  for (const Sample& sample : figure.samples)
    samples.push_back({{"tokens_per_s", sample.tokens_per_s},
                       {"share_of_limit", sample.share_of_limit},
                       {"core_share", optional_json(sample.core_share)}});
  bj::object out{{"phase", phase_name(figure.phase)},
                 {"context", figure.context},
                 {"batch", figure.batch},
                 {"tokens", figure.tokens},
                 {"runs", figure.samples.size()},
                 {"tokens_per_s", median(rates)},
                 {"tokens_per_s_min", std::ranges::min(rates)},
                 {"tokens_per_s_max", std::ranges::max(rates)},
                 {"limit", limit_name(figure.phase)},
                 {"share_of_limit", share_of(figure)},
                 {"samples", std::move(samples)}};
  if (figure.phase == Phase::kDecode) out["step_bytes"] = figure.step_bytes;
  return out;
}

bj::object machine_json(const MachineFacts& machine) {
  const auto middle = [](const std::vector<double>& values) {
    return values.empty() ? bj::value(nullptr) : bj::value(median(values));
  };
  return {{"processors", machine.processors},
          {"threads", machine.threads},
          {"implementation", machine.implementation},
          {"read_bytes_per_s", middle(machine.read_bytes_per_s)},
          {"read_probe_bytes", machine.read_probe_bytes},
          {"multiply_adds_per_s", middle(machine.multiply_adds_per_s)},
          {"multiplies", machine.multiplies_integers ? "int8" : "float32"},
          {"load_average", machine.load_average},
          {"others_busy", optional_json(machine.others_busy)},
          {"quiet", machine.is_quiet()}};
}

}  // namespace

bool MachineFacts::is_quiet() const {
  return others_busy ? *others_busy <= kQuietProcessors : load_average <= kQuietLoad;
}

double median(std::vector<double> values) {
  ASSERT(!values.empty(), "no value of {} has a median", values.size());
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string report_json(const Report& report) {
  bj::array figures, left_out;
  for (const Figure& figure : report.figures) figures.push_back(figure_json(figure));
  for (const std::uint32_t context : report.contexts_left_out) left_out.emplace_back(context);
  return bj::serialize(bj::object{{"model",
                                   {{"file", report.model.file},
                                    {"architecture", report.model.architecture},
                                    {"name", report.model.name},
                                    {"parameters", report.model.parameters},
                                    {"weight_type", report.model.weight_type},
                                    {"weights_bytes", report.model.weights_bytes},
                                    {"kv_dtype", report.model.kv_dtype}}},
                                  {"build", report.build},
                                  {"machine", machine_json(report.machine)},
                                  {"figures", std::move(figures)},
                                  {"contexts_left_out", std::move(left_out)},
                                  {"interrupted", report.interrupted}});
}

std::vector<std::string> table_header() {
  return {"PHASE", "CONTEXT", "BATCH", "TOKENS/S", "LEAST-MOST", "OF LIMIT", "RUNS"};
}

std::vector<std::vector<std::string>> table_rows(std::span<const Figure> figures) {
  std::vector<std::vector<std::string>> rows;
  for (const Figure& figure : figures) {
    const std::vector<double> rates = rates_of(figure);
    rows.push_back({phase_name(figure.phase), std::to_string(figure.context), std::to_string(figure.batch),
                    rate_text(median(rates)),
                    fmt::format("{}-{}", rate_text(std::ranges::min(rates)), rate_text(std::ranges::max(rates))),
                    fmt::format("{:.0f} %", 100 * share_of(figure)), std::to_string(figure.samples.size())});
  }
  return rows;
}

std::string notes(const Report& report) {
  const ModelFacts& model = report.model;
  const MachineFacts& machine = report.machine;
  std::string out = fmt::format("{}: {}, {:.1f} M parameters, {}, {:.1f} MiB of weights, cache {}\n", model.file,
                                model.architecture, static_cast<double>(model.parameters) / 1e6, model.weight_type,
                                static_cast<double>(model.weights_bytes) / (1 << 20), model.kv_dtype);
  out += fmt::format("{} of {} processors, {}", machine.threads, machine.processors, machine.implementation);
  if (!machine.read_bytes_per_s.empty()) {
    out += fmt::format("; limits: decode {:.1f} GB/s of reads, prefill {:.3f} T multiply-adds/s ({})",
                       median(machine.read_bytes_per_s) / 1e9, median(machine.multiply_adds_per_s) / 1e12,
                       machine.multiplies_integers ? "int8" : "float32");
  }
  out += '\n';
  for (const std::uint32_t context : report.contexts_left_out)
    out += fmt::format("note: a context of {} was left out: the model has no room for it\n", context);
  if (!machine.is_quiet()) {
    out += machine.others_busy
               ? fmt::format(
                     "note: this machine was not quiet: other programs used {:.2f} of its {} "
                     "processors; figures are lower than it can do\n",
                     *machine.others_busy, machine.processors)
               : fmt::format("note: this machine may not have been quiet: load average {:.2f}\n", machine.load_average);
  }
  std::size_t runs = 0, shared = 0;
  for (const Figure& figure : report.figures)
    runs += figure.samples.size(), shared += static_cast<std::size_t>(std::ranges::count_if(figure.samples, is_shared));
  if (shared != 0)
    out += fmt::format(
        "note: beside {} of {} runs another program ran on the same cores; figures are lower than they can do\n",
        shared, runs);
  for (const Figure& figure : report.figures) {
    if (figure.phase != Phase::kDecode || share_of(figure) <= 1) continue;
    out += "note: above 100 %: the caches held what was read, or other programs slowed the probe more than the model\n";
    break;
  }
  if (report.interrupted) out += "note: interrupted; what was measured until then\n";
  return out;
}

}  // namespace llorch::cli::bench
