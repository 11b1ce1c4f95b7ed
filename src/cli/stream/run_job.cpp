#include "cli/stream/run_job.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "base/error_detail.h"
#include "wire/json.h"

namespace llorch::cli::stream {
namespace {

using base::ErrorCode;
using Clock = std::chrono::steady_clock;

// How long a lost stream is chased. Longer than an orchestratord restart takes, shorter than patience.
constexpr std::chrono::seconds kReconnectFor{60};
// Between two attempts to submit while a pool reads the model.
constexpr int kLooksPerAttempt = 4;
constexpr std::chrono::milliseconds kLookEvery{250};

std::int64_t ms_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(b - a).count();
}

// Follows one job's stream to its terminal event over any number of connections. Events arrive on the io thread; the
// main thread waits, so that it can see Ctrl-C.
class Follower {
 public:
  Follower(Api& api, std::string path, JobStream::Print print)
      : api_(api), path_(std::move(path)), stream_([this, print = std::move(print)](std::string_view text) {
          if (!first_token_at_) first_token_at_ = Clock::now();
          return print(text);
        }) {}

  // Connects (again) and waits until the connection ends, the job ends, or `interrupted()` turns true.
  template <class Interrupted>
  void follow(const Interrupted& interrupted) {
    connection_over_ = false;
    stream_.connect();
    net::http::Headers headers{{"Accept", "text/event-stream"}};
    if (!stream_.last_event_id().empty()) headers.set("Last-Event-ID", stream_.last_event_id());
    net::StreamHandle connection = api_.stream(path_, headers, callbacks());
    std::unique_lock lock(mutex_);
    while (!connection_over_ && !stream_.ended() && !interrupted()) {
      changed_.wait_for(lock, std::chrono::milliseconds(50));
    }
    lock.unlock();
    connection.cancel();
    lock.lock();
    changed_.wait(lock, [&] { return connection_over_; });
  }
  // Of no connection: between calls of follow() nothing else touches it.
  const JobStream& job() const { return stream_; }
  // Time since the stream last moved; what a reconnect loop gives up on.
  Clock::duration silence() const { return Clock::now() - last_progress_; }
  Times times(Clock::time_point submitted) const {
    return {.first_token_ms = first_token_at_ ? ms_between(submitted, *first_token_at_) : 0,
            .total_ms = ms_between(submitted, Clock::now())};
  }

 private:
  net::StreamCallbacks callbacks() {
    return {.on_response =
                [this](int status, const net::http::Headers&) {
                  const std::lock_guard lock(mutex_);
                  stream_.on_response(status);
                },
            .on_data =
                [this](std::string_view bytes) {
                  const std::lock_guard lock(mutex_);
                  if (stream_.on_data(bytes)) last_progress_ = Clock::now();
                  changed_.notify_all();
                },
            .on_end =
                [this](base::Result<>) {
                  const std::lock_guard lock(mutex_);
                  stream_.on_end();
                  connection_over_ = true;
                  changed_.notify_all();
                }};
  }

  Api& api_;
  const std::string path_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> first_token_at_;
  JobStream stream_;
  bool connection_over_ = false;
  Clock::time_point last_progress_ = Clock::now();
};

// Nobody answers for the job any more; what the server last said is the best explanation there is.
base::Error given_up(const std::optional<base::Error>& last_failure, const std::string& job_id) {
  const std::string next = "; the job goes on: llorch show " + job_id;
  if (!last_failure) {
    return {ErrorCode::kUnreachable, "the stream was lost and orchestratord did not come back" + next, {}};
  }
  base::Error error = *last_failure;
  error.message += next;
  return error;
}

// The person went away: Ctrl-C, or nobody reads the answer. The job goes with them.
base::Error cancel(Api& api, const std::string& job_id) {
  const auto cancelled = api.call("POST", "/v2/tasks/" + job_id + "/cancel");
  base::Error error{ErrorCode::kCancelled, "interrupted; the job was cancelled", {}};
  if (!cancelled) error.message = "interrupted; the job could not be cancelled: " + cancelled.error().message;
  return std::move(error).with("job_id", job_id);
}

// The person went away from somebody else's job.
base::Error left(const std::string& job_id) {
  return base::Error{ErrorCode::kCancelled, "left; the job goes on: llorch attach " + job_id, {}}.with("job_id",
                                                                                                       job_id);
}

}  // namespace

