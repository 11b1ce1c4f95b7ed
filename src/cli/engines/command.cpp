// llorch engine: the engines of other systems that are configured.
#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "adapter/setup/plan.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/terminal_text.h"
#include "wire/json.h"

extern char** environ;

namespace llorch::cli {

namespace bj = boost::json;
namespace setup = adapter::setup;

namespace {

setup::Machine machine_of(const config::Config& config) {
  const char* path = std::getenv("PATH");
  return {.policy = config.pool_managerd.provisioning,
          .path_variable = path == nullptr ? "" : path,
          .cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))};
}

base::Result<config::EngineConfig> entry_of(const config::Config& config, const std::string& name) {
  const auto& engines = config.pool_managerd.engines;
  const auto it = std::ranges::find(engines, name, &config::EngineConfig::name);
  if (it != engines.end()) return *it;
  return base::fail(base::ErrorCode::kNotFound,
                    fmt::format("pool-managerd.engines has no entry {}; llorch engine list shows them", name));
}

void print_step(std::string_view kind, std::string_view detail) { print_text("{:<10} {}\n", kind, detail); }

// "external", "installed", or "not installed".
std::string state_of(const config::EngineConfig& engine, const config::InstallPolicyConfig& policy) {
  if (!setup::is_installed_here(engine)) return "external";
  return setup::find_installation(setup::directory_of(engine, policy)) ? "installed" : "not installed";
}

// One line of `pool-managerd --install-engine` for a person. The error's code, if it is one; absent: it is none.
std::optional<base::Error> show(const bj::object& line) {
  const auto text = [&line](const char* name) {
    const auto* value = line.if_contains(name);
    return value != nullptr && value->is_string() ? std::string(value->get_string().c_str()) : std::string();
  };
  const std::string event = text("event");
  if (event == "step") print_step(text("kind"), text("detail"));
  if (event == "bytes" && line.contains("done") && line.contains("total")) {
    print_text("{:<10} {} of {}\n", "", human_bytes(line.at("done").to_number<std::int64_t>()),
               human_bytes(line.at("total").to_number<std::int64_t>()));
  }
  std::fflush(stdout);
  if (event != "error") return std::nullopt;
  const auto body = wire::decode<wire::ErrorBody>(bj::serialize(line.at("error")));
  if (!body) return base::Error{base::ErrorCode::kInternal, "pool-managerd said something else than it should", {}};
  return wire::to_error(*body);
}

// How a process ended that should have ended otherwise.
std::string ending_of(int status) {
  return WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status)) : fmt::format("exit {}", WEXITSTATUS(status));
}

// What is asked of pool-managerd, and the event of the line that says it is done.
struct Errand {
  const char* option;
  const char* closing_event;
};
constexpr Errand kInstall{"--install-engine", "done"}, kRemove{"--remove-engine", "removed"};

// pool-managerd, which installs and removes; it has the configuration of this command. Its closing line.
base::Result<bj::object> run_pool_manager(const GlobalOptions& global, const Errand& errand, const std::string& name) {
  std::vector<std::string> arguments{base::executable_directory() + "/pool-managerd", "--state-dir",
                                     state_directory(global).string(), errand.option, name};
  if (!global.config_file.empty()) arguments.insert(arguments.end(), {"--config", global.config_file});
  for (const std::string& item : global.set) arguments.insert(arguments.end(), {"--set", item});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return base::fail(base::ErrorCode::kIoError, std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    return base::fail(base::ErrorCode::kIoError,
                      fmt::format("cannot start {}: {}", arguments[0], std::strerror(failed)));
  }
  std::FILE* lines = ::fdopen(ends[0], "r");
  char* buffer = nullptr;
  std::size_t size = 0;
  bj::object last;
  std::optional<base::Error> error;
  for (ssize_t got = ::getline(&buffer, &size, lines); got > 0; got = ::getline(&buffer, &size, lines)) {
    boost::system::error_code ec;
    const bj::value line = bj::parse(bj::string_view(buffer, static_cast<std::size_t>(got)), ec);
    if (ec || !line.is_object()) continue;
    last = line.get_object();
    if (global.json && !last.contains("error")) continue;
    error = show(last);
  }
  std::free(buffer);
  std::fclose(lines);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (error) return base::fail(*error);
  const auto* event = last.if_contains("event");
  if (status == 0 && event != nullptr && *event == errand.closing_event) return last;
  return base::fail(
      base::ErrorCode::kIoError,
      fmt::format("pool-managerd ended before it was done ({}); run the command again", ending_of(status)));
}

}  // namespace

