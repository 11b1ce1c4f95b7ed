#pragma once
// Reads of files that may never end: a file of a mount that does not answer holds up what asks for that file, and nothing else.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"

namespace llorch::base {

// Thread-safe.
class FileReads {
 public:
  struct Options {
    // Reads that run beside each other. One that is slow, without progress for `slow_ms`, no longer counts: another file's begins in its
    // place.
    std::size_t at_once = 1;
    std::int64_t slow_ms = 2'000;
    // Who waits for a read that runs for longer is refused, whoever asked for it too, whose result is dropped. 0: only who waits behind it
    // is refused, once it is slow.
    std::int64_t refuse_ms = 0;
    std::size_t files_max = 64;  // at a time, the slow ones included: each of them is a thread
    // Calls `fn` once after `delay_ms`, not within this call; or never, once the caller is gone.
    std::function<void(std::int64_t delay_ms, std::function<void()> fn)> after;
    std::string reason;                 // of a refusal, in its details
    std::int64_t stop_wait_ms = 1'000;  // for reads that are not slow
  };
  explicit FileReads(Options options);  // REQUIRES: `after` is not null, at_once > 0, files_max >= at_once
  FileReads(const FileReads&) = delete;
  FileReads& operator=(const FileReads&) = delete;
  ~FileReads() { stop(); }

  // Runs `read` on a thread that only `file` waits for, and then `done` with its result, there too. Reads of one file run one after
  // another, in order, and so do their `done`; what reads other files need not wait for them. POOL_UNREADY with retry_after_ms,
  // `reason` and `file`: this read, or one of this file before it, takes too long (`refuse_ms`); or nothing is read, for `files_max`
  // others are slow.
  // `done` must not block; it may be called within this call, and is dropped uncalled where a library throws in `read`.
  // REQUIRES: `read` refers to nothing that its copies do not own, for it may end after everything else has.
  template <class T>
  void read(const std::string& file, std::function<Result<T>()> read, std::function<void(Result<T>)> done) {
    const auto result = std::make_shared<std::optional<Result<T>>>();
    post(file, {.read = [result, read = std::move(read)] { result->emplace(read()); },
                .done =
                    [result, done = std::move(done)](std::optional<Error> refusal) {
                      done(refusal ? Result<T>(fail(*std::move(refusal))) : *std::move(*result));
                    }});
  }

  // Of a refusal: so many others are slow, and this file may be of a disk that answers.
  static bool is_for_others(const Error& refusal);

  // The read that calls this makes progress; without effect outside of reads.
  static void progressed();

  // No `done` runs afterwards: what waits is dropped. Slow reads are left to themselves. Idempotent. REQUIRES: not within a `done`.
  void stop();

 private:
  using Done = std::function<void(std::optional<Error> refusal)>;
  struct Read {
    std::function<void()> read;
    Done done;
  };
  struct State;
  void post(const std::string& file, Read read);

  const std::shared_ptr<State> state_;
};

}  // namespace llorch::base
