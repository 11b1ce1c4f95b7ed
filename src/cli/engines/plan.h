#pragma once
// Engines of other systems, as a command line sees them: what would be started or asked, and what is missing for it. Looks at files
// and at nothing else; starts nothing.
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace llorch::cli::engines {

// What happens for an engine, in order. Deterministic: the same configuration gives the same steps.
struct Step {
  std::string kind;    // "connect", "key", "start", "memory", "self-test"
  std::string detail;  // one sentence; no secret
  bool missing = false;
  std::string what_to_do;  // when it is missing
};
std::vector<Step> plan(const config::EngineConfig& engine);

// llama.cpp's server for a model file, as an entry of pool-managerd.engines.
struct LlamaServer {
  std::string binary;  // empty: llama-server of PATH
  std::string model;   // path of a .gguf file
  std::string name;    // of the entry
  bool cpu = false;    // else the first GPU, all layers
  std::int64_t context_tokens = 4096;
  std::int64_t slots = 1;
};
// Errors: NOT_FOUND with what to install, IO_ERROR (the model's file).
base::Result<config::EngineConfig> llama_server(const LlamaServer& wanted, const std::string& path_variable);

// The value of pool-managerd.engines for --set.
std::string as_setting(const config::EngineConfig& engine);

}  // namespace llorch::cli::engines
