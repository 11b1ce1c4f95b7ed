#pragma once
// Shows a person, or a program, what a job waits for: in words, and in numbers while a worker loads the model.
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "cli/context.h"
#include "wire/task.h"

namespace llorch::cli::stream {

// Thread-safe.
class WaitDisplay {
 public:
  // A load: one line of a terminal, drawn anew and wiped at the end; a line per step; or an object per step,
  // {"event":"load_progress","percent":50}. Other waits: a line each, or {"event":"waiting","code":...,"human":...}.
  enum class Form : std::uint8_t { kBar, kLines, kJson };
  // For standard error, beside the answer and never in it.
  static Form form(bool json);
  WaitDisplay(Form form, std::function<void(std::string_view)> write) : form_(form), write_(std::move(write)) {}
  ~WaitDisplay() { finish(); }
  WaitDisplay(const WaitDisplay&) = delete;
  WaitDisplay& operator=(const WaitDisplay&) = delete;

  // What the job waits for now; absent: for nothing. Meant to be called again and again: a wait that is over before it was
  // shown three times needs no words.
  void show(const std::optional<wire::WaitReason>& reason);
  // A part of the answer has come. Waits from here on are told between its parts, and a load is one of them.
  void answered();
  // The job has ended: nothing is shown any more.
  void finish();

 private:
  void draw_load(std::int64_t percent);
  void tell(const wire::WaitReason& reason);
  void wipe();

  const Form form_;
  const std::function<void(std::string_view)> write_;
  std::mutex mutex_;
  std::optional<std::int64_t> percent_;  // of the load that is shown
  std::string code_;                     // of the wait that was shown last
  int times_shown_ = 0;                  // in a row
  bool answered_ = false;
  bool finished_ = false;
};

// Asks again and again what a job waits for, until it ends. The display outlives it.
class WaitWatch {
 public:
  WaitWatch(Api& api, const std::string& job_id, WaitDisplay& display);
  ~WaitWatch();
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;

 private:
  void run();
  void look();

  Api& api_;
  const std::string path_;
  WaitDisplay& display_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace llorch::cli::stream
