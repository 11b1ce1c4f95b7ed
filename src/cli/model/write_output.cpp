#include "cli/model/write_output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "base/file.h"
#include "cli/model/tools.h"
#include "cli/stop_signals.h"
#include "cli/terminal_text.h"
#include "engine/models/gguf_write/write_gguf.h"

namespace llorch::cli::model {
namespace {

namespace bj = boost::json;
namespace models = engine::models;
using base::ErrorCode;
using base::Result;
using engine::plan::DType;

tl::unexpected<base::Error> invalid(std::string message) {
  return base::fail(ErrorCode::kInvalidParams, std::move(message));
}

Result<DType> type_named(const std::string& name) {
  if (const auto type = models::quantize_target(name)) return *type;
  return invalid(fmt::format("there is no type {}; known are {}", name, models::quantize_target_names()));
}

Result<models::TypeRequest> type_request_of(const OutputOptions& options, bool allow_requantize) {
  models::TypeRequest request{.type = TRY(type_named(options.type)), .allow_requantize = allow_requantize};
  if (!options.head_type.empty()) request.head = TRY(type_named(options.head_type));
  if (!options.embedding_type.empty()) request.embedding = TRY(type_named(options.embedding_type));
  for (const std::string& text : options.tensors) {
    const std::size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0)
      return invalid(fmt::format("--tensor takes PATTERN=TYPE, not {}", text));
    const DType type = TRY(type_named(text.substr(equals + 1)));
    request.overrides.push_back({text.substr(0, equals), type});
  }
  return request;
}

// Bytes, rate and time left on a terminal, nothing in a pipe.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (shown_) std::fputs("\n", stderr);
  }
  void update(std::uint64_t done, std::uint64_t total) {
    using std::chrono::steady_clock;
    const auto now = steady_clock::now();
    if (!is_terminal_ || (shown_ && now - last_ < std::chrono::milliseconds(200) && done < total)) return;
    last_ = now;
    shown_ = true;
    constexpr std::size_t kWidth = 32;
    const std::size_t filled = total == 0 ? kWidth : done * kWidth / total;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    const double left = rate > 0 ? static_cast<double>(total - std::min(done, total)) / rate : 0;
    // No exception where the terminal has gone: its signal stops the work.
    const std::string facts =
        fmt::format("{} of {}, {}/s, {:.0f} s left", human_bytes(static_cast<std::int64_t>(done)),
                    human_bytes(static_cast<std::int64_t>(total)), human_bytes(static_cast<std::int64_t>(rate)), left);
    const std::string bar = fmt::format("[{:<{}}] ", std::string(filled, '#'), kWidth);
    const std::string text = "\r\x1b[K" + progress_line("writing ", bar, facts, terminal_columns(STDERR_FILENO));
    std::fputs(text.c_str(), stderr);
  }

 private:
  const bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_;
  bool shown_ = false;
};

std::string name_of(DType type) { return std::string(engine::plan::dtype_info(type).name); }

bj::object facts_of(const models::ExportModel& model, const std::vector<models::TensorType>& types,
                    const OutputOptions& options, std::uint64_t bytes) {
  struct Sum {
    std::uint64_t tensors = 0, bytes = 0;
  };
  std::map<std::string, Sum> sums;
  bj::array fallbacks;
  std::uint64_t parameters = 0;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const models::ExportTensor& tensor = model.tensors[i];
    const auto info = engine::plan::dtype_info(types[i].type);
    Sum& sum = sums[std::string(info.name)];
    sum.tensors += 1;
    sum.bytes += tensor.elements_count() / info.block_elements * info.block_bytes;
    parameters += tensor.elements_count();
    if (!types[i].wanted) continue;
    fallbacks.push_back(bj::object{{"tensor", tensor.name},
                                   {"wanted", name_of(*types[i].wanted)},
                                   {"used", name_of(types[i].type)},
                                   {"row_elements", tensor.dims[0]}});
  }
  bj::array by_type;
  for (const auto& [name, sum] : sums)
    by_type.push_back(bj::object{{"type", name}, {"tensors", sum.tensors}, {"bytes", sum.bytes}});
  bj::array notes;
  for (const std::string& note : model.notes) notes.emplace_back(note);
  return {{"out", options.out}, {"bytes", bytes},         {"tensors", types.size()}, {"parameters", parameters},
          {"types", by_type},   {"fallbacks", fallbacks}, {"notes", notes}};
}

}  // namespace

