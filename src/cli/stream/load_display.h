#pragma once
// Shows a person, or a program, how far the load of a model has come while a job waits for it.
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "cli/context.h"
#include "contract/task.h"

namespace llorch::cli::stream {

// Thread-safe.
class LoadDisplay {
 public:
  enum class Form : std::uint8_t {
    kBar,    // one line of a terminal, drawn anew and wiped at the end
    kLines,  // one line per step
    kJson,   // one object per step: {"event":"load_progress","percent":50}
  };
  LoadDisplay(Form form, std::function<void(std::string_view)> write) : form_(form), write_(std::move(write)) {}
  ~LoadDisplay() { finish(); }
  LoadDisplay(const LoadDisplay&) = delete;
  LoadDisplay& operator=(const LoadDisplay&) = delete;

  // What the job waits for now; absent: for nothing.
  void show(const std::optional<contract::WaitReason>& reason);
  // The answer begins, or there is none: nothing is shown any more.
  void finish();

 private:
  void wipe();

  const Form form_;
  const std::function<void(std::string_view)> write_;
  std::mutex mutex_;
  std::optional<std::int64_t> shown_;
  bool finished_ = false;
};

// Asks again and again what a job waits for, until it ends. The display outlives it.
class WaitWatch {
 public:
  WaitWatch(Api& api, const std::string& job_id, LoadDisplay& display);
  ~WaitWatch();
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;

 private:
  void run();

  Api& api_;
  const std::string path_;
  LoadDisplay& display_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace llorch::cli::stream
