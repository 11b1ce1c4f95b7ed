#include "cli/stack/start_wait.h"

#include <gtest/gtest.h>

namespace llorch::cli::stack {
namespace {

// All three come after what is said, which is said once.
struct Slow {
  int said = 0, asked = 0;
  StartWait wait{.is_ready = [] { return false; },
                 .has_ended = [] { return false; },
                 .is_interrupted = [] { return false; },
                 .say_slow = [this] { ++said; },
                 .slow_after = std::chrono::milliseconds(0)};
  bool after_what_is_said() { return said > 0 && ++asked == 3; }
};

TEST(StartWait, OutlastsASlowStartAndSaysSoOnce) {
  Slow slow;
  slow.wait.is_ready = [&] { return slow.after_what_is_said(); };
  EXPECT_EQ(wait_for_start(slow.wait), StartOutcome::kReady);
  EXPECT_EQ(slow.said, 1);
}

TEST(StartWait, EndsWithTheProcessOrASignal) {
  Slow ended;
  ended.wait.has_ended = [&] { return ended.after_what_is_said(); };
  EXPECT_EQ(wait_for_start(ended.wait), StartOutcome::kEnded);
  Slow interrupted;
  interrupted.wait.is_interrupted = [&] { return interrupted.after_what_is_said(); };
  EXPECT_EQ(wait_for_start(interrupted.wait), StartOutcome::kInterrupted);
}

TEST(StartWait, SaysNothingOfAQuickStart) {
  Slow quick;
  quick.wait.is_ready = [] { return true; };
  EXPECT_EQ(wait_for_start(quick.wait), StartOutcome::kReady);
  EXPECT_EQ(quick.said, 0);
}

}  // namespace
}  // namespace llorch::cli::stack
