#include "base/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace llorch::base {
namespace {

// Lines of one write: few system calls for a burst, and little that a stalled descriptor holds beside the queue.
constexpr std::size_t kLinesPerWrite = 64;
// While lines keep coming, writes begin this far apart, so that a busy daemon does not wake the thread for each.
constexpr std::chrono::milliseconds kWriteSpacing{5};

std::size_t bytes_of(const LogRecord& record) {
  std::size_t bytes = sizeof record + record.event.size() + record.correlation_id.value.size() + record.human.size();
  for (const LogField& field : record.fields) {
    const auto* text = std::get_if<std::string>(&field.value);
    bytes += sizeof field + (text != nullptr ? text->size() : 0);
  }
  return bytes;
}

// How many bytes the descriptor took before it refused (its reader is gone, its disk is full); all of them if it did not.
std::size_t write_what_fits(int fd, std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    if (written == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) break;
    // Whoever gave us the descriptor made it non-blocking.
    pollfd writable{.fd = fd, .events = POLLOUT, .revents = 0};
    ::poll(&writable, 1, -1);
  }
  return done;
}

}  // namespace

LogWriter::LogWriter(std::string component, int out_fd, int error_fd, LogWriterLimits limits, LogFormat format)
    : component_(std::move(component)), out_fd_(out_fd), error_fd_(error_fd), limits_(limits), format_(format) {
  thread_ = std::thread([this] { run(); });
}

LogWriter::~LogWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.notify_one();
  thread_.join();
}

void LogWriter::add(LogRecord record) {
  const std::size_t bytes = bytes_of(record);
  push({.content = std::move(record), .bytes = bytes});
}

void LogWriter::add_text(Stream stream, std::string text) {
  const std::size_t bytes = sizeof(Item) + text.size();
  push({.content = std::move(text), .stream = stream, .bytes = bytes});
}

void LogWriter::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    if (lines_ >= limits_.lines_max || item.bytes > limits_.bytes_max - bytes_) {
      ++dropped_;
      ++dropped_unsaid_;
      return;
    }
    ++lines_;
    ++added_count_;
    bytes_ += item.bytes;
    item.dropped_before = std::exchange(dropped_unsaid_, 0);
    queue_.push_back(std::move(item));
    if (spacing_ && queue_.size() < kLinesPerWrite) return;
  }
  added_.notify_one();
}

bool LogWriter::flush(std::chrono::milliseconds limit) {
  if (std::this_thread::get_id() == thread_.get_id()) return false;
  std::unique_lock lock(mutex_);
  const std::uint64_t wanted = added_count_;
  flush_count_ = added_count_;
  added_.notify_one();
  return written_.wait_for(lock, limit, [&] { return done_count_ >= wanted; });
}

std::int64_t LogWriter::lines_dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

std::string LogWriter::note(std::int64_t lines_dropped) const {
  return format_log_line(component_,
                         {.level = LogLevel::kWarn,
                          .unix_ms = SystemClock().now().unix_ms,
                          .event = "log.dropped",
                          .correlation_id = {},
                          .human = "Log lines are missing here: nobody read them in time.",
                          .fields = {{"lines_dropped", lines_dropped}}},
                         format_) +
         '\n';
}

// REQUIRES: the lock.
std::deque<LogWriter::Item> LogWriter::take_some() {
  std::deque<Item> out;
  while (!queue_.empty() && out.size() < kLinesPerWrite &&
         (out.empty() || queue_.front().stream == out.back().stream)) {
    out.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return out;
}

std::string LogWriter::text_of(const std::deque<Item>& items) const {
  std::string out;
  for (const Item& item : items) {
    if (item.dropped_before > 0) out += note(item.dropped_before);
    if (const auto* record = std::get_if<LogRecord>(&item.content)) {
      out += format_log_line(component_, *record, format_);
      out += '\n';
    } else {
      out += std::get<std::string>(item.content);
    }
  }
  return out;
}

bool LogWriter::write(Stream stream, std::string_view text) {
  const int fd = stream == Stream::kOut ? out_fd_ : error_fd_;
  if (torn_ && write_what_fits(fd, "\n") == 0) return false;
  const std::size_t done = write_what_fits(fd, text);
  torn_ = done > 0 && text[done - 1] != '\n';
  return done == text.size();
}

// A line that comes long after the one before it does not wait, nor does a burst, nor what somebody flushes.
void LogWriter::wait_for_more(std::unique_lock<std::mutex>& lock) {
  spacing_ = true;
  added_.wait_until(lock, write_begin_ + kWriteSpacing,
                    [&] { return stopping_ || queue_.size() >= kLinesPerWrite || flush_count_ > done_count_; });
  spacing_ = false;
}

void LogWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wait_for_more(lock);
    added_.wait(lock, [&] { return !queue_.empty() || stopping_ || (dropped_unsaid_ > 0 && !refused_); });
    write_begin_ = std::chrono::steady_clock::now();
    const std::deque<Item> items = take_some();
    // Nobody logs any more who could carry the note.
    const std::int64_t tail = items.empty() ? std::exchange(dropped_unsaid_, 0) : 0;
    if (items.empty() && tail == 0) return;  // stopping
    lock.unlock();
    const std::string text = items.empty() ? note(tail) : text_of(items);
    const Stream stream = items.empty() ? Stream::kError : items.front().stream;
    const bool written = write(stream, text);
    lock.lock();
    refused_ = !written;
    dropped_unsaid_ += written ? 0 : tail;
    for (const Item& item : items) {
      bytes_ -= item.bytes;
      if (written) continue;
      ++dropped_;
      dropped_unsaid_ += item.dropped_before + 1;
    }
    lines_ -= items.size();
    done_count_ += items.size();
    written_.notify_all();
    if (stopping_ && refused_ && queue_.empty()) return;
  }
}

}  // namespace llorch::base
