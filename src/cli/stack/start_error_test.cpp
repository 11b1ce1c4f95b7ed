#include "cli/stack/start_error.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace llorch::cli::stack {
namespace {

using base::ErrorCode;

base::Error error_of(int exit_status, std::string tail) {
  return start_error(
      {.name = "pool-managerd", .exit_status = exit_status, .log_tail = std::move(tail), .log_path = "/l"});
}

TEST(StartError, TheDaemonsOwnCodeWins) {
  const auto event = error_of(4, R"({"level":"error","human":"old","error_code":"PORT_IN_USE"})"
                                 "\n"
                                 R"({"level":"error","human":"no GPU here","error_code":"NO_GPU"})"
                                 "\n"
                                 R"({"level":"info","human":"bye"})"
                                 "\n");
  EXPECT_EQ(event.code, ErrorCode::kNoGpu);
  EXPECT_EQ(event.message, "pool-managerd did not start: no GPU here");
  const auto plain = error_of(2, "pool-managerd: CONFIG_INVALID: c.yaml: bad: value\n");
  EXPECT_EQ(plain.code, ErrorCode::kConfigInvalid);
  EXPECT_EQ(plain.message, "pool-managerd did not start: c.yaml: bad: value");
  EXPECT_EQ(error_of(4, "pool-managerd: NON_LOOPBACK_WITHOUT_TOKEN: x\n").code, ErrorCode::kNonLoopbackWithoutToken);
}

TEST(StartError, WithoutACodeTheExitStatusSpeaks) {
  EXPECT_EQ(error_of(2, "unknown option --x\n").code, ErrorCode::kConfigInvalid);
  EXPECT_EQ(error_of(2, "unknown option --x\n").message, "pool-managerd did not start (exit 2): unknown option --x");
  EXPECT_EQ(error_of(4, "").code, ErrorCode::kForbidden);
  EXPECT_EQ(error_of(1, "pool-managerd: NO_SUCH_CODE: x\n").code, ErrorCode::kIoError);
  EXPECT_EQ(error_of(139, "{\"torn").message, "pool-managerd did not start (signal 11): see /l");
  EXPECT_EQ(error_of(1, R"({"level":"error","human":"x"})").message, "pool-managerd did not start (exit 1): see /l");
}

TEST(StartError, ADaemonWithoutARecordSaysWhy) {
  const std::string other = R"({"level":"info","event":"startup","human":"run_file.failed","error":"no"})"
                            "\n";
  EXPECT_FALSE(record_error("pool-managerd", ""));
  EXPECT_FALSE(record_error("pool-managerd", other));
  EXPECT_FALSE(record_error("pool-managerd", other + R"({"event":"run_file.failed","err)")) << "a line under way";
  const auto error =
      record_error("pool-managerd", other + R"({"level":"error","event":"run_file.failed","error":"cannot write X"})"
                                            "\n");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kIoError);
  EXPECT_EQ(error->message, "pool-managerd did not start: it cannot record where it listens: cannot write X");
}

TEST(StartError, OnlyThisRunsPartOfTheLogIsRead) {
  const auto path = std::filesystem::temp_directory_path() / ("llorch_start_error_" + std::to_string(::getpid()));
  std::ofstream(path) << "old\nnew\n";
  EXPECT_EQ(read_log_tail(path, 4), "new\n");
  EXPECT_EQ(read_log_tail(path, 8), "");
  EXPECT_EQ(read_log_tail(path, 99), "old\nnew\n");
  std::ofstream(path, std::ios::app) << std::string(100'000, 'x');
  EXPECT_EQ(read_log_tail(path, 0), std::string(64 << 10, 'x'));
  std::filesystem::remove(path);
  EXPECT_EQ(read_log_tail(path, 0), "");
}

}  // namespace
}  // namespace llorch::cli::stack
