// llorch model trace: writes what every instruction wrote, or finds where this run departs from an earlier one.
//
// A trace is JSON lines: a header (the run), then one object per row and instruction, in the order of execution.
#include <fmt/core.h>

#include <boost/json.hpp>
#include <fstream>
#include <optional>

#include "base/file.h"
#include "base/sha256.h"
#include "cli/model/commands.h"
#include "engine/inference/trace/recorder.h"

namespace llorch::cli::model {
namespace {

namespace bj = boost::json;
using base::ErrorCode;
using engine::inference::trace::Comparison;
using engine::inference::trace::Recorder;
using engine::inference::trace::RowRecord;

constexpr std::size_t kTraceBytesMax = std::size_t{4} << 30;
constexpr int kFormat = 1;

bj::object header_of(const LoadedRun& run) {
  const auto& facts = run.engine->facts();
  std::string ids;
  for (const base::TokenId token : run.tokens) ids += fmt::format("{},", base::index(token));
  // Of the tokens, a hash: what a prompt was does not belong into files.
  return {{"trace", kFormat},
          {"architecture", facts.architecture},
          {"layers", facts.layers},
          {"width", facts.width},
          {"vocab", facts.vocab},
          {"plan_hash", facts.plan_hash},
          {"numerics", facts.numerics},
          {"implementation", facts.implementation},
          {"kv_dtype", facts.kv_dtype},
          {"tokens", run.tokens.size()},
          {"tokens_sha256", base::to_hex(base::sha256(ids))}};
}

bj::object to_json(const RowRecord& r) {
  return {{"position", r.key.position},
          {"instruction", r.key.instruction},
          {"opcode", std::string(engine::plan::opcode_name(r.opcode))},
          {"width", r.width},
          {"min", r.min},
          {"max", r.max},
          {"mean", r.mean},
          {"rms", r.rms},
          {"nonfinite", r.nonfinite},
          {"bits", base::to_hex(r.bits_hash)}};
}

std::optional<RowRecord> from_json(const bj::object& row) {
  RowRecord r;
  const auto number = [&](const char* key, auto& out) {
    boost::system::error_code ec;
    const bj::value* value = row.if_contains(key);
    if (value == nullptr) return false;
    out = value->to_number<std::remove_reference_t<decltype(out)>>(ec);
    return !ec;
  };
  const bj::value* opcode = row.if_contains("opcode");
  const bj::value* bits = row.if_contains("bits");
  if (!number("position", r.key.position) || !number("instruction", r.key.instruction) || !number("width", r.width) ||
      !number("min", r.min) || !number("max", r.max) || !number("mean", r.mean) || !number("rms", r.rms) ||
      !number("nonfinite", r.nonfinite) || opcode == nullptr || !opcode->is_string() || bits == nullptr ||
      !bits->is_string() || bits->get_string().size() != 2 * r.bits_hash.size()) {
    return std::nullopt;
  }
  for (const auto& known : engine::plan::kOpcodes) {
    if (known.name == std::string_view(opcode->get_string())) r.opcode = known.opcode;
  }
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (std::size_t i = 0; i < r.bits_hash.size(); ++i) {
    const int high = digit(bits->get_string()[2 * i]), low = digit(bits->get_string()[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    r.bits_hash[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return r;
}

// The rows of an earlier trace of a model of the same shape, on the same tokens. Cache types and weights may differ: where
// that begins to show is what a comparison is for.
base::Result<std::vector<RowRecord>> read_trace(const std::string& path, const bj::object& run_header) {
  const std::string text = TRY(base::read_file(path, kTraceBytesMax));
  std::vector<RowRecord> rows;
  std::size_t line_number = 0;
  const auto broken = [&](std::string_view why) {
    return base::fail(ErrorCode::kInvalidParams, fmt::format("{} line {}: {}", path, line_number, why));
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    ++line_number;
    boost::system::error_code ec;
    const bj::value line = bj::parse(bj::string_view(text).substr(at, end - at), ec);
    if (ec || !line.is_object()) return broken("no JSON object");
    at = end + 1;
    if (line_number > 1) {
      auto row = from_json(line.get_object());
      if (!row) return broken("no row of a trace");
      rows.push_back(*row);
      continue;
    }
    const bj::value* format = line.get_object().if_contains("trace");
    if (format == nullptr || *format != run_header.at("trace")) return broken("no header of a trace");
    for (const char* key : {"architecture", "layers", "width", "vocab", "tokens_sha256"}) {
      const bj::value* value = line.get_object().if_contains(key);
      if (value == nullptr || *value != run_header.at(key))
        return broken(fmt::format(
            "{} is not that of this run; traces compare runs of one shape of model on the same tokens", key));
    }
  }
  if (line_number == 0) return broken("no header of a trace");
  return rows;
}

struct Outcome {
  std::size_t rows = 0;
  std::optional<RowRecord> different;
  std::optional<RowRecord> recorded;
  std::size_t unseen = 0;
};

base::Result<> write_values(const std::string& path, std::span<const float> values, bool replaces) {
  PartialFile file(path, replaces);
  TRY(file.check());
  file.out().write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
  return file.commit();
}

base::Result<Outcome> run_trace(const TraceOptions& options) {
  std::vector<std::string> inputs = inputs_of(options.run);
  inputs.push_back(options.against);
  for (const std::string& file : {options.out, options.dump}) {
    if (!file.empty()) TRY(check_output_file(file, options.force, inputs));
  }
  LoadedRun run = TRY(load_run(options.run));
  const bj::object header = header_of(run);
  std::optional<Comparison> comparison;
  if (!options.against.empty()) comparison.emplace(TRY(read_trace(options.against, header)), options.tolerance);
  std::optional<PartialFile> file;
  if (!options.out.empty()) {
    file.emplace(options.out, options.force);
    TRY(file->check());
    file->out() << bj::serialize(header) << '\n';
  }
  Outcome outcome;
  std::vector<float> values;
  Recorder recorder(*run.devices.backends[0], [&](const RowRecord& row, std::span<const float> row_values) {
    ++outcome.rows;
    if (file) file->out() << bj::serialize(to_json(row)) << '\n';
    if (!comparison || comparison->check(row) == Comparison::Verdict::kEqual) return true;
    outcome.different = row;
    if (const RowRecord* before = comparison->recorded(row.key)) outcome.recorded = *before;
    values.assign(row_values.begin(), row_values.end());
    return false;
  });
  run.engine->observe(&recorder);
  const auto scored = run.engine->score(0, run.tokens, [&](std::size_t row, std::span<const float>) {
    show_progress("trace", row + 1, run.tokens.size());
  });
  run.engine->observe(nullptr);
  if (!scored && !outcome.different) return base::fail(scored.error());
  if (comparison && !outcome.different) outcome.unseen = comparison->unseen_count();
  if (outcome.different && !options.dump.empty()) TRY(write_values(options.dump, values, options.force));
  if (file) TRY(file->commit());
  return outcome;
}

std::string row_text(const RowRecord& r) {
  return fmt::format("min {:.9g} max {:.9g} mean {:.9g} rms {:.9g} nonfinite {} bits {}", r.min, r.max, r.mean, r.rms,
                     r.nonfinite, base::to_hex(r.bits_hash));
}

}  // namespace

int trace(const GlobalOptions& global, const TraceOptions& options) {
  if (options.out.empty() && options.against.empty())
    return report({ErrorCode::kInvalidParams, "say --out to record, --against to compare, or both", {}}, global.json);
  const auto outcome = run_trace(options);
  if (!outcome) return report(outcome.error(), global.json);
  const bool equal = !outcome->different && outcome->unseen == 0;
  if (global.json) {
    bj::object out{{"rows", outcome->rows}};
    if (!options.against.empty()) {
      out["equal"] = equal;
      if (outcome->different) out["different"] = to_json(*outcome->different);
      if (outcome->recorded) out["recorded"] = to_json(*outcome->recorded);
      if (outcome->unseen != 0) out["rows_missing"] = outcome->unseen;
    }
    fmt::print("{}\n", bj::serialize(out));
  } else if (outcome->different) {
    const RowRecord& row = *outcome->different;
    fmt::print("first difference: instruction {} ({}), position {}\n  this run  {}\n  recorded  {}\n",
               row.key.instruction, engine::plan::opcode_name(row.opcode), row.key.position, row_text(row),
               outcome->recorded ? row_text(*outcome->recorded) : std::string("no such row"));
  } else if (outcome->unseen != 0) {
    fmt::print("equal in {} rows, but the trace has {} more\n", outcome->rows, outcome->unseen);
  } else {
    fmt::print("{} rows{}\n", outcome->rows, options.against.empty() ? "" : ", all equal");
  }
  return equal ? kOk : kFailed;
}

}  // namespace llorch::cli::model
