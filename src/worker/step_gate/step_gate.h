#pragma once
// Lets a test hold a worker's steps by an event, so that "a job that still runs" never depends on a machine's speed.
#include <atomic>
#include <filesystem>
#include <memory>

#include "base/result.h"

namespace llorch::worker {

// A FIFO that the test has open for writing: every byte in it lets one step of one worker pass. While nobody has it open
// for writing the gate stands open; a test that dies holds up nothing. It delays and decides nothing: tokens, cancels,
// deadlines and answers are those of a worker without a gate. Owns its descriptor.
class StepGate {
 public:
  // IO_ERROR: not there, not to be opened, or no FIFO.
  static base::Result<std::unique_ptr<StepGate>> open(const std::filesystem::path& fifo);
  ~StepGate();
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

  // Call after the worker's self-test. Until then the gate stands open, since no test means those steps. Thread-safe.
  void close_behind_self_test() { armed_.store(true); }
  // Takes a byte if there is one. False: the step has to wait; ask again. Never blocks. For one thread.
  bool may_step();

 private:
  explicit StepGate(int fd) : fd_(fd) {}

  const int fd_;
  std::atomic<bool> armed_{false};
};

}  // namespace llorch::worker
