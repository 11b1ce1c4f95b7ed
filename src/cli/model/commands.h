#pragma once
// llorch model ...: model files and the engine in this process, no daemon. One function per command; each returns the
// process's exit code.
#include <string>

#include "cli/context.h"
#include "cli/model/tools.h"

namespace CLI {
class App;
}

namespace llorch::cli::model {

int show(const GlobalOptions& global, const std::string& model);
int tokenize(const GlobalOptions& global, const std::string& model, const std::string& text);

struct LogitsOptions {
  RunOptions run;
  std::string out;
  bool force = false;
};
int logits(const GlobalOptions& global, const LogitsOptions& options);

struct PlanOptions {
  std::string model;
  std::string projector;
  std::int64_t image_token = -1;
  std::string mode = "prefill";  // "decode", "prefill", "vision"
  std::string kv_dtype = "f16";
};
int plan(const GlobalOptions& global, const PlanOptions& options);

struct TraceOptions {
  RunOptions run;
  std::string out;      // JSON lines; empty: none
  std::string against;  // an earlier trace to hold this run against; empty: none
  std::string dump;     // raw f32 of the first row that differs; empty: none
  double tolerance = 0;
  bool force = false;  // replace out and dump
};
int trace(const GlobalOptions& global, const TraceOptions& options);

// Adds `model` and its subcommands to the command line; what is run writes its exit code to `code`.
void add_commands(::CLI::App& app, const GlobalOptions& global, int& code);

}  // namespace llorch::cli::model
