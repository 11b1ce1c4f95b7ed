#pragma once
// The command line as data: what completions and manual pages are made of.
#include <CLI/CLI.hpp>
#include <string>

namespace llorch::cli {

// JSON of `app` and its commands, hidden ones left out: {"name", "description", "options": [{"names", "positional", "description",
// "type", "default", "required", "group"}], "commands": [...]}. `type` is empty for flags; in braces it lists the values taken.
std::string declaration(const CLI::App& app);

}  // namespace llorch::cli
