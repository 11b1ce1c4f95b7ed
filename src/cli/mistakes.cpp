#include "cli/mistakes.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

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

bool is_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

// The option of `command`, or of all commands, that `word` may have meant; empty: nobody knows.
std::string meant_option(const CLI::App& command, std::string_view word) {
  word = word.substr(0, word.find('='));
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  if (word == "v" || word == "V") return "--version";
  const std::size_t near = std::min<std::size_t>(2, word.size() / 3);  // mistakes of typing
  std::string nearest;
  for (const CLI::App* of = &command; of != nullptr; of = of->get_parent()) {
    for (const CLI::Option* option : of->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        if (nearest.empty() || base::edit_distance(word, name) < base::edit_distance(word, nearest)) nearest = name;
      }
    }
  }
  return base::edit_distance(word, nearest) <= near ? "--" + nearest : "";
}

std::string option_text(const CLI::App& command, const std::string& path, const std::string& word) {
  const std::string near = meant_option(command, word);
  if (near == word.substr(0, word.find('=')))
    return fmt::format("{} stands behind its command: {} {}\n", near, path, word);
  const std::string hint = near.empty() ? "." : fmt::format("; did you mean {}?", near);
  return fmt::format("There is no option {}{} `{} --help` lists them.\n", word, hint, path);
}

// What was typed and has no place, in the order in which it was.
std::vector<std::string> words_left(const CLI::App& app) {
  std::vector<std::string> out = app.remaining(true);
  std::erase(out, "--");
  return out;
}

std::string extras_text(const CLI::App& command, const std::string& path, const std::vector<std::string>& words) {
  if (const auto option = std::ranges::find_if(words, is_option); option != words.end()) {
    return option_text(command, path, *option);
  }
  std::string listed;
  for (const std::string& word : words) listed += (listed.empty() ? "" : " ") + word;
  std::string_view hint;
  if (path == "llorch run")
    hint = "A prompt of several words stands in quotes: llorch run MODEL \"Once upon a time\"\n";
  if (path == "llorch chat")
    hint = "What is said is typed once it has begun; --system of several words stands in quotes.\n";
  return fmt::format("{} not expected: {}\n{}`{} --help` says what it takes.\n",
                     words.size() == 1 ? "This word was" : "These words were", listed, hint, path);
}

bool asks_for_help(const CLI::ParseError& error) { return dynamic_cast<const CLI::CallForHelp*>(&error) != nullptr; }

}  // namespace

bool is_help_of_no_command(const CLI::App& app, const CLI::ParseError& error) {
  if (!asks_for_help(error)) return false;
  const std::vector<std::string> words = words_left(app);
  return command_of(app).first->get_require_subcommand_min() > 0 && !words.empty() && !is_option(words.front());
}

std::string mistake_text(const CLI::App& app, const CLI::ParseError& error) {
  const auto [command, path] = command_of(app);
  const std::vector<std::string> words = words_left(app);
  const bool has_extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (has_extras && !words.empty()) return extras_text(*command, path, words);
  // Another mistake, such as an option without its value, goes before the command that is not there.
  const bool is_of_command = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr || asks_for_help(error);
  const bool lacks_command = command->get_require_subcommand_min() > 0 && is_of_command;
  if (!lacks_command) return fmt::format("{}\n`{} --help` says what it takes.\n", error.what(), path);
  for (const std::string& word : words) {
    if (is_option(word)) return option_text(*command, path, word);
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
