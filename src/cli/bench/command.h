#pragma once
// llorch bench MODEL
#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/measure.h"
#include "cli/context.h"

namespace CLI {
class App;
}

namespace llorch::cli::bench {

struct CommandOptions {
  std::string model;  // .gguf file, Hugging Face directory, or a name of models.aliases
  std::int64_t prompt_tokens = 512;
  std::int64_t generate_tokens = 32;
  std::vector<std::int64_t> batches = {1, 2, 4, 8};
  std::vector<std::int64_t> contexts = {0, 4096};
  bool contexts_given = false;  // else those are left out that the model has no room for
  std::int64_t threads = 0;     // 0 = all
  std::int64_t runs = 3;
  std::string kv_dtype = "f16";
};

// What is measured of a model of such a context, without doublets, in ascending order; `left_out` gets the defaults it has no
// room for. Errors: INVALID_PARAMS, with the largest context there is room for.
base::Result<Shape> shape_of(const CommandOptions& options, std::uint32_t context_tokens,
                             std::vector<std::uint32_t>& left_out);

// Exit code 130 with what was measured until then when a signal ends it; a second signal ends the process at once.
int run_bench(const GlobalOptions& global, const CommandOptions& options);

// Adds `bench` to the command line; a run writes its exit code to `code`.
void add_command(::CLI::App& app, const GlobalOptions& global, int& code);

}  // namespace llorch::cli::bench