int list_engines(const GlobalOptions& global) {
  const auto config = load_config(global);
  if (!config) return report(config.error(), global.json);
  const config::InstallPolicyConfig& policy = config->pool_managerd.provisioning;
  bj::array list;
  std::vector<std::vector<std::string>> rows;
  for (const config::EngineConfig& engine : config->pool_managerd.engines) {
    const std::string where = engine.command.empty() ? engine.endpoint : engine.command[0];
    const std::string state = state_of(engine, policy);
    rows.push_back({engine.name, engine.engine, engine.provisioning.version, state, where, engine.device,
                    std::to_string(engine.slots)});
    list.push_back({{"model_ref", "engine:" + engine.name},
                    {"engine", engine.engine},
                    {"version", engine.provisioning.version},
                    {"state", state},
                    {"where", where},
                    {"slots", engine.slots}});
  }
  const auto is_configured = [&](const setup::Installation& there) {
    return std::ranges::any_of(config->pool_managerd.engines, [&](const config::EngineConfig& engine) {
      return setup::is_installed_here(engine) && setup::directory_of(engine, policy) == there.directory;
    });
  };
  for (const setup::Installation& there : setup::installations(policy)) {
    if (is_configured(there)) continue;
    rows.push_back({there.id, there.engine, there.version, "left over", there.directory.string(), "", ""});
    list.push_back({{"id", there.id},
                    {"engine", there.engine},
                    {"version", there.version},
                    {"state", "left over"},
                    {"where", there.directory.string()}});
  }
  if (global.json) {
    fmt::print("{}\n", bj::serialize(list));
  } else {
    print_table({"NAME", "ENGINE", "VERSION", "STATE", "WHERE", "DEVICE", "SLOTS"}, rows);
  }
  return kOk;
}

int plan_engine(const GlobalOptions& global, const std::string& name) {
  const auto config = load_config(global);
  if (!config) return report(config.error(), global.json);
  const auto engine = entry_of(*config, name);
  if (!engine) return report(engine.error(), global.json);
  bj::array list;
  bool missing = false;
  for (const setup::Step& step : setup::plan(*engine, machine_of(*config))) {
    missing = missing || step.missing;
    list.push_back({{"kind", step.kind},
                    {"detail", step.detail},
                    {"missing", step.missing},
                    {"what_to_do", step.missing ? step.what_to_do : ""}});
    if (!global.json) print_step(step.kind, step.detail + (step.missing ? " MISSING: " + step.what_to_do : ""));
  }
  if (global.json) fmt::print("{}\n", bj::serialize(list));
  return missing ? kFailed : kOk;
}

int install_engine(const GlobalOptions& global, const std::string& name) {
  const auto config = load_config(global);
  if (!config) return report(config.error(), global.json);
  const auto engine = entry_of(*config, name);
  if (!engine) return report(engine.error(), global.json);
  if (!global.json) {
    print_text("The plan:\n");
    for (const setup::Step& step : setup::plan(*engine, machine_of(*config))) {
      print_step(step.kind, step.detail + (step.missing ? " MISSING: " + step.what_to_do : ""));
    }
    print_text("\n");
    std::fflush(stdout);
  }
  const auto last = run_pool_manager(global, kInstall, name);
  if (!last) return report(last.error(), global.json);
  const auto* installation = last->if_contains("installation");
  if (global.json) {
    fmt::print("{}\n", installation == nullptr ? "{}" : bj::serialize(*installation));
  } else {
    print_text("{} is installed; pools start it from their next job on.\n", name);
  }
  return kOk;
}

int remove_engine(const GlobalOptions& global, const std::string& name) {
  const auto config = load_config(global);
  if (!config) return report(config.error(), global.json);
  const auto left_over = setup::installations(config->pool_managerd.provisioning);
  if (const auto entry = entry_of(*config, name);
      !entry && std::ranges::find(left_over, name, &setup::Installation::id) == left_over.end()) {
    return report(entry.error(), global.json);
  }
  const auto last = run_pool_manager(global, kRemove, name);
  if (!last) return report(last.error(), global.json);
  const auto* size = last->if_contains("size_bytes");
  const std::int64_t bytes = size == nullptr ? 0 : size->to_number<std::int64_t>();
  if (global.json) {
    fmt::print("{}\n", bj::serialize(bj::object{{"removed_bytes", bytes}}));
  } else if (bytes == 0) {
    print_text("{} was not installed.\n", name);
  } else {
    print_text("{} is removed: {}.\n", name, human_bytes(bytes));
  }
  return kOk;
}

}  // namespace llorch::cli
