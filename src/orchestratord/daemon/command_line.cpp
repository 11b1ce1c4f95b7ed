#include "orchestratord/daemon/command_line.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/build_id.h"
#include "base/error_detail.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "net/http/auth.h"
#include "orchestratord/daemon/online_backup.h"
#include "orchestratord/store/backup/backup.h"
#include "orchestratord/store/sqlite_store.h"
#include "wire/check_verdict.h"
#include "wire/json.h"
#include "wire/task.h"

namespace llorch::orchestratord::daemon {
namespace {

int exit_code_of(const base::Error& error) {
  switch (error.code) {
    case base::ErrorCode::kConfigInvalid: return 2;
    case base::ErrorCode::kNonLoopbackWithoutToken: return 4;
    default: break;
  }
  const bool would_lose_prompts = base::has_detail(error, "store_owner") || base::has_detail(error, "keys_of");
  return error.code == base::ErrorCode::kConflict && would_lose_prompts ? 5 : 1;
}

// Prompts of another orchestratord or store are given up by nobody's waiting, and what another version wrote is read by no later try of
// this one: 5 is not started again by systemd.
int exit_code_of_start(const base::Error& error) {
  const bool is_of_another_version =
      error.code == base::ErrorCode::kUnsupportedFormatVersion || base::has_detail(error, "schema_version");
  return is_of_another_version ? 5 : exit_code_of(error);
}

// As at the start, from the same places. `file`: the configuration file of the start. One that an editor holds empty or is about to
// rename, or a pipe that was read, is no configuration without tenants.
base::Result<> try_reload(Orchestrator& orchestrator, const CommandLine& command_line,
                          const std::optional<std::filesystem::path>& file) {
  std::error_code ec;
  if (file && (!std::filesystem::is_regular_file(*file, ec) || std::filesystem::file_size(*file, ec) == 0)) {
    return base::fail(base::ErrorCode::kConfigInvalid,
                      fmt::format("{} is empty or is no file any more; ask again once it is whole", file->string()));
  }
  return orchestrator.reload(TRY(load_options(command_line)));
}

void reload(Orchestrator& orchestrator, const CommandLine& command_line,
            const std::optional<std::filesystem::path>& file) {
  const base::Result<> outcome = try_reload(orchestrator, command_line, file);
  if (outcome) return;
  base::log_event(base::LogLevel::kError, "config.not_reloaded", {},
                  "The configuration is refused; orchestratord goes by the one it had.",
                  {{"error_code", outcome.error().name()}, {"error", outcome.error().message}});
}

base::Result<> serve(const CommandLine& command_line) {
  const auto file = config::configuration_file(command_line.sources);
  auto options = TRY(load_options(command_line));
  base::init_logging({.component = "orchestratord",
                      .level = base::parse_log_level(options.config.log.level, base::LogLevel::kInfo),
                      .format = base::parse_log_format(options.config.log.format)});
  base::log_event(base::LogLevel::kInfo, "startup", {}, "orchestratord starts.", {{"build", base::build_id()}});
  std::atomic<bool> taken_over{false};  // outlives the orchestrator, whose thread sets it
  options.on_store_taken_over = [&taken_over] {
    taken_over = true;
    ::kill(::getpid(), SIGTERM);
  };
  const auto orchestrator = TRY(Orchestrator::open(std::move(options)));
  base::announce(base::Announce::kOut, fmt::format(R"({{"event":"listening","bind":"{}"}})", orchestrator->bind()));
  int signal = base::wait_for_stop_or_reload_signal();
  for (; signal == SIGHUP; signal = base::wait_for_stop_or_reload_signal()) reload(*orchestrator, command_line, file);
  base::log_event(base::LogLevel::kInfo, "shutdown", {}, "orchestratord stops.", {{"signal", signal}});
  orchestrator->stop();
  if (!taken_over) return {};
  return base::fail(base::ErrorCode::kAlreadyRunning,
                    "the job store has changed: another orchestratord has taken it over, or the database went back in "
                    "time, or the connection leads to another one; the next start sees which");
}

}  // namespace

namespace {

// For `llorch backup` and `llorch restore`.
base::Result<store::backup::Summary> copy_store(const CommandLine& command_line, std::string_view verb,
                                                const std::filesystem::path& file) {
  const auto options = TRY(load_options(command_line));
  if (options.config.orchestratord.persistence.store == config::StoreKind::kPostgresql) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("the jobs are in PostgreSQL: {} them with {}, and keep payload.keys with it", verb,
                                  verb == "restore" ? "pg_restore" : "pg_dump"));
  }
  const store::backup::Paths paths{.directory = options.state_directory, .file = file};
  auto lock = store::lock_state_directory(options.state_directory);
  if (!lock && lock.error().code == base::ErrorCode::kAlreadyRunning) {
    if (verb == "backup") return online_backup(options, paths);
    lock.error().message = "orchestratord runs here; stop it first (llorch down): what waits goes on afterwards";
  }
  TRY(lock);
  return verb == "restore" ? store::backup::restore(paths) : store::backup::write(paths);
}

// For `llorch up`, whose pool is on this machine.
base::Result<> pair_pool(const CommandLine& command_line) {
  const base::PoolId pool_id(*command_line.pair_pool);
  if (!base::is_valid_identifier(pool_id.value)) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      "--pair-pool takes a pool's id, 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
  }
  auto paired = Orchestrator::pair_pool(TRY(load_options(command_line)), pool_id, command_line.credential_file);
  if (!paired && paired.error().code == base::ErrorCode::kAlreadyRunning) {
    paired.error().message = fmt::format("orchestratord runs here; ask it with: llorch pool pair {}", pool_id.value);
  }
  return paired;
}

