// Tokens and passwords that the configuration names files for.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/file.h"
#include "base/id.h"
#include "config/config.h"

namespace llorch::config {

base::Result<std::string> read_secret(const std::string& file) {
  struct stat st {};
  const bool is_there = ::stat(file.c_str(), &st) == 0;
  // A pipe is what a shell names for <(a command).
  if (is_there && !S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode)) {
    return config_error(fmt::format("{} is no regular file; name the file that holds the secret", file));
  }
  if (is_there && (st.st_mode & 077) != 0) {
    return config_error(fmt::format("{} can be read by others; run: chmod 600 {}", file, file));
  }
  auto read = base::read_file(file, 16384);
  if (!read) {
    base::Error error = std::move(read).error();
    if (is_there && st.st_uid != ::geteuid() && ::faccessat(AT_FDCWD, file.c_str(), R_OK, AT_EACCESS) != 0 &&
        errno == EACCES) {
      error.message += fmt::format(
          "; it is a file of user {}, and user {} runs this: the file of a daemon belongs to the user that runs the "
          "daemon (chown USER {}), and whoever calls one has a copy of his own",
          st.st_uid, ::geteuid(), file);
    }
    return base::fail(std::move(error));
  }
  std::string text = *std::move(read);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

namespace {
base::Result<> check_token_length(std::string_view token) {
  if (token.size() >= 32) return {};
  return config_error("the API token has fewer than 32 characters; make one with: openssl rand -hex 32");
}

base::Result<std::string> read_token(const std::string& file) {
  std::string token = TRY(read_secret(file));
  if (token.empty()) return config_error(fmt::format("{} holds no token", file));
  TRY(check_token_length(token));
  return token;
}
}  // namespace

base::Result<std::string> load_api_token(const Config& config, const std::function<const char*(const char*)>& getenv) {
  std::string file = config.auth.token_file;
  if (const char* value = getenv("LLORCH_API_TOKEN_FILE"); file.empty() && value != nullptr) file = value;
  if (!file.empty()) return read_token(file);
  const char* value = getenv("LLORCH_API_TOKEN");
  const std::string token = value == nullptr ? "" : value;
  if (!token.empty()) TRY(check_token_length(token));
  return token;
}

base::Result<std::string> load_worker_token(const std::function<const char*(const char*)>& getenv) {
  const char* token = getenv("LLORCH_WORKER_CONTROL_TOKEN");
  if (token != nullptr && *token != '\0') return std::string(token);
  return load_api_token({}, getenv);
}

base::Result<std::vector<TenantToken>> load_tenant_tokens(const Config& config, std::string_view api_token) {
  const auto& tenants = config.orchestratord.tenants;
  if (!tenants.empty() && api_token.empty()) {
    return config_error(
        "orchestratord.tenants needs a token of the operator, for pools and administration: set auth.token_file");
  }
  std::vector<TenantToken> out;
  std::set<std::string, std::less<>> known{std::string(api_token)};
  for (const TenantConfig& tenant : tenants) {
    out.push_back({tenant.id, TRY(read_token(tenant.token_file))});
    if (!known.insert(out.back().token).second) {
      return config_error(fmt::format("tenant {} has the token of another tenant or of the operator", tenant.id));
    }
  }
  return out;
}

base::Result<std::vector<std::string>> load_reader_tokens(const Config& config, std::string_view api_token) {
  std::vector<std::string> out;
  if (!config.auth.reader_token_files.empty() && api_token.empty()) {
    return config_error("auth.reader_token_files needs a token of the operator: set auth.token_file");
  }
  for (const std::string& file : config.auth.reader_token_files) out.push_back(TRY(read_token(file)));
  return out;
}

base::Result<std::string> load_postgresql_connection(const Config& config) {
  const std::string& file = config.orchestratord.persistence.postgresql.connection_file;
  if (file.empty()) return std::string();
  std::string text = TRY(read_secret(file));
  if (text.empty()) return config_error(fmt::format("{} holds no connection string", file));
  return text;
}

}  // namespace llorch::config

LLORCH_INSTANTIATE_ENUM(llorch::config::PlacementAlgorithm)
LLORCH_INSTANTIATE_ENUM(llorch::config::EvictionPolicy)
