#include "cli/stack/start_wait.h"

#include <thread>

namespace llorch::cli::stack {
namespace {
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kAskEvery{10};
}  // namespace

StartOutcome wait_for_start(const StartWait& wait) {
  const auto slow_at = Clock::now() + wait.slow_after;
  for (bool said = false;;) {
    if (wait.is_ready()) return StartOutcome::kReady;
    if (wait.has_ended()) return StartOutcome::kEnded;
    if (wait.is_interrupted()) return StartOutcome::kInterrupted;
    if (!said && Clock::now() >= slow_at) {
      said = true;
      wait.say_slow();
    }
    std::this_thread::sleep_for(kAskEvery);
  }
}

}  // namespace llorch::cli::stack
