#include "cli/terminal_text.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cctype>

#include "base/utf8.h"
#include "cli/pager.h"

namespace llorch::cli {
namespace {

// Escape sequences of a terminal begin with one of these: C0, DEL and C1 (in UTF-8 C2 80 to C2 9F).
bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }

// Appends to `out` what may be shown of `text`; `replace` says what stands for a control character. Returns the beginning of a
// character that has no end yet.
template <class Replace>
std::string_view append_shown(std::string& out, std::string_view text, const Replace& replace) {
  while (!text.empty()) {
    const base::Utf8Step step = base::next_code_point(text);
    if (step.status == base::Utf8Status::kIncomplete) break;
    if (step.status == base::Utf8Status::kInvalid) {
      out += base::kReplacementCharacter;
    } else {
      out += is_control(step.code_point) ? replace(step.code_point) : text.substr(0, step.bytes);
    }
    text.remove_prefix(step.bytes);
  }
  return text;
}

std::string_view in_text(char32_t control) {
  switch (control) {
    case '\n': return "\n";
    case '\t': return "\t";
    case '\r': return "";
    default: return base::kReplacementCharacter;
  }
}

bool write(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

}  // namespace

std::string TerminalText::feed(std::string_view part) {
  held_ += part;
  std::string out;
  held_ = std::string(append_shown(out, held_, in_text));
  return out;
}

std::string TerminalText::finish() {
  return std::exchange(held_, {}).empty() ? std::string() : std::string(base::kReplacementCharacter);
}

std::string printable(std::string_view text) {
  TerminalText all;
  std::string out = all.feed(text);
  return out += all.finish();
}

std::string without_controls(std::string_view text) {
  std::string out;
  const bool is_cut = !append_shown(out, text, [](char32_t) { return std::string_view(" "); }).empty();
  if (is_cut) out += base::kReplacementCharacter;
  return out;
}

std::string cut(std::string_view line, std::size_t columns) {
  std::size_t at = 0, count = 0;
  for (; at < line.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(line[at]) & 0xC0) != 0x80;
    if (begins && count++ == columns) break;
  }
  return std::string(line.substr(0, at));
}

std::size_t terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string progress_line(std::string_view what, std::string_view bar, std::string_view facts, std::size_t columns) {
  const std::string line = fmt::format("{}{}{}", what, bar, facts);
  if (columns == 0 || cut(line, columns - 1) == line) return line;
  return cut(fmt::format("{}{}", what, facts), columns - 1);
}

std::string shell_word(std::string_view text) {
  const bool is_plain = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_@%+=:,./-").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (is_plain) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

bool AnswerOutput::print(std::string_view part) {
  return write(prints_to_terminal() ? text_.feed(part) : std::string(part));
}

bool AnswerOutput::finish() { return write(text_.finish()); }

}  // namespace llorch::cli
