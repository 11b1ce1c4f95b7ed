#include "cli/pager.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace llorch::cli {
namespace {

bool is_paging = false;

std::string pager_command() {
  for (const char* name : {"LLORCH_PAGER", "PAGER"}) {
    if (const char* const value = std::getenv(name)) return value;
  }
  return "less";
}

// Whether the shell would find the program that `command` begins with: what is written to one that is not there is lost.
bool is_there(const std::string& command) {
  const std::string program = command.substr(0, command.find(' '));
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  const char* const path = std::getenv("PATH");
  std::istringstream directories(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (::access((directory + '/' + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace

Pager::Pager(bool wanted) {
  if (!wanted || ::isatty(STDOUT_FILENO) == 0) return;
  const std::string command = pager_command();
  std::array<int, 2> pipe{};
  if (command.empty() || command == "cat" || !is_there(command) || ::pipe2(pipe.data(), O_CLOEXEC) != 0) return;
  std::fflush(stdout);
  child_ = ::fork();
  if (child_ == 0) {
    ::dup2(pipe[0], STDIN_FILENO);
    ::setenv("LESS", "FRX", 0);  // ends by itself if all fits; leaves the text on the screen
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  if (child_ > 0) {
    terminal_fd_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    ::dup2(pipe[1], STDOUT_FILENO);
    std::signal(SIGINT, SIG_IGN);  // it is the pager's
    is_paging = true;
  }
  ::close(pipe[0]);
  ::close(pipe[1]);
}

Pager::~Pager() {
  if (child_ <= 0) return;
  std::fflush(stdout);
  ::dup2(terminal_fd_, STDOUT_FILENO);  // closes the pipe: its end is the pager's
  ::close(terminal_fd_);
  is_paging = false;
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool prints_to_terminal() { return is_paging || ::isatty(STDOUT_FILENO) != 0; }

}  // namespace llorch::cli
