// llorch run: submit, stream, reconnect with the last event id, cancel on Ctrl-C.
#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <mutex>
#include <thread>

#include "base/base64.h"
#include "base/file.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/stream/job_stream.h"
#include "contract/json.h"
#include "contract/task.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;
using base::ErrorCode;
using Clock = std::chrono::steady_clock;

// How long a lost stream is chased. Longer than an orchestratord restart takes, shorter than patience.
constexpr std::chrono::seconds kReconnectFor{60};

std::int64_t ms_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(b - a).count();
}

// Where the time went, for --stats and --json.
struct Times {
  std::int64_t first_token_ms = 0;  // from submission
  std::int64_t total_ms = 0;
};

// Follows one job's stream to its terminal event over any number of connections. Events arrive on an io thread; the
// main thread waits, so that it can see Ctrl-C.
class Follower {
 public:
  Follower(Api& api, std::string path, bool print)
      : api_(api), path_(std::move(path)), stream_([this, print](std::string_view text) {
          if (!first_token_at_) first_token_at_ = Clock::now();
          return !print ||
                 (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0);
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
  const stream::JobStream& job() const { return stream_; }
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
  stream::JobStream stream_;
  bool connection_over_ = false;
  Clock::time_point last_progress_ = Clock::now();
};

// Ctrl-C and SIGTERM as something to poll. REQUIRES base::block_stop_signals() before any thread started.
class InterruptWatch {
 public:
  InterruptWatch() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  ~InterruptWatch() { ::close(fd_); }
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  bool fired() {
    signalfd_siginfo info;
    return fired_ = fired_ || ::read(fd_, &info, sizeof info) == sizeof info;
  }

 private:
  int fd_;
  bool fired_ = false;
};

// A path of a model that exists is meant as one; everything else is an alias or a full reference.
std::string model_reference(const std::string& model) {
  std::error_code ec;
  const bool file = model.ends_with(".gguf") && std::filesystem::exists(model, ec);
  if (file || std::filesystem::exists(std::filesystem::path(model) / "config.json", ec)) {
    if (const auto path = std::filesystem::canonical(model, ec); !ec) return "file:" + path.string();
  }
  return model;
}

void print_stats(const stream::Outcome& o, const Times& times) {
  const std::int64_t decode_ms = o.end->decode_time_ms;
  const double rate =
      decode_ms > 0 ? 1000.0 * static_cast<double>(o.end->tokens_out - 1) / static_cast<double>(decode_ms) : 0;
  fmt::print(stderr, "\nqueue wait {} ms · time to first token {} ms · {} tokens in {} ms · {:.1f} tokens/s\n",
             o.queue_wait_ms, times.first_token_ms, o.end->tokens_out, decode_ms, rate);
}

void print_json(const std::string& job_id, const stream::Outcome& o, const Times& times) {
  const bj::object result{{"job_id", job_id},
                          {"text", o.text},
                          {"seed", o.seed},
                          {"queue_wait_ms", o.queue_wait_ms},
                          {"first_token_ms", times.first_token_ms},
                          {"total_ms", times.total_ms},
                          {"end", bj::parse(contract::encode(*o.end))}};
  fmt::print("{}\n", bj::serialize(result));
}

// The person went away: Ctrl-C, or nobody reads the answer. The job goes with them.
int cancel_and_report(Api& api, const std::string& job_id, bool json) {
  const auto cancelled = api.call("POST", "/v2/tasks/" + job_id + "/cancel");
  base::Error error{ErrorCode::kCancelled, "interrupted; the job was cancelled", {}};
  if (!cancelled) error.message = "interrupted; the job could not be cancelled: " + cancelled.error().message;
  error = std::move(error).with("job_id", job_id);
  if (json) return report(error, json);
  fmt::print(stderr, "\n{}\n", cancelled ? "cancelled" : error.message);
  return kInterrupted;
}

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

constexpr std::size_t kMessagesBytesMax = 64 << 20;
constexpr std::size_t kImageBytesMax = 32 << 20;

// What a user says: the text, behind the images if there are any.
base::Result<bj::value> content_of(const std::vector<std::string>& images, const std::string& text) {
  if (images.empty()) return bj::value(text);
  bj::array parts;
  for (const std::string& path : images) {
    const std::string file = TRY(base::read_file(path, kImageBytesMax));
    const std::string_view kind = file.starts_with("\x89PNG") ? "png" : file.starts_with("\xFF\xD8") ? "jpeg" : "";
    if (kind.empty()) return base::fail(ErrorCode::kInvalidParams, path + " is neither a PNG nor a JPEG file");
    parts.push_back(bj::object{{"type", "image"},
                               {"image", fmt::format("data:image/{};base64,{}", kind, base::base64_encode(file))}});
  }
  parts.push_back(bj::object{{"type", "text"}, {"text", text}});
  return bj::value(std::move(parts));
}

// `prompt`, or `messages` when the options ask for a conversation.
base::Result<> read_input(const RunOptions& options, contract::SubmitRequest& request) {
  if (!options.messages.empty()) {
    const std::string text = TRY(base::read_file(options.messages, kMessagesBytesMax));
    boost::system::error_code ec;
    if (const bj::value parsed = bj::parse(text, ec); ec || !parsed.is_array()) {
      return base::fail(ErrorCode::kInvalidParams, options.messages + " holds no JSON array of messages");
    }
    request.messages = contract::JsonArray{text};
    return {};
  }
  std::string text = options.prompt ? *options.prompt : std::string(std::istreambuf_iterator<char>(std::cin), {});
  if (!options.chat && options.images.empty()) {
    request.prompt = std::move(text);
    return {};
  }
  bj::array messages;
  if (options.system) messages.push_back(bj::object{{"role", "system"}, {"content", *options.system}});
  bj::value content = TRY(content_of(options.images, text));
  messages.push_back(bj::object{{"role", "user"}, {"content", std::move(content)}});
  request.messages = contract::JsonArray{bj::serialize(messages)};
  return {};
}

}  // namespace

int run_prompt(const GlobalOptions& global, const RunOptions& options) {
  contract::SubmitRequest request{.model = model_reference(options.model),
                                  .max_tokens = options.max_tokens,
                                  .temperature = options.temperature,
                                  .sampling = options.sampling,
                                  .stop = options.stop,
                                  .seed = options.seed,
                                  .on_disconnect = contract::OnDisconnect::kResume};
  if (const auto read = read_input(options, request); !read) return report(read.error(), global.json);
  request.priority =
      contract::enum_from_name<contract::Priority>(options.priority).value_or(contract::Priority::kInteractive);

  // From here on there may be a job to cancel. Until now Ctrl-C ended the process, and no thread has started yet.
  base::block_stop_signals();
  InterruptWatch interrupt;
  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto submitted_at = Clock::now();
  const auto body = (*api)->call("POST", "/v2/tasks", contract::encode(request));
  if (!body) return report(body.error(), global.json);
  const auto reply = contract::decode<contract::SubmitReply>(*body);
  if (!reply) return report(reply.error(), global.json);

  Follower follower(**api, reply->events_url, !global.json);
  const stream::JobStream& job = follower.job();
  do {
    follower.follow([&] { return interrupt.fired(); });
    if (!job.ended() && !interrupt.fired()) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  } while (!job.ended() && !interrupt.fired() && follower.silence() < kReconnectFor);

  const bool walked_away = interrupt.fired() || job.output_lost();
  if (walked_away && !job.outcome().end) return cancel_and_report(**api, reply->job_id, global.json);
  if (!job.ended()) return report(given_up(job.last_failure(), reply->job_id), global.json);
  if (job.outcome().error) return report(*job.outcome().error, global.json);
  const Times times = follower.times(submitted_at);
  if (global.json) {
    print_json(reply->job_id, job.outcome(), times);
  } else {
    std::fputs("\n", stdout);
    if (options.stats) print_stats(job.outcome(), times);
  }
  return kOk;
}

}  // namespace llorch::cli
