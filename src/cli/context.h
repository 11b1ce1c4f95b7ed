#pragma once
// What every command gets: where things are, how to talk to the stack, how to print.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/human_bytes.h"
#include "base/result.h"
#include "config/config.h"
#include "net/client.h"
#include "net/io_runtime.h"

namespace llorch::cli {

// 1 the job or action failed; 2 wrong usage or configuration; 3 no daemon answered; 4 refused by policy (no GPU, too
// little memory, allow-list); 130 interrupted by a signal.
enum ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kUnreachable = 3, kRefused = 4, kInterrupted = 130 };

struct GlobalOptions {
  std::string config_file;
  std::vector<std::string> set;  // key=value
  std::string state_dir;
  std::string url;  // of orchestratord; empty: the running stack's, else the configured bind
  bool json = false;
};

// The exit code an error stands for.
int exit_code_of(const base::Error& error);
// "error: CODE: message" on standard error, or the error object as JSON. Returns exit_code_of(error).
int report(const base::Error& error, bool json);

base::Result<config::Config> load_config(const GlobalOptions& options);
std::filesystem::path state_directory(const GlobalOptions& options);

// Detail `reason` of the UNREACHABLE that another program's answer is.
inline constexpr std::string_view kOtherProgram = "NOT_ORCHESTRATORD";
// Whether a response may be orchestratord's under /v2: an error has its envelope, and nothing else is a page.
bool is_orchestratords(const net::Response& response);

// Talks to orchestratord. Owns its io thread.
class Api {
 public:
  static base::Result<std::unique_ptr<Api>> connect(const GlobalOptions& options);

  // The response's body, or the error of its envelope. UNREACHABLE says how to start the stack, or that something else answers there.
  base::Result<std::string> call(const std::string& method, const std::string& path, const std::string& body = "");
  net::StreamHandle stream(const std::string& path, net::http::Headers headers, net::StreamCallbacks callbacks);
  const std::string& url() const { return url_; }

 private:
  Api(std::string url, std::string token) : url_(std::move(url)), token_(std::move(token)) {}
  base::Error silence_error(base::Error error) const;
  base::Error error_of(const net::Response& response) const;
  base::Error other_program_error(int status) const;

  std::string url_, token_;
  std::filesystem::path stack_directory_;  // of the stack whose record gave the URL; empty: somebody said it
  bool is_elsewhere_ = false;              // somebody said so, and it is not this machine
  bool token_is_withheld_ = false;         // that of auth.token_file
  bool token_goes_before_ = false;         // it is the environment's, and there is one of auth.token_file
  net::IoRuntime runtime_;
  net::Client client_{runtime_};
};

// Columns padded to their widest cell, without control characters; headers only on a terminal, so that output pipes well.
void print_table(const std::vector<std::string>& header, std::vector<std::vector<std::string>> rows);
using base::human_bytes;

}  // namespace llorch::cli
