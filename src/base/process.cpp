#include "base/process.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <charconv>
#include <filesystem>

#include "base/assert.h"
#include "base/file.h"

namespace llorch::base {
namespace {
sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}
sigset_t stop_and_reload_signals() {
  sigset_t set = stop_signals();
  sigaddset(&set, SIGHUP);
  return set;
}

void block(const sigset_t& set) {
  ASSERT(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signal(SIGPIPE, SIG_IGN);
}
int wait_for(const sigset_t& set) {
  int number = 0;
  ASSERT(sigwait(&set, &number) == 0);
  return number;
}
}  // namespace

void harden_process() {
  const rlimit none{0, 0};
  ASSERT(setrlimit(RLIMIT_CORE, &none) == 0);
  ASSERT(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
}

void block_stop_signals() { block(stop_signals()); }
int wait_for_stop_signal() { return wait_for(stop_signals()); }
void block_stop_and_reload_signals() { block(stop_and_reload_signals()); }
int wait_for_stop_or_reload_signal() { return wait_for(stop_and_reload_signals()); }

Result<std::uint64_t> process_start_ticks(int pid) {
  const std::string stat = TRY(read_file(fmt::format("/proc/{}/stat", pid), 4096));
  const auto malformed = [&] { return fail(ErrorCode::kIoError, fmt::format("/proc/{}/stat is malformed", pid)); };
  // The second field is the command in parentheses and may itself hold spaces and parentheses.
  std::size_t at = stat.rfind(')');
  if (at == std::string::npos || at + 2 >= stat.size()) return malformed();
  if (const char state = stat[at + 2]; state == 'Z' || state == 'X') {
    return fail(ErrorCode::kIoError, fmt::format("process {} has ended", pid));
  }
  for (int field = 2; field < 22; ++field) {
    at = stat.find(' ', at + 1);
    if (at == std::string::npos) return malformed();
  }
  std::uint64_t ticks = 0;
  const auto [last, error] = std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), ticks);
  if (error != std::errc() || last == stat.data() + stat.size() || *last != ' ') return malformed();
  return ticks;
}

std::string executable_directory() {
  std::error_code ec;
  return std::filesystem::read_symlink("/proc/self/exe", ec).parent_path().string();
}

}  // namespace llorch::base
