// llorch config: what is configured, and whether it may be.
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/process.h"
#include "base/run_command.h"
#include "cli/commands.h"
#include "cli/pager.h"
#include "cli/stack/daemon_commands.h"
#include "cli/stack/processes.h"
#include "cli/terminal_text.h"
#include "wire/check_verdict.h"

extern char** environ;

namespace llorch::cli {
namespace {

namespace bj = boost::json;

constexpr std::int64_t kCheckMs = 600'000;  // of a daemon; a file that it reads may be on a disk that does not answer

// "orchestratord.queue.capacity = 100" for every value, those that are not the default's marked. Lists and maps of names are one value.
void print_values(const bj::object& object, const bj::object& defaults, const std::string& prefix, bool changed_only) {
  for (const auto& member : object) {
    const std::string key = prefix + std::string(member.key());
    const bj::value* const usual = defaults.if_contains(member.key());
    const bool is_section =
        member.value().is_object() && usual != nullptr && usual->is_object() && !usual->get_object().empty();
    if (is_section) {
      print_values(member.value().get_object(), usual->get_object(), key + ".", changed_only);
      continue;
    }
    const bool is_changed = usual == nullptr || *usual != member.value();
    if (changed_only && !is_changed) continue;
    fmt::print("{} {} = {}\n", is_changed ? "*" : " ", key, bj::serialize(member.value()));
  }
}

}  // namespace

int show_config(const GlobalOptions& global, bool changed_only) {
  const auto config = load_config(global);
  if (!config) return report(config.error(), global.json);
  const std::string text = config::redacted_json(*config);
  if (global.json) return fmt::print("{}\n", text), kOk;
  const Pager pager(true);
  print_values(bj::parse(text).as_object(), bj::parse(config::redacted_json({})).as_object(), "", changed_only);
  return kOk;
}

int show_config_schema(const GlobalOptions& global) {
  const Pager pager(!global.json);
  fmt::print("{}\n", config::config_json_schema());
  return kOk;
}

namespace {
bool says_state_directory(const GlobalOptions& global) {
  return !global.state_dir.empty() || std::getenv("LLORCH_STATE_DIR") != nullptr;
}

// The last line that a daemon's `--check` wrote to `file`.
base::Result<> verdict_in(const std::string& daemon, const base::Descriptor& file) {
  struct stat st {};
  std::string text(::fstat(file.get(), &st) == 0 ? static_cast<std::size_t>(st.st_size) : 0, '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  while (text.ends_with('\n')) text.pop_back();
  if (auto verdict = wire::decode_verdict(std::string_view(text).substr(text.rfind('\n') + 1)))
    return *std::move(verdict);
  return base::fail(base::ErrorCode::kInternal,
                    fmt::format("{} did not say whether it would start; {} --check shows why", daemon, daemon));
}

// By the functions with which the daemon starts.
base::Result<> check_by(const std::string& daemon, const GlobalOptions& global) {
  base::RunCommandOptions command{.argv = {base::executable_directory() + "/" + daemon, "--check", "--state-dir",
                                           state_directory(global).string()}};
  if (!global.config_file.empty()) command.argv.insert(command.argv.end(), {"--config", global.config_file});
  for (const std::string& item : global.set) command.argv.insert(command.argv.end(), {"--set", item});
  for (char** at = environ; *at != nullptr; ++at) command.environment.emplace_back(*at);
  const base::Descriptor output(::memfd_create("check", MFD_CLOEXEC));
  if (output.get() < 0) return base::fail(base::io_error("cannot create", "a file in memory", errno));
  command.output_fd = output.get();
  command.timeout_ms = kCheckMs;
  TRY(base::run_command(command));
  return verdict_in(daemon, output);
}
}  // namespace

base::Result<> check_config(const GlobalOptions& global) {
  const config::Config config = TRY(load_config(global));
  TRY(config::load_postgresql_connection(config));  // also where the store is another
  TRY(check_by("orchestratord", global));
  auto pool = check_by("pool-managerd", global);
  if (!pool && pool.error().code == base::ErrorCode::kNonLoopbackWithoutToken && !says_state_directory(global)) {
    pool.error().message += "; where its state directory is another than yours, say which: --state-dir";
  }
  return pool;
}

namespace {
std::vector<std::string> secret_files(const config::Config& config) {
  std::vector<std::string> out = config.auth.reader_token_files;
  for (const auto& tenant : config.orchestratord.tenants) out.push_back(tenant.token_file);
  for (const auto& engine : config.pool_managerd.engines) out.push_back(engine.api_key_file);
  out.insert(out.end(),
             {config.auth.token_file, config.orchestratord.persistence.postgresql.connection_file,
              config.pool_managerd.credential_file, config.models.pull.hub_token_file, config.models.pull.s3_key_file});
  std::erase(out, "");
  return out;
}

// Root reads every secret, and daemons that do not run as root read their own alone. Whose they are, the directory tells that the caller has
// named; that of the caller's own stack says nothing of a service's.
void warn_of_owners(const GlobalOptions& global) {
  if (!says_state_directory(global)) return;
  const auto config = load_config(global);
  const std::filesystem::path directory = state_directory(global);
  struct stat state {};
  if (!config || ::stat(directory.c_str(), &state) != 0 || state.st_uid == 0) return;
  for (const std::string& file : secret_files(*config)) {
    struct stat secret {};
    if (::stat(file.c_str(), &secret) != 0 || secret.st_uid == state.st_uid) continue;
    fmt::print(stderr, "warning: {} belongs to user {} and {} to user {}, as whom the daemons run: chown {} {}\n", file,
               secret.st_uid, directory.string(), state.st_uid, state.st_uid, file);
  }
}
}  // namespace

int validate_config(const GlobalOptions& global, const std::string& file) {
  GlobalOptions named = global;
  if (!file.empty()) named.config_file = file;
  if (const auto checked = check_config(named); !checked) return report(checked.error(), global.json);
  warn_of_owners(named);
  fmt::print("{}\n", global.json ? R"({"valid":true})" : "the configuration is valid");
  return kOk;
}

int reload_config(const GlobalOptions& global) {
  const std::filesystem::path directory = state_directory(global);
  if (const auto looked = stack::check_records(directory); !looked) return report(looked.error(), global.json);
  for (const stack::RunningProcess& process : stack::running_processes(directory)) {
    if (process.name != "orchestratord") continue;
    if (const auto asked = stack::ask_to_reload(process); !asked) return report(asked.error(), global.json);
    if (global.json) return fmt::print("{{\"event\":\"reload\",\"pid\":{}}}\n", process.pid), kOk;
    print_text("orchestratord (pid {}) reads its configuration; what it takes over, or why not, its log says:\n{}\n",
               process.pid, stack::logs_command("orchestratord"));
    return kOk;
  }
  return report(
      base::Error{base::ErrorCode::kUnreachable,
                  fmt::format("no orchestratord runs with the state directory {}; that of a service is said by "
                              "--state-dir",
                              directory.string()),
                  {}},
      global.json);
}

}  // namespace llorch::cli
