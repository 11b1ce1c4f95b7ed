#include "cli/stack/processes.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

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

TEST_F(ProcessesTest, AReloadIsAskedOfTheProcessItNamesAlone) {
  const pid_t child = sleeper(false);
  const auto ticks = base::process_start_ticks(child).value();
  EXPECT_EQ(ask_to_reload({.name = "x", .pid = child, .start_ticks = ticks - 1}).error().code,
            base::ErrorCode::kUnreachable);
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);
  EXPECT_TRUE(ask_to_reload({.name = "x", .pid = child, .start_ticks = ticks}));
  EXPECT_EQ(signal_that_ended(child), SIGHUP) << "the sleeper has no configuration";
}

TEST_F(ProcessesTest, ADirectoryThatCannotBeReadIsNoEmptyOne) {
  EXPECT_TRUE(check_records(directory_));
  EXPECT_TRUE(check_records(directory_ / "absent"));
  // Root opens everything but what is no directory.
  std::ofstream(directory_ / "file") << "x";
  std::filesystem::create_directory(directory_ / "state");
  std::ofstream(directory_ / "state/run") << "x";
  EXPECT_EQ(check_records(directory_ / "file").error().code, base::ErrorCode::kIoError);
  EXPECT_EQ(check_records(directory_ / "state").error().code, base::ErrorCode::kIoError);
}

constexpr uid_t kNobody = 65534;

bool become_nobody() {
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
         ::setresuid(kNobody, kNobody, kNobody) == 0;
}

// Exit status of `look`, run by nobody with a /proc that hides whom it may not trace; 77: such a /proc cannot be had here.
int under_hidepid(const std::function<int()>& look) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("proc", "/proc", "proc", 0, "hidepid=2") != 0 || !become_nobody()) {
      ::_exit(77);
    }
    ::_exit(look());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(ProcessesTest, ADaemonThatProcHidesRunsUntilItEnds) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can have a /proc of its own";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t daemon = ::fork();
  if (daemon == 0) {
    const bool hidden = become_nobody() && ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
    (void)!::write(ready[1], hidden ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char hidden = 0;
  EXPECT_EQ(::read(ready[0], &hidden, 1), 1);
  EXPECT_EQ(hidden, 'y');
  const RunningProcess process{
      .name = "d", .pid = daemon, .start_ticks = base::process_start_ticks(daemon).value(), .bind = ""};
  record("d.json",
         "{\"pid\":" + std::to_string(daemon) + ",\"start_ticks\":" + std::to_string(process.start_ticks) + "}");
  // Bit 0: /proc hides it. Bit 1: it runs all the same.
  const auto look = [&] {
    return (base::process_start_ticks(daemon) ? 0 : 1) + (running_processes(directory_).empty() ? 0 : 2);
  };
  const int while_it_runs = under_hidepid(look);
  const bool can_be_had =
      while_it_runs != 77 && while_it_runs != 2;  // before Linux 5.8 all of a machine share one /proc
  if (can_be_had) {
    EXPECT_EQ(while_it_runs, 3);
    EXPECT_EQ(under_hidepid([&] { return stop_process(process, {}) ? 0 : 1; }), 0);
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(daemon), &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(info.si_status, SIGTERM);
    EXPECT_EQ(under_hidepid(look), 1) << "it has ended and is not reaped";
  }
  ::kill(daemon, SIGKILL);
  EXPECT_EQ(::waitpid(daemon, nullptr, 0), daemon);
  if (!can_be_had) GTEST_SKIP() << "no /proc of its own can be mounted here";
}

}  // namespace
}  // namespace llorch::cli::stack
