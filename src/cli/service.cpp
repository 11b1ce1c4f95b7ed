// llorch service install and remove: `llorch up` under the user's own systemd.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/model/tools.h"
#include "cli/service_unit.h"
#include "cli/terminal_text.h"
#include "config/environment.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;
using base::ErrorCode;

constexpr const char* kUnit = "llorch.service";

base::Result<std::filesystem::path> unit_file() {
  const char* home = std::getenv("HOME");
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config == '/') return std::filesystem::path(config) / "systemd/user" / kUnit;
  if (home != nullptr && *home == '/') return std::filesystem::path(home) / ".config/systemd/user" / kUnit;
  return base::fail(ErrorCode::kInvalidParams, "HOME is not set: there is no place for the unit");
}

// systemctl says on standard error why it fails.
base::Result<> systemctl(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"systemctl", "--user"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return base::fail(base::io_error("cannot start", "systemctl", errno));
  if (pid == 0) {
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  std::string command;
  for (const std::string& argument : arguments) command += (command.empty() ? "" : " ") + argument;
  return base::fail(
      ErrorCode::kIoError,
      fmt::format("`{}` failed; is this a login of a user with a systemd of its own? Without one: llorch up "
                  "--detach",
                  command));
}

base::Result<std::string> absolute(const std::string& path) {
  std::error_code ec;
  const auto out = std::filesystem::absolute(path, ec);
  if (ec) return base::fail(base::io_error("cannot resolve", path, ec.value()));
  return out.string();
}

// What the caller's environment says to the daemons. A service has another one: without the token it would serve everybody on this
// machine.
base::Result<std::vector<std::string>> variables_of(const GlobalOptions& global) {
  const auto text_of = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::vector<std::string> out =
      config::settings_in_environment([](const char* name) -> const char* { return std::getenv(name); });
  if (TRY(load_config(global)).auth.token_file.empty()) {
    if (const std::string file = text_of("LLORCH_API_TOKEN_FILE"); !file.empty()) {
      out.push_back("LLORCH_API_TOKEN_FILE=" + TRY(absolute(file)));
    } else if (!text_of("LLORCH_API_TOKEN").empty()) {
      return base::fail(
          ErrorCode::kInvalidParams,
          "the token is in LLORCH_API_TOKEN alone, which the service will not have, and without a token it "
          "would serve everybody on this machine: write it into a file (mode 0600), and name that in "
          "LLORCH_API_TOKEN_FILE or auth.token_file");
    }
  }
  return out;
}

// `llorch up` as the caller would run it here, with paths that hold elsewhere.
base::Result<std::vector<std::string>> command_of(const GlobalOptions& global, const ServiceOptions& options) {
  const config::Config config = TRY(load_config(global));
  std::vector<std::string> command{base::executable_directory() + "/llorch"};
  const char* named = std::getenv("LLORCH_CONFIG");
  const std::string file = !global.config_file.empty() ? global.config_file : named != nullptr ? named : "";
  if (!file.empty()) command.insert(command.end(), {"--config", TRY(absolute(file))});
  command.insert(command.end(), {"--state-dir", TRY(absolute(state_directory(global).string()))});
  for (const std::string& item : global.set) command.insert(command.end(), {"--set", item});
  command.emplace_back("up");
  if (options.cpu) command.emplace_back("--cpu");
  if (!options.model.empty()) {
    std::string model = options.model;
    if (!config.models.aliases.contains(model)) {
      model = TRY(absolute(model));
      TRY(model::check_model(model));  // or it would be the journal that says so
    }
    command.insert(command.end(), {"--model", model});
  }
  return command;
}

base::Result<> check_lines(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (text.find('\n') == std::string::npos) continue;
    return base::fail(ErrorCode::kInvalidParams, "a unit takes no argument and no setting with a line feed in it");
  }
  return {};
}

base::Result<std::filesystem::path> install(const GlobalOptions& global, const ServiceOptions& options) {
  const auto command = TRY(command_of(global, options));
  const auto variables = TRY(variables_of(global));
  std::error_code unknown;
  const std::string directory = std::filesystem::current_path(unknown).string();
  if (unknown) return base::fail(base::io_error("cannot resolve", ".", unknown.value()));
  const std::vector<std::string> reload{command.front(), "--state-dir", TRY(absolute(state_directory(global).string())),
                                        "config", "reload"};
  TRY(check_lines(command));
  TRY(check_lines(reload));
  TRY(check_lines(variables));
  TRY(check_lines({directory}));
  const auto file = TRY(unit_file());
  TRY(systemctl({"daemon-reload"}));  // where nobody listens nothing is left behind
  std::error_code ec;
  std::filesystem::create_directories(file.parent_path(), ec);
  if (ec) return base::fail(base::io_error("cannot create", file.parent_path(), ec.value()));
  // A setting may hold a password, of a proxy for instance.
  TRY(base::write_file_atomic(file, service_unit({.start = command, .reload = reload}, variables, directory), 0600));
  TRY(systemctl({"daemon-reload"}));
  TRY(systemctl({"enable", kUnit}));
  TRY(systemctl({"restart", kUnit}));
  return file;
}

base::Result<std::filesystem::path> remove() {
  const auto file = TRY(unit_file());
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) {
    return base::fail(ErrorCode::kInvalidParams,
                      fmt::format("{} is not there: no service is installed", file.string()));
  }
  auto disabled = systemctl({"disable", "--now", kUnit});
  // Without a systemd of the user nothing runs, and the files are all there is. One that only this shell does not reach goes on.
  const bool is_there = disabled || std::filesystem::exists(fmt::format("/run/user/{}/systemd", ::getuid()), ec);
  if (is_there) TRY(disabled);
  std::filesystem::remove(file.parent_path() / "default.target.wants" / kUnit, ec);
  if (!std::filesystem::remove(file, ec)) return base::fail(base::io_error("cannot remove", file, ec.value()));
  if (is_there) TRY(systemctl({"daemon-reload"}));
  return file;
}

int tell(const GlobalOptions& global, const char* event, const base::Result<std::filesystem::path>& file,
         const char* next) {
  if (!file) return report(file.error(), global.json);
  if (global.json) {
    fmt::print("{}\n", bj::serialize(bj::object{{"event", event}, {"unit", file->string()}}));
  } else {
    print_text("{} {}\n{}", event, file->string(), next);
  }
  return kOk;
}

}  // namespace

int install_service(const GlobalOptions& global, const ServiceOptions& options) {
  return tell(global, "installed", install(global, options),
              "state   systemctl --user status llorch\n"
              "log     journalctl --user -u llorch\n"
              "at boot sudo loginctl enable-linger $USER (otherwise it starts and ends with your logins)\n");
}

int remove_service(const GlobalOptions& global) { return tell(global, "removed", remove(), ""); }

}  // namespace llorch::cli
