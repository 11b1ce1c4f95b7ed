#include "cli/stack/processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/process.h"

namespace llorch::cli::stack {
namespace {

class ProcessesTest : public testing::Test {
 protected:
  ProcessesTest()
      : directory_(std::filesystem::temp_directory_path() / ("llorch_processes_test_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(directory_ / "run");
  }
  ~ProcessesTest() override { std::filesystem::remove_all(directory_); }
  void record(const std::string& file, const std::string& text) { std::ofstream(directory_ / "run" / file) << text; }

  const std::filesystem::path directory_;
  const std::uint64_t own_ticks_ = base::process_start_ticks(::getpid()).value();
};

// A child that waits for signals; with `stubborn` it ignores SIGTERM. It says so through a pipe before it is used.
pid_t sleeper(bool stubborn) {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (stubborn) ::signal(SIGTERM, SIG_IGN);
    (void)!::write(ready[1], "r", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

int signal_that_ended(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST_F(ProcessesTest, OnlyRecordsOfLivingProcessesCount) {
  const std::string pid = std::to_string(::getpid());
  record("b.json", "{\"pid\":" + pid + ",\"start_ticks\":" + std::to_string(own_ticks_) + ",\"bind\":\"127.0.0.1:1\"}");
  record("a.json", "{\"pid\":" + pid + ",\"start_ticks\":" + std::to_string(own_ticks_) + "}");
  record("recycled.json", "{\"pid\":" + pid + ",\"start_ticks\":" + std::to_string(own_ticks_ + 1) + "}");
  record("gone.json", "{\"pid\":1073741823,\"start_ticks\":5}");
  record("huge.json", "{\"pid\":4294967297,\"start_ticks\":5}");
  record("group.json", "{\"pid\":-1,\"start_ticks\":5}");
  record("torn.json", "{\"pid\":");
  record("list.json", "[1]");
  record("other.txt", "{}");
  const auto found = running_processes(directory_);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "a");
  EXPECT_EQ(found[0].bind, "");
  EXPECT_EQ(found[1].name, "b");
  EXPECT_EQ(found[1].pid, ::getpid());
  EXPECT_EQ(found[1].start_ticks, own_ticks_);
  EXPECT_EQ(found[1].bind, "127.0.0.1:1");
  EXPECT_TRUE(running_processes(directory_ / "absent").empty());
}

TEST_F(ProcessesTest, StopEndsTheProcessItNames) {
  for (const bool stubborn : {false, true}) {
    const pid_t child = sleeper(stubborn);
    const RunningProcess process{.name = "x", .pid = child, .start_ticks = base::process_start_ticks(child).value()};
    // The stubborn one proves the second step; both deadlines are bounds, not expectations.
    const auto term = stubborn ? std::chrono::milliseconds(1) : std::chrono::milliseconds(60'000);
    EXPECT_TRUE(stop_process(process, {.terminate = term, .kill = std::chrono::milliseconds(60'000)}).has_value());
    EXPECT_EQ(signal_that_ended(child), stubborn ? SIGKILL : SIGTERM);
    EXPECT_TRUE(stop_process(process, {}).has_value());
  }
}

TEST_F(ProcessesTest, StopSparesAnotherProcessWithTheSamePid) {
  const pid_t child = sleeper(false);
  const auto ticks = base::process_start_ticks(child).value();
  EXPECT_TRUE(stop_process({.name = "x", .pid = child, .start_ticks = ticks - 1}, {}).has_value());
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);
  ::kill(child, SIGKILL);
  EXPECT_EQ(signal_that_ended(child), SIGKILL);
}

}  // namespace
}  // namespace llorch::cli::stack
