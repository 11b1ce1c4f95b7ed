#include "base/log_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "base/assert.h"
#include "base/log_limiter.h"
#include "base/testing/full_disk.h"

namespace llorch::base {
namespace {

constexpr std::chrono::milliseconds kLong{60'000};
constexpr std::chrono::milliseconds kNow{0};

LogRecord record(std::string event) {
  return {.level = LogLevel::kInfo, .unix_ms = 0, .event = std::move(event), .human = "", .fields = {}};
}

// The events of a text of log lines, in order; log.dropped with its count. Lines that are no log lines stand as they are.
std::vector<std::string> events_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream lines(text);
  const auto after = [](const std::string& line, const std::string& key) {
    const std::size_t at = line.find(key);
    return at == std::string::npos
               ? std::string()
               : line.substr(at + key.size(), line.find_first_of("\"}", at + key.size()) - at - key.size());
  };
  for (std::string line; std::getline(lines, line);) {
    const std::string event = after(line, "\"event\":\"");
    out.push_back(event.empty()            ? line
                  : event == "log.dropped" ? "dropped " + after(line, "\"lines_dropped\":")
                                           : event);
  }
  return out;
}

std::vector<std::string> numbered(const std::string& name, int count) {
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.push_back(name + std::to_string(i));
  return out;
}

// A pipe that is full, so that whoever writes to it waits until the test reads.
class FullPipe {
 public:
  FullPipe() {
    EXPECT_EQ(::pipe(fds_), 0);
    ::fcntl(fds_[1], F_SETPIPE_SZ, 4096);
    const std::string filler(static_cast<std::size_t>(::fcntl(fds_[1], F_GETPIPE_SZ)) - 1, '.');
    EXPECT_EQ(::write(fds_[1], (filler + "\n").data(), filler.size() + 1), static_cast<ssize_t>(filler.size() + 1));
  }
  ~FullPipe() {
    close_reader();
    close_writer();
  }
  int writer() const { return fds_[1]; }
  void close_reader() { close(0); }
  void close_writer() { close(1); }
  // What was written, up to `lines` lines behind the filling.
  std::vector<std::string> read_lines(std::size_t lines) {
    while (lines_ < lines + 1 && read_some()) {
    }
    return behind_filling();
  }
  std::vector<std::string> read_to_end() {
    close_writer();
    while (read_some()) {
    }
    return behind_filling();
  }

