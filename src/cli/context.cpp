#include "cli/context.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/file.h"
#include "cli/pager.h"
#include "cli/server_address.h"
#include "cli/stack/daemon_commands.h"
#include "cli/terminal_text.h"
#include "net/http/error_response.h"
#include "net/http/url.h"
#include "wire/json.h"
#include "wire/task.h"

namespace llorch::cli {

using base::ErrorCode;

namespace {
// The server sends a comment every 15 s (stream.keep_alive_ms); four missed ones mean that nobody is there.
constexpr std::int64_t kStreamIdleTimeoutMs = 60'000;

// Who is told to write http instead sends the token in the clear.
base::Result<> check_scheme(const std::string& url) {
  const std::size_t colon = std::min(url.find(':'), url.size());
  const std::string_view tls = "https";
  const bool is_tls = colon == tls.size() && std::equal(tls.begin(), tls.end(), url.begin(), [](char a, char b) {
                        return a == std::tolower(static_cast<unsigned char>(b));
                      });
  if (!is_tls) return {};
  const auto parsed = net::http::parse_url("http" + url.substr(colon));
  return base::fail(
      ErrorCode::kInvalidParams,
      fmt::format(
          "llorch speaks no TLS, and http to another machine shows the token on the way; let ssh forward a port, "
          "ssh -L 18080:127.0.0.1:8080 {0}, and ask there: --url http://127.0.0.1:18080, with the token of {0} "
          "in the file that LLORCH_API_TOKEN_FILE names, else this machine's goes there",
          parsed ? parsed->host : "HOST"));
}
}  // namespace

bool is_orchestratords(const net::Response& response) {
  if (response.status < 400) return !response.body.starts_with('<');  // JSON, or the text of metrics
  return net::http::own_error_of(response).has_value();
}

int exit_code_of(const base::Error& error) {
  switch (error.code) {
    case ErrorCode::kConfigInvalid:
    case ErrorCode::kInvalidParams: return kUsage;
    case ErrorCode::kUnreachable: return kUnreachable;
    case ErrorCode::kNoGpu:
    case ErrorCode::kGpuUnavailable:
    case ErrorCode::kInsufficientVram:
    case ErrorCode::kOutOfDeviceMemory:
    case ErrorCode::kModelIncompatible:
    case ErrorCode::kPoolUnavailable:
    case ErrorCode::kForbidden:
    case ErrorCode::kMissingToken:
    case ErrorCode::kBadToken:
    case ErrorCode::kNonLoopbackWithoutToken: return kRefused;
    case ErrorCode::kCancelled: return kInterrupted;
    default: return kFailed;
  }
}

int report(const base::Error& error, bool json) {
  if (json) {
    fmt::print(stderr, "{{\"error\":{}}}\n", wire::encode(wire::error_body(error, {})));
  } else {
    print_text(stderr, "error: {}: {}\n", error.name(), error.message);
    for (const auto& [key, value] : error.details) {
      if (const auto* number = std::get_if<std::int64_t>(&value)) {
        print_text(stderr, "  {}: {}\n", key, *number);
      } else {
        print_text(stderr, "  {}: {}\n", key, std::get<std::string>(value));
      }
    }
  }
  return exit_code_of(error);
}

base::Result<config::Config> load_config(const GlobalOptions& options) {
  config::ConfigSources sources{.getenv = [](const char* name) { return std::getenv(name); }};
  if (!options.config_file.empty()) sources.file = options.config_file;
  for (const std::string& item : options.set) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) return base::fail(ErrorCode::kConfigInvalid, "--set takes key=value");
    sources.overrides.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  return config::load_config(sources);
}

std::filesystem::path state_directory(const GlobalOptions& options) {
  return options.state_dir.empty() ? base::default_state_directory() : std::filesystem::path(options.state_dir);
}

