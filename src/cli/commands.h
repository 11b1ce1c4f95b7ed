#pragma once
// One function per command; each returns the process's exit code.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/context.h"
#include "contract/sampling.h"

namespace llorch::cli {

struct UpOptions {
  bool cpu = false;
  bool detach = false;
  std::string model;  // file or alias to offer; empty: what the configuration names
};
int up(const GlobalOptions& global, const UpOptions& options);
int down(const GlobalOptions& global);

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;  // absent: standard input
  bool chat = false;                  // the prompt is what a user says, the model's chat template makes the text
  std::optional<std::string> system;  // a system message before it
  std::vector<std::string> images;    // PNG and JPEG files, shown before the prompt; implies chat
  std::string messages;               // file with a JSON array of messages; empty: none
  std::int64_t max_tokens = 256;
  std::optional<double> temperature;
  std::optional<std::uint64_t> seed;
  contract::SamplingRequest sampling;
  std::vector<std::string> stop;
  std::string priority = "interactive";
  bool stats = false;  // queue wait, time to first token and tokens/s on standard error
};
int run_prompt(const GlobalOptions& global, const RunOptions& options);

int ps(const GlobalOptions& global);
int ls(const GlobalOptions& global);
int show_job(const GlobalOptions& global, const std::string& job_id);
int cancel_job(const GlobalOptions& global, const std::string& job_id);
int clear_cache(const GlobalOptions& global);
int doctor(const GlobalOptions& global);
int version(const GlobalOptions& global);

// Parses the command line and runs one command.
int run_cli(int argc, const char* const* argv);

}  // namespace llorch::cli