InterruptWatch::InterruptWatch() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

InterruptWatch::~InterruptWatch() { ::close(fd_); }

bool InterruptWatch::fired() {
  signalfd_siginfo info;
  if (signal_ == 0 && ::read(fd_, &info, sizeof info) == sizeof info) signal_ = static_cast<int>(info.ssi_signo);
  return signal_ != 0;
}

namespace {

// A job whose stream is read.
struct Followed {
  std::string job_id;
  std::string events_url;
  bool is_ours = false;  // nobody else wants it: it is cancelled when we go
};

base::Result<FinishedJob> follow(Api& api, const Followed& job, Clock::time_point begun, InterruptWatch& interrupt,
                                 JobStream::Print print, WaitDisplay* display) {
  std::optional<WaitWatch> watch;
  if (display != nullptr) watch.emplace(api, job.job_id, *display);
  Follower follower(api, job.events_url, [&, print = std::move(print)](std::string_view text) {
    if (display != nullptr) display->answered();
    return print(text);
  });
  const JobStream& stream = follower.job();
  do {
    follower.follow([&] { return interrupt.fired(); });
    if (!stream.ended() && !interrupt.fired()) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  } while (!stream.ended() && !interrupt.fired() && follower.silence() < kReconnectFor);

  watch.reset();
  if (display != nullptr) display->finish();
  const bool walked_away = interrupt.fired() || stream.output_lost();
  if (walked_away && !stream.outcome().end) return base::fail(job.is_ours ? cancel(api, job.job_id) : left(job.job_id));
  if (!stream.ended()) return base::fail(given_up(stream.last_failure(), job.job_id));
  if (stream.outcome().error) return base::fail(*stream.outcome().error);
  return FinishedJob{job.job_id, stream.outcome(), follower.times(begun)};
}

bool is_being_read(const base::Error& error) {
  return error.code == ErrorCode::kPoolUnready && base::has_detail(error, "reason", "MODEL_BEING_READ");
}

// A pool that has not read the model yet is asked until it has: its name was good, and only time is missing.
base::Result<std::string> submit(Api& api, const std::string& body, InterruptWatch& interrupt, WaitDisplay* display) {
  while (true) {
    auto reply = api.call("POST", "/v2/tasks", body);
    if (reply || !is_being_read(reply.error())) return reply;
    for (int look = 0; look < kLooksPerAttempt; ++look) {
      if (interrupt.fired()) return base::fail(ErrorCode::kCancelled, "interrupted; no job was submitted");
      if (display != nullptr)
        display->show(
            wire::WaitReason{.code = "MODEL_BEING_READ", .human = "The pool reads the model for the first time."});
      std::this_thread::sleep_for(kLookEvery);
    }
  }
}

}  // namespace

base::Result<FinishedJob> run_job(Api& api, const wire::SubmitRequest& request, InterruptWatch& interrupt,
                                  JobStream::Print print, WaitDisplay* display) {
  const auto submitted_at = Clock::now();
  const std::string body = TRY(submit(api, wire::encode(request), interrupt, display));
  const auto reply = TRY(wire::decode<wire::SubmitReply>(body));
  return follow(api, {.job_id = reply.job_id, .events_url = reply.events_url, .is_ours = true}, submitted_at, interrupt,
                std::move(print), display);
}

base::Result<FinishedJob> attach_job(Api& api, const std::string& job_id, InterruptWatch& interrupt,
                                     JobStream::Print print, WaitDisplay* display) {
  return follow(api, {.job_id = job_id, .events_url = "/v2/tasks/" + job_id + "/events?observe=true"}, Clock::now(),
                interrupt, std::move(print), display);
}

}  // namespace llorch::cli::stream
