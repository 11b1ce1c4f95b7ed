#pragma once
// Lines from a terminal, with editing and a history that lives as long as the process, or from a pipe.
#include <histedit.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace llorch::cli::chat {

class LineEditor {
 public:
  // `signal` is asked a few times a second for a signal that has come since it was asked last, 0 for none. SIGINT at a terminal
  // drops the line, as the key does; any other ends the input.
  explicit LineEditor(std::function<int()> signal);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  struct Line {
    std::string text;        // without its line break
    bool cancelled = false;  // Ctrl-C: `text` is to be dropped
  };
  // Absent: the input has ended. `prompt` is shown on a terminal alone.
  std::optional<Line> read(const std::string& prompt);
  // What the arrow keys bring back; kept in memory, nowhere else.
  void remember(const std::string& text);

  bool on_terminal() const { return editor_ != nullptr; }

 private:
  std::optional<Line> read_pipe();
  int wait_for_input() const;
  static int next_character(EditLine* editor, wchar_t* out);
  static unsigned char cancel(EditLine* editor, int key);
  static char* shown_prompt(EditLine* editor);

  const std::function<int()> signal_;
  EditLine* editor_ = nullptr;  // null: standard input is no terminal
  History* history_ = nullptr;
  std::string prompt_;
  std::string unread_;  // of a pipe
  bool cancelled_ = false;
};

}  // namespace llorch::cli::chat
