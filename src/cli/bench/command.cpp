#include "cli/bench/command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <thread>

#include "base/build_id.h"
#include "cli/stop_signals.h"
#include "engine/compute/cpu/backend.h"
#include "engine/models/model.h"

namespace llorch::cli::bench {
namespace {

using base::ErrorCode;
using base::Result;
using engine::inference::Engine;

constexpr std::int64_t kBatchMax = 256;
constexpr std::int64_t kTokensMax = 1'000'000;

// The file behind what people call a model; a path that exists is one.
Result<std::string> model_file(const GlobalOptions& global, const std::string& model) {
  constexpr std::string_view kScheme = "file:";
  std::error_code error;
  if (std::filesystem::exists(model, error)) return model;
  std::string reference = model;
  if (!model.starts_with(kScheme)) {
    const config::Config config = TRY(load_config(global));
    const auto alias = config.models.aliases.find(model);
    if (alias == config.models.aliases.end())
      return base::fail(ErrorCode::kModelNotFound,
                        fmt::format("{} is no file, no directory and no name of models.aliases", model));
    reference = alias->second;
  }
  if (!reference.starts_with(kScheme))
    return base::fail(ErrorCode::kModelNotFound,
                      fmt::format("{} is {}, which only a stack can find; give its file", model, reference));
  std::string path = reference.substr(kScheme.size());
  if (!std::filesystem::exists(path, error))
    return base::fail(ErrorCode::kModelNotFound, fmt::format("{} is {}, and there is no such file", model, reference));
  return path;
}

// One line on a terminal, wiped at the end; nothing in a pipe.
class ProgressLine {
 public:
  ~ProgressLine() { wipe(); }
  void update(std::size_t done, std::size_t total, const std::string& part) {
    if (!is_terminal_) return;
    constexpr std::size_t kWidth = 24;
    fmt::print(stderr, "\r[{:<{}}] {}/{} {}\x1b[K", std::string(done * kWidth / std::max<std::size_t>(total, 1), '#'),
               kWidth, done, total, part);
    std::fflush(stderr);
    shown_ = true;
  }
  void wipe() {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
    shown_ = false;
  }

