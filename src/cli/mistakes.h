#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace llorch::cli {

// Whether help was asked for of a word that is no command. REQUIRES: `error` is what parse() threw.
bool is_help_of_no_command(const CLI::App& app, const CLI::ParseError& error);
// What to tell a person whose command line `app` could not parse, with what to type instead. REQUIRES: `error` is what parse() threw.
std::string mistake_text(const CLI::App& app, const CLI::ParseError& error);
// The same for a program: one line.
std::string mistake_line(const CLI::App& app, const CLI::ParseError& error);

}  // namespace llorch::cli
