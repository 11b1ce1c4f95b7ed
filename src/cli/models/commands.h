#pragma once
// llorch pull, rm, search, gc, and what concerns a name: one function per command; each returns the process's exit code.
#include <optional>
#include <string>
#include <vector>

#include "cli/context.h"
#include "wire/catalog.h"

namespace CLI {
class App;
}

namespace llorch::cli::models {

struct ModelOptions {
  wire::CreateCatalogModelRequest pull;
  std::vector<std::string> names;
  std::string query;
  wire::CatalogStateRequest state;
  std::int64_t unused_days = -1;  // below 0: age removes nothing
  std::int64_t gib_max = -1;      // below 0: neither does size
};
// `options` outlives the parse; `code` gets the exit code.
void add_commands(CLI::App& app, const GlobalOptions& global, ModelOptions& options, int& code);

// Has the pool read all of the model's bytes where they lie, and waits until it is known whether they are what they were. Exit codes:
// kOk, kFailed (another checksum), kRefused (it could not be done).
int verify_files(const GlobalOptions& global, const std::string& name);

// Prints the model with this name and returns true; false: there is none.
base::Result<bool> show_model(Api& api, const std::string& name, bool json);

}  // namespace llorch::cli::models