base::Result<> take_over(const CommandLine& command_line) {
  return Orchestrator::take_over_store(TRY(load_options(command_line)));
}

// For `llorch config validate`.
int run_check(const CommandLine& command_line) {
  const auto options = load_options(command_line);
  const base::Result<> checked = options ? Orchestrator::check(*options) : base::fail(options.error());
  fmt::print("{}\n", wire::encode_verdict(checked));
  return checked ? 0 : exit_code_of(checked.error());
}

int run_copy(const CommandLine& command_line) {
  const bool restores = command_line.restore_file.has_value();
  const std::string verb = restores ? "restore" : "backup";
  const std::filesystem::path& file = restores ? *command_line.restore_file : *command_line.backup_file;
  const auto summary = copy_store(command_line, verb, file);
  if (!summary) {
    const base::Error& error = summary.error();
    if (command_line.json) {
      fmt::print(stderr, "{{\"error\":{}}}\n", wire::encode(wire::error_body(error, {})));
    } else {
      fmt::print(stderr, "error: {}: {}\n", error.name(), error.message);
    }
    return exit_code_of(error);
  }
  if (command_line.json) {
    fmt::print("{{\"event\":\"{}\",\"jobs\":{},\"live_jobs\":{},\"bytes\":{}}}\n", verb, summary->jobs_count,
               summary->live_jobs_count, summary->bytes);
  } else if (restores) {
    fmt::print("restored {} jobs; {} of them go on with the next start\n", summary->jobs_count,
               summary->live_jobs_count);
  } else {
    fmt::print("wrote {} jobs, {} bytes, to {}; it opens the prompts of {} live jobs: keep it like a secret\n",
               summary->jobs_count, summary->bytes, file.string(), summary->live_jobs_count);
  }
  return 0;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine out;
  CLI::App app{"orchestratord: accepts jobs, decides where they run, streams their results"};
  app.set_version_flag("--version", base::version_text());
  std::string config, state_directory, bind;
  std::vector<std::string> sets, roots;
  app.add_option("--config", config, "Configuration file");
  app.add_option("--state-dir", state_directory, "Directory for the job store, keys and run files");
  app.add_option("--bind", bind, "address:port; beyond loopback only with a token");
  app.add_option("--model-root", roots, "Directory that file: references may point into; repeatable");
  app.add_option("--set", sets, "One configuration key: dotted.key=value; repeatable");
  CLI::Option* backup =
      app.add_option("--backup", out.backup_file, "Instead of serving: write the job store to a file");
  CLI::Option* restore =
      app.add_option("--restore", out.restore_file, "Instead of serving: read it from such a file")->excludes(backup);
  app.add_flag("--json", out.json, "Outcome of these two as JSON");
  CLI::Option* pair = app.add_option("--pair-pool", out.pair_pool,
                                     "Instead of serving: make the credential of a pool, unless its file has it")
                          ->excludes(backup);
  app.add_option("--credential-file", out.credential_file, "The file of that pool, on this machine")->needs(pair);
  pair->needs("--credential-file");
  app.add_flag("--take-over", out.take_over,
               "Instead of serving: own the jobs of the store from now on. Lost are those of its prompts that this "
               "state directory's payload.keys does not open, and those of another store that it opens")
      ->excludes(backup)
      ->excludes(restore)
      ->excludes(pair);
  app.add_flag("--check", out.checks,
               "Instead of serving: say in a line of JSON whether the configuration and the files that it names let it "
               "start")
      ->excludes(backup)
      ->excludes(restore)
      ->excludes(pair);
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
  for (const std::string& item : sets) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) {
      out.exit_code = 2;
      out.message = fmt::format("--set {}: must be dotted.key=value\n", item);
      return out;
    }
    out.sources.overrides.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  if (!bind.empty()) out.sources.overrides.emplace_back("orchestratord.bind", bind);
  return out;
}

base::Result<OrchestratorOptions> load_options(const CommandLine& command_line) {
  OrchestratorOptions out;
  out.config = TRY(config::load_config(command_line.sources));
  out.api_token = TRY(config::load_api_token(out.config, command_line.sources.getenv));
  out.tenants = TRY(config::load_tenant_tokens(out.config, out.api_token));
  out.reader_tokens = TRY(config::load_reader_tokens(out.config, out.api_token));
  out.state_directory = command_line.state_directory.value_or(base::default_state_directory());
  out.model_roots = command_line.model_roots;
  return out;
}

int run_orchestratord(int argc, const char* const* argv) {
  base::harden_process();
  const CommandLine command_line = parse_command_line(argc, argv);
  if (command_line.exit_code) {
    std::fputs(command_line.message.c_str(), *command_line.exit_code == 0 ? stdout : stderr);
    return *command_line.exit_code;
  }
  if (command_line.backup_file || command_line.restore_file) return run_copy(command_line);
  if (command_line.checks) return run_check(command_line);
  if (command_line.pair_pool || command_line.take_over) {
    base::block_stop_signals();
  } else {
    base::block_stop_and_reload_signals();
  }
  const auto outcome = command_line.pair_pool   ? pair_pool(command_line)
                       : command_line.take_over ? take_over(command_line)
                                                : serve(command_line);
  if (outcome) return 0;
  base::log_event(base::LogLevel::kError, "error", {}, outcome.error().message,
                  {{"error_code", outcome.error().name()}});
  base::announce(base::Announce::kError,
                 fmt::format("orchestratord: {}: {}", outcome.error().name(), outcome.error().message));
  return exit_code_of_start(outcome.error());
}

}  // namespace llorch::orchestratord::daemon
