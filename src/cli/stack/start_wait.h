#pragma once
// The wait for a process that is being started. A start may take its time: a store is migrated, a lock is another process's.
#include <chrono>
#include <functional>

namespace llorch::cli::stack {

enum class StartOutcome { kReady, kEnded, kInterrupted };

struct StartWait {
  std::function<bool()> is_ready;
  std::function<bool()> has_ended;  // the process has, and is reaped; or the start has failed otherwise
  std::function<bool()> is_interrupted;
  std::function<void()> say_slow;  // once, after `slow_after`
  std::chrono::milliseconds slow_after{20'000};
};

// Asks until one of the three says so, as long as it takes.
StartOutcome wait_for_start(const StartWait& wait);

}  // namespace llorch::cli::stack
