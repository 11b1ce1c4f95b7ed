#include "cli/mistakes.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/edit_distance.h"

namespace llorch::cli {
namespace {

constexpr std::string_view kFirstSteps =
    "llorch runs language models on your own machines. To begin:\n"
    "\n"
    "  llorch up --detach       start it; without an NVIDIA GPU: llorch up --cpu --detach\n"
    "  llorch pull smollm2      fetch a small model that chats; llorch search lists others\n"
    "  llorch chat smollm2      talk with it\n"
    "  llorch doctor            what is wrong on this machine, and what to do\n"
    "\n"
    "llorch --help lists all commands.\n";

// What other programs call it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kOtherWords{{{"list", "ls"},
                                                                                     {"models", "ls"},
                                                                                     {"status", "ps"},
                                                                                     {"jobs", "ps"},
                                                                                     {"start", "up"},
                                                                                     {"download", "pull"},
                                                                                     {"get", "pull"},
                                                                                     {"install", "pull"},
                                                                                     {"delete", "rm"},
                                                                                     {"remove", "rm"},
                                                                                     {"info", "show"},
                                                                                     {"inspect", "show"},
                                                                                     {"generate", "run"},
                                                                                     {"complete", "run"},
                                                                                     {"kill", "cancel"},
                                                                                     {"check", "doctor"},
                                                                                     {"find", "search"}}};

// The command that was being read, and all that was typed to name it.
std::pair<const CLI::App*, std::string> command_of(const CLI::App& app) {
  const CLI::App* command = &app;
  std::string path = app.get_name();
  for (auto parsed = command->get_subcommands(); !parsed.empty(); parsed = command->get_subcommands()) {
    command = parsed.front();
    path += " " + command->get_name();
  }
  return {command, path};
}

// What `word` may have meant; empty: nobody knows.
std::string meant(const CLI::App& command, const std::string& word) {
  constexpr std::size_t kNear = 2;  // mistakes of typing
  std::string nearest;
  for (const CLI::App* one : command.get_subcommands(nullptr)) {
    const std::string& name = one->get_name();
    if (!one->get_group().empty() &&
        (nearest.empty() || base::edit_distance(word, name) < base::edit_distance(word, nearest)))
      nearest = name;
  }
  for (const auto& [other, ours] : kOtherWords) {
    if (word == other && command.get_parent() == nullptr) return std::string(ours);
  }
  return base::edit_distance(word, nearest) <= kNear ? nearest : "";
}

}  // namespace

std::string mistake_text(const CLI::App& app, const CLI::ParseError& error) {
  const auto [command, path] = command_of(app);
  const bool lacks_command = command->get_require_subcommand_min() > 0;
  if (!lacks_command) return fmt::format("{}\n`{} --help` says what it takes.\n", error.what(), path);
  for (const std::string& word : app.remaining(true)) {
    if (word.starts_with('-')) return fmt::format("{}\n`{} --help` says what it takes.\n", error.what(), path);
    const std::string near = meant(*command, word);
    const std::string hint = near.empty() ? "." : fmt::format("; did you mean {}?", near);
    return fmt::format("There is no command {}{} `{} --help` lists them.\n", word, hint, path);
  }
  if (command == &app) return std::string(kFirstSteps);
  std::string names;
  for (const CLI::App* one : command->get_subcommands(nullptr)) names += (names.empty() ? "" : ", ") + one->get_name();
  return fmt::format("{} needs one of: {}. `{} --help` says what each does.\n", path, names, path);
}

std::string mistake_line(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = mistake_text(app, error);
  if (text == kFirstSteps) return error.what();
  while (text.ends_with('\n')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace llorch::cli