 private:
  const bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
};

void describe(const Engine& engine, const std::string& file, const Shape& shape, Report& report) {
  const auto& facts = engine.facts();
  report.model = {.file = std::filesystem::path(file).filename().string(),
                  .architecture = facts.architecture,
                  .name = facts.name,
                  .weight_type = facts.weight_type,
                  .kv_dtype = facts.kv_dtype,
                  .parameters = facts.parameters_count,
                  .weights_bytes = engine.memory_plan().weights_bytes};
  report.machine.processors = std::max(1U, std::thread::hardware_concurrency());
  report.machine.threads = shape.threads;
  report.machine.implementation = facts.implementation;
}

Result<> bench(const GlobalOptions& global, const CommandOptions& options, Report& report) {
  const StopSignals signals(StopSignals::Second::kEndsAtOnce);
  const std::string file = TRY(model_file(global, options.model));
  const auto kv_dtype = options.kv_dtype == "f32" ? engine::plan::DType::kF32 : engine::plan::DType::kF16;
  Traffic traffic;
  Shape shape;
  {
    const auto files = TRY(engine::io::ModelFiles::open(file));
    const auto compiled = TRY(engine::models::compile_model(files, kv_dtype, {.image_rows_max = 0}));
    if (compiled.config.pooling != engine::plan::Pooling::kNone)
      return base::fail(ErrorCode::kInvalidParams,
                        fmt::format("{} is a model of embeddings: it decodes nothing", file));
    traffic = traffic_of(compiled);
    shape = TRY(shape_of(options, compiled.config.context_tokens, report.contexts_left_out));
  }
  double load[1] = {0};
  if (::getloadavg(load, 1) == 1) report.machine.load_average = load[0];
  report.build = base::build_id();
  report.machine.multiplies_integers = traffic.multiplies_integers;
  const std::uint64_t available = memory_available_bytes();
  const auto backend = TRY(engine::compute::cpu::make_cpu_backend(
      {.threads_count = shape.threads,
       .memory_budget_bytes = available != 0 ? available : std::numeric_limits<std::uint64_t>::max()}));
  ProgressLine line;
  line.update(0, 1, "loading");
  const auto engine = TRY(Engine::load(file,
                                       {.context_tokens = static_cast<std::uint32_t>(shape.positions_max()),
                                        .slots = shape.batch_max(),
                                        .kv_dtype = kv_dtype,
                                        .image_rows_max = 0},
                                       *backend));
  describe(*engine, file, shape, report);
  const OthersMeter others;
  const auto measured = measure(*engine, traffic, shape,
                                {.should_stop = [] { return StopSignals::requested(); },
                                 .progress = [&](std::size_t done, std::size_t total,
                                                 const std::string& part) { line.update(done, total, part); }},
                                report);
  report.machine.others_busy = others.processors_busy();
  return measured;
}

std::vector<std::uint32_t> sorted(const std::vector<std::int64_t>& values) {
  std::vector<std::uint32_t> out(values.begin(), values.end());
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

}  // namespace

Result<Shape> shape_of(const CommandOptions& options, std::uint32_t context_tokens,
                       std::vector<std::uint32_t>& left_out) {
  Shape shape{.prompt_tokens = static_cast<std::uint32_t>(options.prompt_tokens),
              .generate_tokens = static_cast<std::uint32_t>(options.generate_tokens),
              .batches = sorted(options.batches),
              .contexts = {},
              .threads = options.threads != 0 ? static_cast<std::uint32_t>(options.threads)
                                              : std::max(1U, std::thread::hardware_concurrency()),
              .runs = static_cast<std::uint32_t>(options.runs)};
  const std::uint32_t needed = std::max(shape.prompt_tokens, shape.generate_tokens);
  for (const std::uint32_t context : sorted(options.contexts)) {
    if (std::uint64_t{context} + needed <= context_tokens) {
      shape.contexts.push_back(context);
    } else if (context != 0 && !options.contexts_given) {
      left_out.push_back(context);
    } else if (needed > context_tokens) {
      return base::fail(
          ErrorCode::kInvalidParams,
          fmt::format("the model's context of {} has no room for {} tokens; --prompt and --generate are at "
                      "most that",
                      context_tokens, needed));
    } else {
      return base::fail(ErrorCode::kInvalidParams,
                        fmt::format("the model's context of {} has no room for {} tokens behind {}; --context is at "
                                    "most {}",
                                    context_tokens, needed, context, context_tokens - needed));
    }
  }
  return shape;
}

int run_bench(const GlobalOptions& global, const CommandOptions& options) {
  Report out;
  const auto measured = bench(global, options, out);
  if (!measured) return report(measured.error(), global.json);
  if (global.json) {
    fmt::print("{}\n", report_json(out));
  } else {
    print_table(table_header(), table_rows(out.figures));
    fmt::print("{}", notes(out));
  }
  return out.interrupted ? kInterrupted : kOk;
}

void add_command(::CLI::App& app, const GlobalOptions& global, int& code) {
  const auto options = std::make_shared<CommandOptions>();
  ::CLI::App* bench =
      app.add_subcommand("bench", "Speed of a model on this machine's processor, and of what is possible");
  bench->add_option("MODEL", options->model, "A .gguf file, a Hugging Face directory or a name of models.aliases")
      ->required();
  bench->add_option("--prompt", options->prompt_tokens, "Tokens of a prefill")
      ->check(::CLI::Range(std::int64_t{1}, kTokensMax))
      ->capture_default_str();
  bench->add_option("--generate", options->generate_tokens, "Tokens that each sequence decodes")
      ->check(::CLI::Range(std::int64_t{1}, kTokensMax))
      ->capture_default_str();
  bench->add_option("--batch", options->batches, "Sequences decoded at once, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(::CLI::Range(std::int64_t{1}, kBatchMax))
      ->capture_default_str();
  ::CLI::Option* contexts =
      bench->add_option("--context", options->contexts, "Positions that sequences hold before, separated by commas")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->check(::CLI::Range(std::int64_t{0}, kTokensMax))
          ->capture_default_str();
  bench->add_option("--threads", options->threads, "0 is all cores")
      ->check(::CLI::Range(0, 1024))
      ->capture_default_str();
  bench->add_option("--runs", options->runs, "Of every figure; the median counts")
      ->check(::CLI::Range(1, 10'000))
      ->capture_default_str();
  bench->add_option("--kv-dtype", options->kv_dtype, "Element type of the KV cache")
      ->check(::CLI::IsMember({"f16", "f32"}))
      ->capture_default_str();
  bench->callback([&global, &code, options, contexts] {
    options->contexts_given = !contexts->empty();
    code = run_bench(global, *options);
  });
}

}  // namespace llorch::cli::bench
