// llorch logs: what the daemons of a stack have written down.
#include <fmt/core.h>

#include <chrono>
#include <deque>
#include <thread>

#include "cli/commands.h"
#include "cli/pager.h"
#include "cli/stack/log_reader.h"

namespace llorch::cli {
namespace {

constexpr std::chrono::milliseconds kLookAgain{200};

// As it stands where a program reads it.
void print_line(const std::string& line, bool for_people) {
  fmt::print("{}\n", for_people ? stack::readable_line(line) : line);
}

}  // namespace

int show_logs(const GlobalOptions& global, const LogsOptions& options) {
  const std::filesystem::path directory = state_directory(global) / "logs";
  const bool for_people = !global.json && prints_to_terminal();
  const auto files = stack::find_logs(directory, options.component);
  if (!files) return report(files.error(), global.json);
  const Pager pager(!global.json && !options.follow);
  stack::LogMerge merge;
  for (const auto& file : *files) merge.add(file);
  std::deque<std::string> newest;  // at most options.lines
  while (auto line = merge.next()) {
    if (options.lines == 0) {
      print_line(*line, for_people);
      continue;
    }
    newest.push_back(std::move(*line));
    if (std::cmp_greater(newest.size(), options.lines)) newest.pop_front();
  }
  for (const std::string& line : newest) print_line(line, for_people);
  while (options.follow) {
    std::fflush(stdout);
    std::this_thread::sleep_for(kLookAgain);
    // Workers come and go.
    if (const auto now = stack::find_logs(directory, options.component)) {
      for (const auto& file : *now) merge.add(file);
    }
    while (const auto line = merge.next()) print_line(*line, for_people);
  }
  for (const std::string& rest : merge.take_rests()) print_line(rest, for_people);
  return kOk;
}

}  // namespace llorch::cli
