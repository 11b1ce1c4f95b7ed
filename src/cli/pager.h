#pragma once
// Long output on a terminal, a screen at a time.
#include <sys/types.h>

namespace llorch::cli {

// While it lives, standard output goes through the user's pager: $LLORCH_PAGER, else $PAGER, else less, which leaves what fits a screen
// as it is. Nothing happens if standard output is no terminal, or if there is no such program; "" and "cat" mean none. One at a
// time; the process stops when the reader quits it.
class Pager {
 public:
  explicit Pager(bool wanted);
  // Waits until the reader has seen enough.
  ~Pager();
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

 private:
  int terminal_fd_ = -1;  // standard output of before
  pid_t child_ = -1;
};

// Whether a person reads standard output, behind a pager or not.
bool prints_to_terminal();

}  // namespace llorch::cli
