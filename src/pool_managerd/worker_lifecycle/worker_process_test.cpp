#include "pool_managerd/worker_lifecycle/worker_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "pool_managerd/worker_lifecycle/worker_log.h"

namespace llorch::pool_managerd::worker_lifecycle {
namespace {

base::Result<WorkerProcess> shell(const std::string& script,
                                  std::vector<std::pair<std::string, std::string>> env = {}) {
  return WorkerProcess::spawn({"/bin/sh", {"-c", script}, std::move(env)});
}

void wait_exit(const WorkerProcess& process) {
  pollfd waited{process.exit_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&waited, 1, 30'000), 1);
}

std::string output_of(const WorkerProcess& process) {
  std::string out;
  char buffer[4096];
  ssize_t got;
  while ((got = read(process.output_fd(), buffer, sizeof buffer)) > 0)
    out.append(buffer, static_cast<std::size_t>(got));
  return out;
}

std::string content(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST(WorkerProcess, OutputEnvironmentAndExitCode) {
  auto process = shell("cat; echo out $LLORCH_SPAWN_TOKEN; echo err >&2; exit 7", {{"LLORCH_SPAWN_TOKEN", "secret"}});
  ASSERT_TRUE(process) << process.error().message;
  wait_exit(*process);
  const std::string text = output_of(*process);
  EXPECT_NE(text.find("out secret"), std::string::npos);
  EXPECT_NE(text.find("err"), std::string::npos);
  const ExitFacts facts = process->reap();
  EXPECT_EQ(facts.exit_code, 7);
  EXPECT_FALSE(facts.signal);
}

// A worker's socket is open in it under the number that it is told, and nothing else of this process is.
TEST(WorkerProcess, KeepsOneDescriptorOpen) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const std::string other = std::to_string(fds[0]), kept = std::to_string(fds[1]);
  auto process = WorkerProcess::spawn(
      {"/bin/sh",
       {"-c", "echo through >/proc/self/fd/" + kept + "; test -e /proc/self/fd/" + other + " || exit 7"},
       {},
       fds[1]});
  ASSERT_TRUE(process) << process.error().message;
  close(fds[1]);
  char text[16] = {};
  EXPECT_EQ(read(fds[0], text, sizeof text), 8) << text;
  wait_exit(*process);
  EXPECT_EQ(process->reap().exit_code, 7);
  EXPECT_EQ(read(fds[0], text, sizeof text), 0) << "it went with the process";
  close(fds[0]);
}

// A child that writes as fast as it is read does not keep who reads.
TEST(WorkerProcess, OneReadIsAPipeFull) {
  constexpr std::size_t kMost = WorkerProcess::kOutputPipeBytes;
  auto process = shell("yes");
  ASSERT_TRUE(process);
  std::size_t bytes = 0;
  const auto wait_for_more = [&] {
    pollfd waited{process->output_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&waited, 1, 30'000), 1);
  };
  wait_for_more();
  EXPECT_TRUE(process->read_output([&](std::string_view text) {
    bytes += text.size();
    if (bytes > kMost) {
      process->kill_group();  // else this would not end
    } else {
      wait_for_more();
    }
  }));
  EXPECT_EQ(bytes, kMost);
  process->kill_group();
  wait_exit(*process);
  while (process->read_output([](std::string_view) {})) {
  }
}

// A worker that is killed breaks off its connections before it has ended, so orchestratord may ask in between.
TEST(WorkerProcess, ItIsKnownToEndBeforeItHasEnded) {
  EXPECT_FALSE(says_ending("17 (a) Z (b) S 1 17 17 0 -1 4194560 99 0 0"));
  EXPECT_TRUE(says_ending("17 (worker-orcd) R 1 17 17 0 -1 4194564 99 0 0")) << "PF_EXITING";
  EXPECT_TRUE(says_ending("17 (worker-orcd) Z 1 17 17 0 -1 4194560 99 0 0"));
  EXPECT_FALSE(says_ending("")) << "without /proc";
  auto waits = shell("exec sleep 1000");
  ASSERT_TRUE(waits);
  EXPECT_FALSE(waits->is_ending());
  waits->kill_group();
  wait_exit(*waits);
  EXPECT_TRUE(waits->is_ending()) << "a zombie that nobody has collected yet";
}

// WLIFE-10040: SIGKILL reaches the whole group, so nothing of a worker survives it.
TEST(WorkerProcess, KillReachesTheGroup) {
  auto process = shell("sleep 1000 & echo $!; wait");
  ASSERT_TRUE(process);
  pollfd waited{process->output_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&waited, 1, 30'000), 1);
  const int grandchild = std::stoi(output_of(*process));
  process->kill_group();
  wait_exit(*process);
  const ExitFacts facts = process->reap();
  EXPECT_EQ(facts.signal, SIGKILL);
  EXPECT_EQ(facts.exit_code, 137);
  // It is gone, or a zombie that its new parent has yet to collect.
  std::string state = content("/proc/" + std::to_string(grandchild) + "/stat");
  for (int i = 0; i < 500 && !state.empty() && state.find(") Z ") == std::string::npos; ++i) {
    usleep(10'000);
    state = content("/proc/" + std::to_string(grandchild) + "/stat");
  }
  EXPECT_TRUE(state.empty() || state.find(") Z ") != std::string::npos) << state;
}

// The parent's blocked signals are not inherited: a worker must hear SIGTERM.
TEST(WorkerProcess, HearsSigterm) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  auto process = shell("exec sleep 1000");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(process);
  process->terminate();
  wait_exit(*process);
  EXPECT_EQ(process->reap().signal, SIGTERM);
}

TEST(WorkerProcess, MissingProgramIsAnError) {
  const auto missing = WorkerProcess::spawn({"/nonexistent/worker-orcd", {}, {}});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, base::ErrorCode::kWorkerStartFailed);
  EXPECT_NE(missing.error().message.find("worker_binary"), std::string::npos);
  EXPECT_EQ(WorkerProcess::spawn({"/etc/passwd", {}, {}}).error().code, base::ErrorCode::kWorkerStartFailed);
}

TEST(WorkerProcess, DestructorLeavesNoProcess) {
  int pid = 0;
  {
    auto process = shell("exec sleep 1000");
    ASSERT_TRUE(process);
    pid = process->pid();
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

struct LogDirectory : testing::Test {
  std::filesystem::path directory = std::filesystem::temp_directory_path() / ("llorch-log-" + std::to_string(getpid()));
  void SetUp() override { std::filesystem::create_directories(directory); }
  void TearDown() override { std::filesystem::remove_all(directory); }
};

TEST_F(LogDirectory, FileIsCappedAndTailKept) {
  const auto file = directory / "worker-a.log";
  WorkerLog log(file, {.file = {.file_bytes_max = 100, .files_kept = 1}, .tail_lines_max = 2, .line_bytes_max = 10});
  for (int i = 0; i < 50; ++i) log.append("line " + std::to_string(i) + "\n");
  log.append("a very long ");
  log.append("line\n");
  EXPECT_LE(std::filesystem::file_size(file), 100u);
  EXPECT_LE(std::filesystem::file_size(file.string() + ".1"), 100u);
  EXPECT_EQ(log.tail(), "line 49\na very lon\n");
  EXPECT_NE(content(file).find("a very long line"), std::string::npos);
}

TEST_F(LogDirectory, OldLogsAreRemoved) {
  for (int i = 0; i < 5; ++i) {
    const auto file = directory / ("worker-" + std::to_string(i) + ".log");
    std::ofstream(file) << i;
    std::ofstream(file.string() + ".1") << i;
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(i));
  }
  std::ofstream(directory / "other.log") << "x";
  prune_worker_logs(directory, 2);
  EXPECT_FALSE(std::filesystem::exists(directory / "worker-2.log"));
  EXPECT_FALSE(std::filesystem::exists(directory / "worker-2.log.1"));
  EXPECT_TRUE(std::filesystem::exists(directory / "worker-3.log"));
  EXPECT_TRUE(std::filesystem::exists(directory / "worker-4.log.1"));
  EXPECT_TRUE(std::filesystem::exists(directory / "other.log"));
}

}  // namespace
}  // namespace llorch::pool_managerd::worker_lifecycle
