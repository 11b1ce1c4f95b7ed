#pragma once
// llorch verify --determinism MODEL
#include <cstdint>
#include <string>

#include "cli/context.h"

namespace llorch::cli::determinism {

struct CommandOptions {
  std::string model;           // .gguf file or Hugging Face directory
  std::string device = "cpu";  // or several that share the model
  std::int64_t seeds = 0;      // requests of the corpus; 0 = all
  bool quick = false;          // fewer circumstances
  std::int64_t threads = 0;    // 0 = all cores; never changes a bit
  std::string kv_dtype = "f16";
};
// Exit code 0: no mismatch. 1: there is one, or the model could not be run. 4: no such device, or one without room for it.
int check_determinism(const GlobalOptions& global, const CommandOptions& options);

}  // namespace llorch::cli::determinism
