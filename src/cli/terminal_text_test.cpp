#include "cli/terminal_text.h"

#include <gtest/gtest.h>

namespace llorch::cli {
namespace {

TEST(TerminalText, NothingThatATerminalObeysIsLeft) {
  EXPECT_EQ(printable("a\x1b]52;c;aGk=\x07z"), "a\uFFFD]52;c;aGk=\uFFFDz");
  EXPECT_EQ(printable("a\u009b2Jz\x7f\b"), "a\uFFFD2Jz\uFFFD\uFFFD");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\uFFFD");
  EXPECT_EQ(printable("\x9b"
                      "2J"),
            "\uFFFD2J");
  for (unsigned char c = 0; c < 0xA0; ++c) {
    if (c >= 0x20 && c < 0x7F) continue;
    std::string text = c < 0x80 ? std::string(1, static_cast<char>(c)) : std::string("\xC2") + static_cast<char>(c);
    const bool stays = c == '\n' || c == '\t';
    EXPECT_EQ(printable(text) == text, stays) << int{c};
    EXPECT_EQ(without_controls(text), " ") << int{c};
  }
}

TEST(TerminalText, TextStaysAsItIs) {
  EXPECT_EQ(printable("one\n\ttwo \u00e4 \u4f60 \U0001F600\u00a0"), "one\n\ttwo \u00e4 \u4f60 \U0001F600\u00a0");
  EXPECT_EQ(printable("one\r\ntwo\rthree"), "one\ntwothree");
  EXPECT_EQ(without_controls("a\nfaked line"), "a faked line");
}

TEST(ProgressLine, IsNarrowerThanItsTerminal) {
  const std::string name(60, 'n');
  EXPECT_EQ(progress_line("writing ", "[##..] ", "half", 20), "writing [##..] half");
  EXPECT_EQ(progress_line("writing ", "[##..] ", "half", 19), "writing half");
  EXPECT_EQ(progress_line("writing \u4f60: ", "[##..] ", "half", 23), "writing \u4f60: [##..] half");
  EXPECT_EQ(progress_line(name, "[##..] ", name, 128), name + "[##..] " + name);
  EXPECT_EQ(progress_line(name, "[##..] ", name, 127), name + name) << "the facts are not cut for the bar";
  EXPECT_EQ(progress_line(name, "[##..] ", name, 100), cut(name + name, 99));
  EXPECT_EQ(progress_line(name, "[##..] ", name, 0), name + "[##..] " + name);
  EXPECT_EQ(cut("\u00e4\u4f60x", 2), "\u00e4\u4f60");
}

TEST(ShellWord, HasQuotesWhereItNeedsThem) {
  EXPECT_EQ(shell_word("/tmp/state-1.0"), "/tmp/state-1.0");
  EXPECT_EQ(shell_word("a state"), "'a state'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
  EXPECT_EQ(shell_word("~"), "'~'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(TerminalText, ACharacterMayComeInTwoParts) {
  TerminalText text;
  EXPECT_EQ(text.feed("a\xC2"), "a");
  EXPECT_EQ(text.feed("\x9B"
                      "2J"),
            "\uFFFD2J");
  EXPECT_EQ(text.feed("\xE4\xBD"), "");
  EXPECT_EQ(text.feed("\xA0"), "\u4f60");
  EXPECT_EQ(text.finish(), "");
  EXPECT_EQ(text.feed("\xC2"), "");
  EXPECT_EQ(text.finish(), "\uFFFD");
  EXPECT_EQ(text.finish(), "");
}

}  // namespace
}  // namespace llorch::cli
