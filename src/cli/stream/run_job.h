#pragma once
// Submits a job and follows it to its end, over any number of connections.
#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/context.h"
#include "cli/stream/job_stream.h"
#include "cli/stream/wait_display.h"
#include "wire/task.h"

namespace llorch::cli::stream {

// Ctrl-C and SIGTERM as something to ask for. REQUIRES base::block_stop_signals() before any thread started.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  bool fired();
  // SIGINT or SIGTERM once it has fired, else 0.
  int signal() const { return signal_; }

 private:
  int fd_;
  int signal_ = 0;
};

// Where the time went.
struct Times {
  std::int64_t first_token_ms = 0;  // from submission
  std::int64_t total_ms = 0;
};

struct FinishedJob {
  std::string job_id;
  Outcome outcome;  // its `end` is there
  Times times;
};

// Blocks, first until a pool has read the model. The job's own error, or why it could not be followed. CANCELLED (details: job_id) when `interrupt` fired or
// `print` said that nobody reads any more: the job is cancelled too. `print` comes on the io thread. `display`: shows what the
// job waits for, where somebody wants to see it.
base::Result<FinishedJob> run_job(Api& api, const wire::SubmitRequest& request, InterruptWatch& interrupt,
                                  JobStream::Print print, WaitDisplay* display = nullptr);
// The same for a job that exists, from its first token; it is left running when `interrupt` fires. `first_token_ms` and
// `total_ms` count from this call.
base::Result<FinishedJob> attach_job(Api& api, const std::string& job_id, InterruptWatch& interrupt,
                                     JobStream::Print print, WaitDisplay* display = nullptr);

}  // namespace llorch::cli::stream
