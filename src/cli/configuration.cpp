// llorch config: what is configured, and whether it may be.
#include <fmt/core.h>
#include <sys/stat.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "cli/commands.h"
#include "cli/pager.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;

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

base::Result<> check_config(const GlobalOptions& global) {
  const auto getenv = [](const char* name) { return std::getenv(name); };
  const config::Config config = TRY(load_config(global));
  const std::string token = TRY(config::load_api_token(config, getenv));
  TRY(config::load_tenant_tokens(config, token));
  TRY(config::load_reader_tokens(config, token));
  TRY(config::load_postgresql_connection(config));
  return {};
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
  if (global.state_dir.empty() && std::getenv("LLORCH_STATE_DIR") == nullptr) return;
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

}  // namespace llorch::cli
