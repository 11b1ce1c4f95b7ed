#pragma once
// Text that others wrote, on its way to a terminal: a model, a server, a node or a file may say what a terminal obeys.
#include <fmt/core.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace llorch::cli {

// Of a text that comes in parts. Line ends and tabs stay; a carriage return is left out; every other control character (C0, DEL,
// C1) and every byte that is no UTF-8 is U+FFFD. One that is cut in two by the parts is one.
class TerminalText {
 public:
  // What can be shown; the beginning of a character waits for its rest.
  std::string feed(std::string_view part);
  // What has had no rest.
  std::string finish();

 private:
  std::string held_;
};

// As TerminalText, of a whole text.
std::string printable(std::string_view text);
// Of what stands in one line, as a cell of a table: every control character is a blank, line ends, too.
std::string without_controls(std::string_view text);

// The first `columns` characters of a line. Cuts none in two.
std::string cut(std::string_view line, std::size_t columns);
// Of the terminal that `fd` is; 0: it is none, or does not say.
std::size_t terminal_columns(int fd);
// A line that is drawn over itself: one as wide as the terminal would scroll it. `bar` is left out if not all fits. 0 columns: all of it.
std::string progress_line(std::string_view what, std::string_view bar, std::string_view facts, std::size_t columns);

// A word of a command that is shown to be typed: in quotes where a shell would take it apart.
std::string shell_word(std::string_view text);

// A model's answer on standard output: as TerminalText if a person reads it there, else byte for byte.
class AnswerOutput {
 public:
  // False: it cannot be written; errno says why.
  bool print(std::string_view part);
  bool finish();

 private:
  TerminalText text_;
};

// fmt::print for people: what is printed is printable(), whatever the arguments are.
template <class... Args>
void print_text(std::FILE* to, fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(to, "{}", printable(fmt::format(format, std::forward<Args>(args)...)));
}
template <class... Args>
void print_text(fmt::format_string<Args...> format, Args&&... args) {
  print_text(stdout, format, std::forward<Args>(args)...);
}

}  // namespace llorch::cli
