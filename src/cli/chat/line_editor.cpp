#include "cli/chat/line_editor.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <utility>

namespace llorch::cli::chat {
namespace {

constexpr int kHistoryLines = 1000;
constexpr int kLookEveryMs = 100;

LineEditor* self(EditLine* editor) {
  void* data = nullptr;
  el_get(editor, EL_CLIENTDATA, &data);
  return static_cast<LineEditor*>(data);
}

}  // namespace

LineEditor::LineEditor(std::function<int()> signal) : signal_(std::move(signal)) {
  if (isatty(STDIN_FILENO) == 0) return;
  std::setlocale(LC_CTYPE, "");
  // What is typed is UTF-8, which a locale of one byte a character does not read.
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  editor_ = el_init("llorch", stdin, stdout, stderr);
  if (editor_ == nullptr) return;
  history_ = history_init();
  HistEvent event;
  history(history_, &event, H_SETSIZE, kHistoryLines);
  history(history_, &event, H_SETUNIQUE, 1);
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_HIST, history, history_);
  el_set(editor_, EL_EDITOR, "emacs");
  el_set(editor_, EL_PROMPT, shown_prompt);
  el_set(editor_, EL_GETCFN, next_character);
  // Keys, not signals, while a line is edited: signals are blocked in all threads.
  el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
  el_set(editor_, EL_ADDFN, "cancel-line", "drop what is typed", cancel);
  el_set(editor_, EL_BIND, "^C", "cancel-line", nullptr);
  el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() {
  if (history_ != nullptr) history_end(history_);
  if (editor_ != nullptr) el_end(editor_);
}

std::optional<LineEditor::Line> LineEditor::read(const std::string& prompt) {
  if (editor_ == nullptr) return read_pipe();
  Line line;
  prompt_ = prompt;
  cancelled_ = false;
  el_set(editor_, EL_PREP_TERM, 1);  // first: a key typed when the prompt is seen is a key already
  int count = 0;
  const char* text = el_gets(editor_, &count);
  if (text == nullptr || count <= 0) return std::nullopt;
  line.text.assign(text, static_cast<std::size_t>(count));
  if (line.text.ends_with('\n')) line.text.pop_back();
  line.cancelled = cancelled_;
  return line;
}

std::optional<LineEditor::Line> LineEditor::read_pipe() {
  while (true) {
    if (const std::size_t end = unread_.find('\n'); end != std::string::npos) {
      Line line{.text = unread_.substr(0, end)};
      unread_.erase(0, end + 1);
      return line;
    }
    char bytes[4096];
    const ssize_t count = wait_for_input() == 0 ? ::read(STDIN_FILENO, bytes, sizeof bytes) : 0;
    if (count > 0) {
      unread_.append(bytes, static_cast<std::size_t>(count));
    } else if (unread_.empty()) {
      return std::nullopt;
    } else {
      return Line{.text = std::exchange(unread_, {})};  // a last line without a line break
    }
  }
}

// The signal that came first, or 0: there is input.
int LineEditor::wait_for_input() const {
  while (true) {
    if (const int signal = signal_(); signal != 0) return signal;
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = poll(&input, 1, kLookEveryMs);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return 0;
  }
}

void LineEditor::remember(const std::string& text) {
  HistEvent event;
  if (history_ != nullptr && !text.empty()) history(history_, &event, H_ENTER, text.c_str());
}

// 1 with a character, 0 at the end of the input.
int LineEditor::next_character(EditLine* editor, wchar_t* out) {
  std::mbstate_t state{};
  while (true) {
    const int signal = self(editor)->wait_for_input();
    if (signal == SIGINT) {  // typed before the terminal gave keys
      self(editor)->cancelled_ = true;
      *out = L'\n';
      return 1;
    }
    char byte = 0;
    if (signal != 0 || ::read(STDIN_FILENO, &byte, 1) != 1) return 0;
    const std::size_t used = std::mbrtowc(out, &byte, 1, &state);
    if (used <= 1) return 1;
    if (used == static_cast<std::size_t>(-1)) state = {};  // a byte of no character
  }
}

unsigned char LineEditor::cancel(EditLine* editor, int) {
  self(editor)->cancelled_ = true;
  std::fputs("^C", stdout);
  return CC_NEWLINE;
}

char* LineEditor::shown_prompt(EditLine* editor) { return self(editor)->prompt_.data(); }

}  // namespace llorch::cli::chat
