#include "pool_managerd/worker_lifecycle/failure.h"

#include <gtest/gtest.h>

namespace llorch::pool_managerd::worker_lifecycle {
namespace {

using base::ErrorCode;
using wire::FailureCategory;

// ERROPS-16040, POOL-2043: category and code of every way to leave.
TEST(Classify, EveryWay) {
  const ExitFacts killed{.exit_code = 137, .signal = 9};
  const ExitFacts clean{.exit_code = 0};
  const ExitFacts failed{.exit_code = 1};
  const auto is = [](const Failure& f, FailureCategory category, std::string_view code) {
    EXPECT_EQ(f.category, category);
    EXPECT_EQ(f.error_code, code);
    EXPECT_FALSE(f.message.empty());
  };
  is(classify(clean, Cause::kStop, false), FailureCategory::kExplicitStop, "");
  is(classify(killed, Cause::kStop, false), FailureCategory::kExplicitStop, "");
  is(classify(clean, Cause::kDrain, false), FailureCategory::kExplicitStop, "");
  is(classify(killed, Cause::kStartTimeout, true), FailureCategory::kTimeout, "WORKER_START_TIMEOUT");
  is(classify(killed, Cause::kHang, false), FailureCategory::kHang, "WORKER_TIMEOUT");
  is(classify(killed, Cause::kDeviceLost, false), FailureCategory::kCrash, "GPU_UNAVAILABLE");
  is(classify(killed, Cause::kWrongDigest, false), FailureCategory::kCrash, "WORKER_RESET");
  is(classify(failed, Cause::kNone, true), FailureCategory::kCrash, "WORKER_START_FAILED");
  is(classify(clean, Cause::kNone, false), FailureCategory::kCrash, "WORKER_RESET");
  is(classify(killed, Cause::kNone, false), FailureCategory::kCrash, "WORKER_RESET");
}

// ORCH-3039#told-apart: host memory and device memory are told apart.
TEST(Classify, MemoryShortages) {
  const auto host = classify({.exit_code = 137, .signal = 9, .host_oom_kill = true}, Cause::kNone, false);
  EXPECT_EQ(host.category, FailureCategory::kOom);
  EXPECT_NE(host.message.find("host memory"), std::string::npos);
  const auto start = classify({.exit_code = 1, .logged_code = ErrorCode::kInsufficientVram}, Cause::kNone, true);
  EXPECT_EQ(start.category, FailureCategory::kOom);
  EXPECT_EQ(start.error_code, "INSUFFICIENT_VRAM");
  const auto load = classify({.exit_code = 1, .logged_code = ErrorCode::kModelLoadFailed}, Cause::kNone, true);
  EXPECT_EQ(load.category, FailureCategory::kCrash);
  EXPECT_EQ(load.error_code, "MODEL_LOAD_FAILED");
  // Once ready, what a client sees is the loss of the worker; an old error line does not explain it.
  EXPECT_EQ(classify({.exit_code = 1, .logged_code = ErrorCode::kModelLoadFailed}, Cause::kNone, false).error_code,
            "WORKER_RESET");
}

TEST(LoggedErrorCode, LastErrorEventWins) {
  EXPECT_EQ(logged_error_code(R"({"event":"error","code":"IO_ERROR"}
{"event":"error","human":"x","code":"MODEL_LOAD_FAILED"}
{"event":"execute_end","code":"CANCELLED"}
{"event":"listening"}
)"),
            ErrorCode::kModelLoadFailed);
  EXPECT_FALSE(logged_error_code(R"({"event":"execute_end","code":"CANCELLED"})"));
  EXPECT_FALSE(logged_error_code(R"({"event":"error","code":"NO_SUCH_CODE"})"));
  EXPECT_FALSE(logged_error_code(R"({"event":"error","code":")"));
  EXPECT_FALSE(logged_error_code(""));
}

}  // namespace
}  // namespace llorch::pool_managerd::worker_lifecycle
