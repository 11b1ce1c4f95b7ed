#include "cli/server_address.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/listeners.h"
#include "base/state_directory.h"
#include "cli/stack/processes.h"
#include "net/http/auth.h"
#include "net/http/url.h"

namespace llorch::cli {
namespace {

using base::ErrorCode;
namespace fs = std::filesystem;

// Of the system service that the packages install.
constexpr const char* kServiceStateDirectory = "/var/lib/llorch";

std::set<uid_t> trusted_users(const fs::path& state_directory) {
  std::set<uid_t> out{0, ::geteuid()};
  for (const fs::path& directory : {state_directory, fs::path(kServiceStateDirectory)}) {
    struct stat st {};
    if (::stat(directory.c_str(), &st) == 0) out.insert(st.st_uid);
  }
  return out;
}

// Whose directory it is says who listens, and gets the token.
base::Result<> check_owner(const fs::path& state_directory) {
  if (state_directory.lexically_normal() / "" == fs::path(kServiceStateDirectory) / "") return {};
  struct stat st {};
  if (::stat(state_directory.c_str(), &st) != 0) return {};
  const auto owner = base::foreign_owner(st);
  if (!owner) return {};
  return base::fail(ErrorCode::kForbidden,
                    fmt::format("the state directory {} is of user {}, and the token is not sent to whom it names; say "
                                "where your orchestratord answers with: --url",
                                state_directory.string(), *owner));
}

// While orchestratord is down, its port is anybody's who takes it.
base::Result<> check_listeners(const std::string& address, const fs::path& state_directory) {
  const auto url = net::http::parse_url(address);
  if (!url) return {};  // nobody is called there
  if (!base::is_address(url->host)) {
    return base::fail(
        ErrorCode::kForbidden,
        fmt::format("{} is a name and no address, and the token is not sent to whatever it stands for; if "
                    "your orchestratord answers there, say so with: --url {}",
                    url->host, address));
  }
  if (!net::http::is_unspecified(url->host) && !TRY(base::is_own_address(url->host))) return {};
  const std::set<uid_t> trusted = trusted_users(state_directory);
  for (const base::Listener& one : TRY(base::listeners_at(url->host, url->port))) {
    if (trusted.contains(one.uid)) continue;
    return base::fail(ErrorCode::kForbidden,
                      fmt::format("a process of user {} listens at {}, and the token is not sent to it; if it is your "
                                  "orchestratord, say so with: --url {}",
                                  one.uid, address, address));
  }
  return {};
}

bool is_configured(const std::string& text, const config::Config& config) {
  const auto url = net::http::parse_url(text);
  if (!url) return false;
  const std::string pools_url = config.pool_managerd.orchestrator_url.value_or("");
  return std::ranges::any_of(std::array{net::http::local_url(config.orchestratord.bind), pools_url},
                             [&](const std::string& one) {
                               const auto known = net::http::parse_url(one);
                               return known && known->host == url->host && known->port == url->port;
                             });
}

}  // namespace

bool is_here(const std::string& url) {
  const auto parsed = net::http::parse_url(url);
  if (!parsed) return false;
  if (net::http::is_loopback(parsed->host) || net::http::is_unspecified(parsed->host)) return true;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0 && parsed->host == name.data()) return true;
  return base::is_address(parsed->host) && base::is_own_address(parsed->host).value_or(false);
}

base::Result<ClientToken> client_token(const TokenQuestion& question) {
  ClientToken out{.token = TRY(config::load_api_token({}, question.getenv))};
  out.goes_before = !out.token.empty() && !question.config.auth.token_file.empty();
  if (!out.token.empty() || question.config.auth.token_file.empty()) return out;
  out.is_withheld = !question.url.empty() && !question.file_is_said && !is_here(question.url) &&
                    !is_configured(question.url, question.config);
  if (!out.is_withheld) out.token = TRY(config::load_api_token(question.config, question.getenv));
  return out;
}

std::optional<base::Error> restarting_error(const fs::path& state_directory) {
  const auto processes = stack::running_processes(state_directory);
  if (std::ranges::none_of(processes, [](const auto& process) { return process.name == "supervisor"; })) return {};
  return base::Error{
      ErrorCode::kUnreachable,
      fmt::format("orchestratord is down and llorch up starts it, or starts it again; try again in a moment. Why "
                  "it went: {}",
                  (state_directory / "logs/orchestratord.log").string()),
      {}};
}

base::Result<std::string> server_address(const AddressQuestion& question) {
  if (question.sends_token) TRY(check_owner(question.state_directory));
  for (const stack::RunningProcess& process : stack::running_processes(question.state_directory)) {
    if (process.name == "orchestratord" && !process.bind.empty()) return net::http::local_url(process.bind);
  }
  if (auto error = restarting_error(question.state_directory)) return base::fail(std::move(*error));
  const fs::path record = question.state_directory / "run/orchestratord.json";
  std::error_code ec;
  if (fs::exists(record, ec)) {
    return base::fail(ErrorCode::kUnreachable,
                      fmt::format("no orchestratord runs here: the process that {} names has ended; start the stack "
                                  "with: llorch up, or say where another one answers: --url",
                                  record.string()));
  }
  std::string address = net::http::local_url(question.bind);
  if (question.sends_token) TRY(check_listeners(address, question.state_directory));
  return address;
}

}  // namespace llorch::cli
