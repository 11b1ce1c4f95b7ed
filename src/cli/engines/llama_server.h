#pragma once
// `llorch up --engine llama.cpp`: an entry of the configuration that nobody has to write.
#include <cstdint>
#include <string>

#include "base/result.h"
#include "config/config.h"

namespace llorch::cli::engines {

// llama.cpp's server for a model file, as an entry of pool-managerd.engines.
struct LlamaServer {
  std::string binary;  // empty: llama-server of PATH
  std::string model;   // path of a .gguf file
  std::string name;    // of the entry
  bool cpu = false;    // else the first GPU, all layers
  std::int64_t context_tokens = 4096;
  std::int64_t slots = 1;
};
// Its program is `binary`, else llama-server of PATH, else that of the catalogue of engines, which may have to be installed.
// Errors: NOT_FOUND with what to install, IO_ERROR (the model's file).
base::Result<config::EngineConfig> llama_server(const LlamaServer& wanted, const std::string& path_variable);

// The value of pool-managerd.engines for --set.
std::string as_setting(const config::EngineConfig& engine);

}  // namespace llorch::cli::engines
