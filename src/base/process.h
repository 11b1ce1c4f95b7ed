#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace llorch::base {

// Allows no core files and no ptrace by others: prompts live in this process's memory.
void harden_process();

// Blocks SIGINT and SIGTERM in every later thread and SIGPIPE everywhere; call first in main.
void block_stop_signals();
// Waits for SIGINT or SIGTERM; returns the signal's number. REQUIRES block_stop_signals().
int wait_for_stop_signal();
// The same of SIGHUP as well, which asks a daemon to read its configuration anew. Both or neither.
void block_stop_and_reload_signals();
int wait_for_stop_or_reload_signal();

// Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat): with the pid it names one process
// for ever. IO_ERROR if there is no such process or it has ended and only waits to be reaped.
Result<std::uint64_t> process_start_ticks(int pid);

// Directory of the running executable, where its sibling binaries are.
std::string executable_directory();

}  // namespace llorch::base