base::Result<std::unique_ptr<Api>> Api::connect(const GlobalOptions& options) {
  const config::Config config = TRY(load_config(options));
  const auto getenv = [](const char* name) { return std::getenv(name); };
  std::string url = options.url;
  if (const char* env = std::getenv("LLORCH_URL"); url.empty() && env != nullptr) url = env;
  const bool is_said = !url.empty();
  TRY(check_scheme(url));
  const bool file_is_said =
      !options.config_file.empty() || std::getenv("LLORCH_AUTH_TOKEN_FILE") != nullptr ||
      std::ranges::any_of(options.set, [](const std::string& item) { return item.starts_with("auth.token_file="); });
  ClientToken token = TRY(client_token({.config = config, .url = url, .file_is_said = file_is_said, .getenv = getenv}));
  if (url.empty()) {
    url = TRY(server_address({.state_directory = state_directory(options),
                              .bind = config.orchestratord.bind,
                              .sends_token = !token.token.empty()}));
  }
  while (url.ends_with('/')) url.pop_back();
  std::unique_ptr<Api> api(new Api(std::move(url), std::move(token.token)));
  if (!is_said) api->stack_directory_ = state_directory(options);
  api->is_elsewhere_ = is_said && !is_here(api->url_);
  api->token_is_withheld_ = token.is_withheld;
  api->token_goes_before_ = token.goes_before;
  return api;
}

base::Error Api::silence_error(base::Error error) const {
  // It may have gone since its record was read, or be going: a process that is killed breaks its connections before it has ended.
  const auto restarting = stack_directory_.empty() ? std::nullopt : restarting_error(stack_directory_);
  if (error.code == ErrorCode::kIoError && restarting)
    error.message += "; if orchestratord has gone, llorch up starts it again";
  if (error.code != ErrorCode::kUnreachable) return error;
  if (restarting) return *restarting;
  if (is_elsewhere_) {
    return {ErrorCode::kUnreachable, fmt::format("nothing answers at {}: {}; check --url", url_, error.message), {}};
  }
  return {ErrorCode::kUnreachable,
          fmt::format("orchestratord does not answer at {}; start the stack with: {}", url_, stack::start_command()),
          {}};
}

base::Error Api::error_of(const net::Response& response) const {
  auto own = net::http::own_error_of(response);
  if (!own) return other_program_error(response.status);
  base::Error error = *std::move(own);
  if (error.code == ErrorCode::kBadToken && token_goes_before_) {
    error.message += "; this one is of LLORCH_API_TOKEN_FILE or LLORCH_API_TOKEN, which go before auth.token_file";
  }
  if (error.code != ErrorCode::kMissingToken) return error;
  error.message = fmt::format(
      "orchestratord at {} needs a token: name the file (mode 0600) that holds it in "
      "LLORCH_API_TOKEN_FILE{}",
      url_,
      token_is_withheld_ ? "; that of auth.token_file goes only to this machine and to the "
                           "orchestratord of the configuration"
                         : "");
  return error;
}

// A proxy before orchestratord answers by itself what it refuses, and where it finds none behind it.
base::Error Api::other_program_error(int status) const {
  const bool refuses = status >= 400 && status < 500 && status != 404;
  if (refuses) {
    return {ErrorCode::kInternal,
            fmt::format("HTTP status {} at {} is not orchestratord's answer: a proxy before it refuses the request, or "
                        "another program listens there",
                        status, url_),
            {}};
  }
  return base::Error{ErrorCode::kUnreachable,
                     fmt::format("what answers at {} with HTTP status {} is not orchestratord; check --url or which "
                                 "program listens there",
                                 url_, status),
                     {}}
      .with("reason", std::string(kOtherProgram));
}

base::Result<std::string> Api::call(const std::string& method, const std::string& path, const std::string& body) {
  net::ClientRequest request{.method = method, .url = url_ + path, .bearer = token_, .body = body};
  if (!body.empty()) request.headers.set("Content-Type", "application/json");
  auto response = client_.call(std::move(request));
  if (!response) return base::fail(silence_error(std::move(response).error()));
  if (response->status >= 400) return base::fail(error_of(*response));
  if (!is_orchestratords(*response)) return base::fail(other_program_error(response->status));
  return std::move(response->body);
}

net::StreamHandle Api::stream(const std::string& path, net::http::Headers headers, net::StreamCallbacks callbacks) {
  return client_.stream(
      {.url = url_ + path, .headers = std::move(headers), .bearer = token_, .idle_timeout_ms = kStreamIdleTimeoutMs},
      std::move(callbacks));
}

void print_table(const std::vector<std::string>& header, std::vector<std::vector<std::string>> rows) {
  for (auto& row : rows) {
    for (std::string& cell : row) cell = without_controls(cell);
  }
  std::vector<std::size_t> widths;
  for (const std::string& cell : header) widths.push_back(cell.size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      out += i + 1 == cells.size() ? cells[i] : fmt::format("{:<{}}  ", cells[i], widths[i]);
    }
    print_text("{}\n", out);
  };
  if (prints_to_terminal()) line(header);
  for (const auto& row : rows) line(row);
}

}  // namespace llorch::cli
