#include "cli/stack/log_pump.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

namespace llorch::cli::stack {
namespace {

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A child that writes more than the pipe and a file hold: all of it is there once it has ended, over several files.
TEST(LogPump, WhatAnEndedChildWroteIsInTheFiles) {
  const auto directory = std::filesystem::temp_directory_path() / ("llorch_log_pump_" + std::to_string(::getpid()));
  std::filesystem::remove_all(directory);
  const auto file = directory / "logs" / "d.log";
  constexpr int kLines = 50'000;
  {
    auto pump = LogPump::start(file, {.file_bytes_max = 256 << 10, .files_kept = 9});
    ASSERT_TRUE(pump);
    const pid_t child = ::fork();
    if (child == 0) {
      FILE* const out = ::fdopen((*pump)->write_fd(), "w");
      for (int i = 0; i < kLines; ++i) std::fprintf(out, "line %d\n", i);
      std::fclose(out);
      ::_exit(0);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  }
  std::string expected, found;
  for (int i = 0; i < kLines; ++i) expected += "line " + std::to_string(i) + "\n";
  for (int n = 9; n > 0; --n) found += content(file.string() + "." + std::to_string(n));
  EXPECT_NE(found, "");
  EXPECT_TRUE(found + content(file) == expected);
  std::filesystem::remove_all(directory);
}

// Whoever waits for a word of the child hears it on a full disk as well, for which a directory in the file's place stands.
TEST(LogPump, KeepsTheTailWithoutAFile) {
  const auto file =
      std::filesystem::temp_directory_path() / ("llorch_log_pump_" + std::to_string(::getpid())) / "d.log";
  std::filesystem::create_directories(file / "in-the-way");
  auto pump = LogPump::start(file);
  ASSERT_TRUE(pump);
  const std::string line = std::string(99, 'x') + "\n";
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(::write((*pump)->write_fd(), line.data(), line.size()), 100);
  ASSERT_EQ(::write((*pump)->write_fd(), "last\n", 5), 5);
  while (!(*pump)->tail().ends_with("last\n")) std::this_thread::yield();
  EXPECT_EQ((*pump)->tail().size(), std::size_t{64 << 10});
  std::filesystem::remove_all(file.parent_path());
}

// A process that would not end keeps the pipe open; its supervisor ends all the same.
TEST(LogPump, DoesNotWaitForAProcessThatStays) {
  const auto file =
      std::filesystem::temp_directory_path() / ("llorch_log_pump_" + std::to_string(::getpid())) / "d.log";
  auto pump = LogPump::start(file);
  ASSERT_TRUE(pump);
  const int stays = ::dup((*pump)->write_fd());
  ASSERT_EQ(::write(stays, "said\n", 5), 5);
  pump->reset();
  EXPECT_EQ(content(file), "said\n");
  ::close(stays);
  std::filesystem::remove_all(file.parent_path());
}

}  // namespace
}  // namespace llorch::cli::stack