void add_output_options(::CLI::App& command, OutputOptions& options, const char* default_type) {
  ::CLI::Option* type =
      command.add_option("--type", options.type, "Of the matrices: " + models::quantize_target_names());
  options.type = default_type;
  if (options.type.empty()) {
    type->required();
  } else {
    type->capture_default_str();
  }
  command.add_option("--output-type", options.head_type, "Of the head; default: Q6_K below six bits, else --type");
  command.add_option("--embedding-type", options.embedding_type,
                     "Of a table that is not the head; default: Q4_K for Q2_K, Q3_K and MXFP4, else --type");
  command.add_option("--tensor", options.tensors, "PATTERN=TYPE for tensors by name, * is any text; repeatable")
      ->allow_extra_args(false);
  command.add_option("--threads", options.threads, "0 is all cores; never changes a bit")
      ->check(::CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_flag("--force", options.force, "Replace a file that exists");
}

Result<> check_output(const OutputOptions& options, const std::string& model) {
  TRY(type_request_of(options, false));
  return check_output_file(options.out, options.force,
                           model.empty() ? std::vector<std::string>{} : files_of_model(model));
}

Result<Written> write_output(const models::ExportModel& model, const OutputOptions& options, bool allow_requantize,
                             const std::function<Result<>()>& check) {
  const models::TypeRequest request = TRY(type_request_of(options, allow_requantize));
  const std::vector<models::TensorType> types = TRY(models::choose_types(model, request));
  const StopSignals signals;
  ProgressLine line;
  const auto progress = [&](std::uint64_t done, std::uint64_t total) -> Result<> {
    if (StopSignals::requested())
      return base::fail(ErrorCode::kCancelled, fmt::format("stopped; nothing was left at {}", options.out));
    line.update(done, total);
    if (options.on_progress) options.on_progress();
    return {};
  };
  const unsigned threads =
      options.threads == 0 ? std::max(1U, std::thread::hardware_concurrency()) : static_cast<unsigned>(options.threads);
  const std::uint64_t bytes = TRY(models::write_gguf(
      model, types, request.type, options.out,
      {.threads = threads, .progress = progress, .publishing = {.replaces = options.force, .check = check}}));
  return Written{bytes, facts_of(model, types, options, bytes)};
}

void print_written(const Written& written) {
  const auto number = [](const bj::value& value) { return value.to_number<std::int64_t>(); };
  const bj::object& facts = written.facts;
  print_text("{}  {}, {:.2f} M parameters in {} tensors\n", facts.at("out").as_string().c_str(),
             human_bytes(static_cast<std::int64_t>(written.bytes)),
             static_cast<double>(number(facts.at("parameters"))) / 1e6, number(facts.at("tensors")));
  for (const bj::value& type : facts.at("types").as_array()) {
    print_text("  {:<8}{:>6} tensors  {}\n", type.at("type").as_string().c_str(), number(type.at("tensors")),
               human_bytes(number(type.at("bytes"))));
  }
  for (const bj::value& fallback : facts.at("fallbacks").as_array()) {
    print_text("note: {} is {}: blocks of {} do not fill its rows of {}\n", fallback.at("tensor").as_string().c_str(),
               fallback.at("used").as_string().c_str(), fallback.at("wanted").as_string().c_str(),
               number(fallback.at("row_elements")));
  }
  for (const bj::value& note : facts.at("notes").as_array()) print_text("note: {}\n", note.as_string().c_str());
}

}  // namespace llorch::cli::model
