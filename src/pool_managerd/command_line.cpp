#include "pool_managerd/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "base/build_id.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "pool_managerd/engines/install_command.h"
#include "wire/check_verdict.h"

namespace llorch::pool_managerd {
namespace {

using base::ErrorCode;

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kConfigInvalid: return 2;
    case ErrorCode::kNoGpu:
    case ErrorCode::kNonLoopbackWithoutToken: return 4;
    default: return 1;
  }
}

base::Result<> serve(const CommandLine& command_line) {
  auto options = TRY(load_options(command_line));
  base::init_logging({.component = "pool-managerd",
                      .level = base::parse_log_level(options.config.log.level, base::LogLevel::kInfo),
                      .format = base::parse_log_format(options.config.log.format)});
  base::log_event(base::LogLevel::kInfo, "startup", {}, "The pool manager starts.",
                  {{"build", base::build_id()}, {"pool_id", options.config.pool_managerd.pool_id}});
  const auto manager = TRY(PoolManager::open(std::move(options)));
  base::announce(base::Announce::kOut, fmt::format(R"({{"event":"listening","bind":"{}"}})", manager->bind()));
  manager->run();
  return {};
}

// What `llorch engine install` and `remove` ask for.
base::Result<int> change_engine(const CommandLine& command_line) {
  const config::Config config = TRY(config::load_config(command_line.sources));
  if (!command_line.remove_engine.empty()) return engines::remove_command(config, command_line.remove_engine);
  return engines::install_command(config, command_line.state_directory.value_or(base::default_state_directory()),
                                  command_line.install_engine);
}

// For `llorch config validate`.
int run_check(const CommandLine& command_line) {
  const auto options = load_options(command_line);
  const base::Result<> checked = options ? PoolManager::check(*options) : base::fail(options.error());
  fmt::print("{}\n", wire::encode_verdict(checked));
  return checked ? 0 : exit_code_of(checked.error().code);
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine out;
  CLI::App app{"pool-managerd: the GPUs, model files and workers of one host"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // a wrapper's flags can be overridden
  app.set_version_flag("--version", base::version_text());
  std::string config, state_directory, bind, orchestrator, pool_id;
  std::vector<std::string> sets, roots;
  bool cpu = false;
  app.add_option("--config", config, "Configuration file");
  app.add_option("--state-dir", state_directory, "Directory for locks, logs and the digest cache");
  app.add_option("--bind", bind, "address:port; beyond loopback only with a token");
  app.add_option("--orchestrator", orchestrator, "Base URL of orchestratord; empty works alone");
  app.add_option("--pool-id", pool_id, "Name of this pool, unique at its orchestratord");
  app.add_flag("--cpu", cpu, "Offer the CPU reference device (devices.allow_cpu)");
  app.add_option("--model-root", roots, "Directory that file: references may point into; repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--set", sets, "One configuration key: dotted.key=value; repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--nvml-library", out.nvml_library, "NVIDIA management library to open")->capture_default_str();
  app.add_option("--install-engine", out.install_engine, "Install an entry of pool-managerd.engines, and end");
  app.add_option("--remove-engine", out.remove_engine, "Remove what was installed for it, and end");
  app.add_flag("--check", out.checks,
               "Say in a line of JSON whether the configuration and the files that it names let it start, and end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const bool asked = e.get_exit_code() == 0;  // --help, --version
    out.exit_code = asked ? 0 : 2;
    out.message = dynamic_cast<const CLI::CallForHelp*>(&e) != nullptr ? app.help() : fmt::format("{}\n", e.what());
    return out;
  }
  if (!config.empty()) out.sources.file = config;
  if (!state_directory.empty()) out.state_directory = state_directory;
  out.model_roots.assign(roots.begin(), roots.end());
  out.sources.getenv = [](const char* name) -> const char* { return std::getenv(name); };
  auto& overrides = out.sources.overrides;
  for (const std::string& item : sets) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) {
      out.exit_code = 2;
      out.message = fmt::format("--set {}: must be dotted.key=value\n", item);
      return out;
    }
    overrides.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  if (!bind.empty()) overrides.emplace_back("pool-managerd.bind", bind);
  if (app.count("--orchestrator") > 0) overrides.emplace_back("pool-managerd.orchestrator_url", orchestrator);
  if (!pool_id.empty()) overrides.emplace_back("pool-managerd.pool_id", pool_id);
  if (cpu) overrides.emplace_back("devices.allow_cpu", "true");
  return out;
}

base::Result<PoolManagerOptions> load_options(const CommandLine& command_line) {
  PoolManagerOptions out;
  out.config = TRY(config::load_config(command_line.sources));
  out.api_token = TRY(config::load_api_token(out.config, command_line.sources.getenv));
  out.reader_tokens = TRY(config::load_reader_tokens(out.config, out.api_token));
  out.state_directory = command_line.state_directory.value_or(base::default_state_directory());
  out.model_roots = command_line.model_roots;
  out.nvml_library = command_line.nvml_library;
  return out;
}

int run_pool_managerd(int argc, const char* const* argv) {
  base::harden_process();
  base::block_stop_signals();
  const CommandLine command_line = parse_command_line(argc, argv);
  if (command_line.exit_code) {
    std::fputs(command_line.message.c_str(), *command_line.exit_code == 0 ? stdout : stderr);
    return *command_line.exit_code;
  }
  if (command_line.checks) return run_check(command_line);
  base::Result<> outcome;
  if (!command_line.install_engine.empty() || !command_line.remove_engine.empty()) {
    const auto code = change_engine(command_line);
    if (code) return *code;
    outcome = base::fail(code.error());
  } else {
    outcome = serve(command_line);
  }
  if (outcome) return 0;
  base::log_event(base::LogLevel::kError, "error", {}, outcome.error().message,
                  {{"error_code", outcome.error().name()}});
  base::announce(base::Announce::kError,
                 fmt::format("pool-managerd: {}: {}", outcome.error().name(), outcome.error().message));
  return exit_code_of(outcome.error().code);
}

}  // namespace llorch::pool_managerd