 private:
  bool read_some() {
    char buffer[4096];
    const ssize_t got = ::read(fds_[0], buffer, sizeof buffer);
    if (got > 0) text_.append(buffer, static_cast<std::size_t>(got));
    if (got > 0) lines_ += static_cast<std::size_t>(std::count(buffer, buffer + got, '\n'));
    return got > 0;
  }
  std::vector<std::string> behind_filling() const { return events_of(text_.substr(text_.find('\n') + 1)); }
  void close(int end) {
    if (fds_[end] >= 0) ::close(fds_[end]);
    fds_[end] = -1;
  }
  int fds_[2] = {-1, -1};
  std::string text_;
  std::size_t lines_ = 0;
};

TEST(LogWriter, NobodyWhoLogsWaitsForAStalledPipe) {
  FullPipe pipe;
  LogWriter writer("x", pipe.writer(), pipe.writer());
  for (int i = 0; i < 5000; ++i) writer.add(record("e" + std::to_string(i)));  // 400 kB: a pipe holds 4
  EXPECT_FALSE(writer.flush(kNow));
  EXPECT_EQ(writer.lines_dropped(), 0);
  EXPECT_EQ(pipe.read_lines(5000), numbered("e", 5000));
  EXPECT_TRUE(writer.flush(kLong));
}

TEST(LogWriter, AFullQueueDropsCountsAndSaysSoWhereTheLinesAreMissing) {
  FullPipe pipe;
  LogWriter writer("x", pipe.writer(), pipe.writer(), {.lines_max = 10, .bytes_max = 1 << 20});
  for (int i = 0; i < 25; ++i) writer.add(record("e" + std::to_string(i)));
  EXPECT_EQ(writer.lines_dropped(), 15);
  auto expected = numbered("e", 10);
  expected.push_back("dropped 15");
  EXPECT_EQ(pipe.read_lines(11), expected);  // said once there is room, though nobody logs any more
  ASSERT_TRUE(writer.flush(kLong));
  writer.add(record("after"));
  expected.push_back("after");
  EXPECT_EQ(pipe.read_lines(12), expected);
  EXPECT_EQ(writer.lines_dropped(), 15);
}

TEST(LogWriter, TheQueueIsBoundedInBytes) {
  FullPipe pipe;
  LogWriter writer("x", pipe.writer(), pipe.writer(), {.lines_max = 1000, .bytes_max = 10'000});
  for (int i = 0; i < 10; ++i)
    writer.add({.event = "big", .correlation_id = {}, .human = std::string(4000, 'a'), .fields = {}});
  EXPECT_EQ(writer.lines_dropped(), 8);
  EXPECT_EQ(pipe.read_lines(3), (std::vector<std::string>{"big", "big", "dropped 8"}));
}

TEST(LogWriter, LinesOfOneThreadStayInOrder) {
  FullPipe pipe;
  LogWriter writer("x", pipe.writer(), pipe.writer());
  std::vector<std::thread> threads;
  for (const char* name : {"a", "b", "c"}) {
    threads.emplace_back([&writer, name] {
      for (int i = 0; i < 500; ++i) writer.add(record(name + std::to_string(i)));
    });
  }
  const auto all = pipe.read_lines(1500);
  for (std::thread& thread : threads) thread.join();
  for (const char name : {'a', 'b', 'c'}) {
    std::vector<std::string> own;
    for (const std::string& event : all)
      if (event.front() == name) own.push_back(event);
    EXPECT_EQ(own, numbered(std::string(1, name), 500));
  }
}

TEST(LogWriter, TextGoesItsWayBehindTheLinesBefore) {
  FullPipe out, error;
  LogWriter writer("x", out.writer(), error.writer());
  writer.add(record("e0"));
  writer.add_text(LogWriter::Stream::kOut, "plain out\n");
  writer.add_text(LogWriter::Stream::kError, "plain error\n");
  EXPECT_EQ(error.read_lines(1), std::vector<std::string>{"e0"});
  EXPECT_EQ(out.read_lines(1), std::vector<std::string>{"plain out"});
  EXPECT_EQ(error.read_lines(2), (std::vector<std::string>{"e0", "plain error"}));
}

TEST(LogWriter, AReaderThatIsGoneCostsLinesAndNothingElse) {
  std::signal(SIGPIPE, SIG_IGN);
  FullPipe pipe;
  LogWriter writer("x", pipe.writer(), pipe.writer());
  for (int i = 0; i < 100; ++i) writer.add(record("e"));
  pipe.close_reader();
  EXPECT_TRUE(writer.flush(kLong));
  EXPECT_EQ(writer.lines_dropped(), 100);
}

TEST(LogWriter, AFullDiskCostsLinesAndIsSaidWhenThereIsRoomAgain) {
  const auto path = std::filesystem::temp_directory_path() / ("llorch_log_writer_" + std::to_string(::getpid()));
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  {
    LogWriter writer("x", fd, fd);
    writer.add(record("before"));
    ASSERT_TRUE(writer.flush(kLong));
    {
      const testing::FileSizeLimit full(std::filesystem::file_size(path) + 10);  // a part of a line fits
      for (int i = 0; i < 3; ++i) {
        writer.add(record("lost"));
        ASSERT_TRUE(writer.flush(kLong));
      }
    }
    EXPECT_EQ(writer.lines_dropped(), 3);
    writer.add(record("after"));
    ASSERT_TRUE(writer.flush(kLong));
  }
  ::close(fd);
  std::ifstream in(path);
  const auto events = events_of({std::istreambuf_iterator<char>(in), {}});
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0], "before");
  EXPECT_EQ(events[2], "dropped 3");  // events[1]: the part that fitted, ended before the next line begins
  EXPECT_EQ(events[3], "after");
  std::filesystem::remove(path);
}

// Runs `body` in a process of its own that logs to a pipe. Its status and what it wrote.
struct Ended {
  int status = 0;
  std::vector<std::string> events;
};
Ended run_logging(FullPipe& pipe, bool read_meanwhile, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe.writer(), STDERR_FILENO);
    init_logging({.component = "child", .level = LogLevel::kInfo});
    [&]() noexcept { body(); }();  // nothing above catches what it throws
    std::exit(0);
  }
  Ended out;
  if (read_meanwhile) out.events = pipe.read_to_end();
  EXPECT_EQ(::waitpid(child, &out.status, 0), child);
  return out;
}
void log_some() {
  for (const std::string& event : numbered("e", 300)) log_event(LogLevel::kInfo, event, {}, "");
}

TEST(Log, WhatWaitsIsWrittenBeforeTheProcessEnds) {
  const auto lines = numbered("e", 300);
  {
    FullPipe pipe;
    const Ended ended = run_logging(pipe, true, log_some);
    EXPECT_TRUE(WIFEXITED(ended.status));
    EXPECT_EQ(ended.events, lines);
  }
  {
    FullPipe pipe;
    const Ended ended = run_logging(pipe, true, [] {
      log_some();
      ASSERT(log_lines_dropped() != 0, "seven={}", 7);
    });
    EXPECT_EQ(WTERMSIG(ended.status), SIGABRT);
    auto expected = lines;
    expected.push_back("assert.failed");
    EXPECT_EQ(ended.events, expected);
  }
  {
    FullPipe pipe;
    const Ended ended = run_logging(pipe, true, [] {
      log_some();
      throw std::runtime_error("nobody catches this");
    });
    EXPECT_EQ(WTERMSIG(ended.status), SIGABRT);
    ASSERT_GE(ended.events.size(), 300u);
    EXPECT_EQ(std::vector<std::string>(ended.events.begin(), ended.events.begin() + 300), lines);
  }
}

TEST(Log, APipeThatNobodyReadsDoesNotKeepAProcessFromEnding) {
  FullPipe pipe;
  EXPECT_EQ(WTERMSIG(run_logging(pipe, false, [] { ASSERT(false, "n={}", 1); }).status), SIGABRT);
  EXPECT_TRUE(WIFEXITED(run_logging(pipe, false, log_some).status));
}

TEST(LogLimiter, SaysHowManyLinesItLeftOut) {
  LogLimiter limiter(2, 1000);
  EXPECT_EQ(limiter.admit(5000), 0);
  EXPECT_EQ(limiter.admit(5000), 0);
  for (const std::int64_t now : {5000, 5500, 5999}) EXPECT_EQ(limiter.admit(now), std::nullopt);
  EXPECT_EQ(limiter.admit(6000), 3);
  EXPECT_EQ(limiter.admit(6001), 0);
  EXPECT_EQ(limiter.admit(6002), std::nullopt);
}

}  // namespace
}  // namespace llorch::base
