#include "base/run_command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace llorch::base {
namespace {

RunCommandOptions shell(std::string script) {
  return {.argv = {"/bin/sh", "-c", std::move(script)}, .environment = {"PATH=/usr/bin:/bin", "WORD=told"}};
}

TEST(RunCommand, SaysHowItEnded) {
  EXPECT_EQ(run_command(shell("exit 0")).value(), 0);
  EXPECT_EQ(run_command(shell("exit 7")).value(), 7);
  EXPECT_EQ(run_command(shell("kill -9 $$")).error().code, ErrorCode::kIoError);
  auto none = shell("");
  none.argv[0] = "/no/such/program";
  EXPECT_EQ(run_command(none).error().code, ErrorCode::kIoError);
}

TEST(RunCommand, HasItsEnvironmentDirectoryAndOutput) {
  const auto file = std::filesystem::temp_directory_path() / ("llorch_run_command_" + std::to_string(::getpid()));
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  auto options = shell("echo $WORD; pwd; cat; echo loud >&2; env | wc -l");
  options.directory = "/usr";
  options.output_fd = fd;
  EXPECT_EQ(run_command(options).value(), 0);
  ::close(fd);
  const std::string said = read_file(file, 4096).value();
  EXPECT_TRUE(said.starts_with("told\n/usr\nloud\n")) << said;
  std::filesystem::remove(file);
}

// What another thread does between the fork and the rest: takes the last file descriptors.
rlim_t open_files_behind_fork = RLIM_INFINITY;
void take_descriptors() {
  if (open_files_behind_fork == RLIM_INFINITY) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = open_files_behind_fork;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(RunCommand, WithoutAFileDescriptorLeft) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(::pthread_atfork(nullptr, take_descriptors, nullptr), 0);
  open_files_behind_fork = 0;
  const auto ended = run_command(shell("sleep 1000"));
  open_files_behind_fork = RLIM_INFINITY;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::kIoError);
  EXPECT_NE(ended.error().message.find("Too many open files"), std::string::npos) << ended.error().message;
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

// Whatever it started goes with it: the pipe ends when the last process that holds it does.
TEST(RunCommand, IsEndedWithItsChildren) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  auto options = shell("sleep 1000 & echo begun; wait");
  options.output_fd = ends[1];
  options.stop = [&, begun = std::string()]() mutable {
    char buffer[16];
    if (begun.empty()) begun.assign(buffer, static_cast<std::size_t>(::read(ends[0], buffer, sizeof buffer)));
    return begun == "begun\n";
  };
  EXPECT_EQ(run_command(options).error().code, ErrorCode::kCancelled);
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
  auto late = shell("sleep 1000");
  late.timeout_ms = 1;
  EXPECT_EQ(run_command(late).error().code, ErrorCode::kTimeout);
}

}  // namespace
}  // namespace llorch::base
