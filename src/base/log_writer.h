#pragma once
// Log lines on their way to a descriptor that may stall: a bounded queue and the one thread that writes.
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <variant>

#include "base/log.h"

namespace llorch::base {

// Two minutes of a busy daemon at info, a few seconds of one at debug.
struct LogWriterLimits {
  std::size_t lines_max = 16'384;
  std::size_t bytes_max = 8 << 20;
};

// Thread-safe. Lines of one thread stay in order. A line that finds the queue full, or that the descriptor refuses, is
// dropped and counted; a line "log.dropped" says how many are missing, in the place where they are. Owns its thread, not
// the descriptors.
class LogWriter {
 public:
  // `component` is named in every line. The descriptors may be the same. Starts the thread.
  LogWriter(std::string component, int out_fd, int error_fd, LogWriterLimits limits = {},
            LogFormat format = LogFormat::kJson);
  // Writes what waits; so it waits as long as a stalled descriptor does.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Never waits for a descriptor. `record` is formatted by the writer's thread and goes to `error_fd`.
  void add(LogRecord record);
  // Text that is not ours to format, LF included, as it is.
  enum class Stream { kOut, kError };
  void add_text(Stream stream, std::string text);

  // Waits until everything added before has been written or dropped. False once `limit` has passed, or if called by the
  // writer's own thread.
  bool flush(std::chrono::milliseconds limit);
  std::int64_t lines_dropped() const;

 private:
  struct Item {
    std::variant<LogRecord, std::string> content;
    Stream stream = Stream::kError;
    std::size_t bytes = 0;
    std::int64_t dropped_before = 0;  // lines that are missing between this one and the one before it
  };
  void push(Item item);
  void run();
  void wait_for_more(std::unique_lock<std::mutex>& lock);
  std::deque<Item> take_some();
  bool write(Stream stream, std::string_view text);
  std::string text_of(const std::deque<Item>& items) const;
  std::string note(std::int64_t lines_dropped) const;

  const std::string component_;
  const int out_fd_, error_fd_;
  const LogWriterLimits limits_;
  const LogFormat format_;
  mutable std::mutex mutex_;
  std::condition_variable added_, written_;
  // Guarded by mutex_. Counts include what the thread is writing.
  std::deque<Item> queue_;
  std::size_t lines_ = 0, bytes_ = 0;
  std::uint64_t added_count_ = 0, done_count_ = 0;
  std::uint64_t flush_count_ = 0;  // added_count_ at the last flush()
  std::int64_t dropped_ = 0, dropped_unsaid_ = 0;
  bool spacing_ = false;  // the thread waits for more lines
  bool refused_ = false;  // the last write failed: no note by itself
  bool torn_ = false;     // and left a part of a line; of the thread alone
  bool stopping_ = false;
  std::chrono::steady_clock::time_point write_begin_;  // of the thread alone
  std::thread thread_;                                 // last: it uses the others
};

}  // namespace llorch::base
