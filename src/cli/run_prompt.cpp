// llorch run: submit, stream, reconnect with the last event id, cancel on Ctrl-C.
#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <mutex>
#include <thread>

#include "cli/commands.h"
#include "contract/json.h"
#include "contract/task.h"
#include "net/sse/sse.h"

namespace llorch::cli {
namespace {

using base::ErrorCode;
using Clock = std::chrono::steady_clock;

// How long a lost stream is chased. Longer than an orchestratord restart takes, shorter than patience.
constexpr std::chrono::seconds kReconnectFor{60};

std::int64_t ms_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(b - a).count();
}

struct Outcome {
  std::optional<base::Error> error;
  std::optional<contract::EndEvent> end;
  std::string text;
  std::uint64_t seed = 0;
  std::int64_t queue_wait_ms = 0;
  std::int64_t first_token_ms = 0;  // from submission
  std::int64_t total_ms = 0;
};

// Follows one job's stream to its terminal event over any number of connections. Events arrive on an io thread; the
// main thread waits, so that it can see Ctrl-C.
class Follower {
 public:
  Follower(Api& api, std::string path, bool print) : api_(api), path_(std::move(path)), print_(print) {}

  // Connects (again) and waits until the connection ends, the job ends, or `interrupted()` turns true.
  template <class Interrupted>
  void follow(const Interrupted& interrupted) {
    decoder_ = net::sse::Decoder();
    connection_over_ = false;
    net::http::Headers headers{{"Accept", "text/event-stream"}};
    if (!last_id_.empty()) headers.set("Last-Event-ID", last_id_);
    net::StreamHandle stream = api_.stream(path_, headers, callbacks());
    std::unique_lock lock(mutex_);
    while (!connection_over_ && !outcome_.end && !outcome_.error) {
      changed_.wait_for(lock, std::chrono::milliseconds(50));
      if (!interrupted()) continue;
      outcome_.error = base::Error{ErrorCode::kCancelled, "interrupted", {}};
    }
    lock.unlock();
    stream.cancel();
    lock.lock();
    changed_.wait(lock, [&] { return connection_over_; });
  }
  bool ended() const { return outcome_.end || outcome_.error; }
  // Time since the last byte arrived; what a reconnect loop gives up on.
  Clock::duration silence() const { return Clock::now() - last_progress_; }
  Outcome take(Clock::time_point submitted) {
    outcome_.total_ms = ms_between(submitted, Clock::now());
    if (first_token_at_) outcome_.first_token_ms = ms_between(submitted, *first_token_at_);
    return std::move(outcome_);
  }

 private:
  net::StreamCallbacks callbacks() {
    return {.on_response =
                [this](int status, const net::http::Headers&) {
                  const std::lock_guard lock(mutex_);
                  status_ = status;
                  body_.clear();
                },
            .on_data = [this](std::string_view bytes) { data(bytes); },
            .on_end =
                [this](base::Result<>) {
                  const std::lock_guard lock(mutex_);
                  // 4xx is an answer; anything else may be a restart in progress.
                  if (status_ >= 400 && status_ < 500)
                    outcome_.error = net::http::error_of({.status = status_, .body = body_});
                  connection_over_ = true;
                  changed_.notify_all();
                }};
  }
  void data(std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    last_progress_ = Clock::now();
    if (status_ != 200) return void(body_.append(bytes.substr(0, 65536 - std::min<std::size_t>(65536, body_.size()))));
    std::vector<net::sse::Event> events;
    if (auto fed = decoder_.feed(bytes, events); !fed) outcome_.error = fed.error();
    for (const net::sse::Event& event : events) take_event(event);
    changed_.notify_all();
  }
  void take_event(const net::sse::Event& event) {
    if (event.id) last_id_ = *event.id;
    if (event.event == "token") {
      const auto token = contract::decode<contract::TokenEvent>(event.data);
      if (!token) return void(outcome_.error = token.error());
      if (!first_token_at_) first_token_at_ = Clock::now();
      outcome_.text += token->t;
      if (print_) {
        std::fwrite(token->t.data(), 1, token->t.size(), stdout);
        std::fflush(stdout);
      }
    } else if (event.event == "started") {
      if (const auto started = contract::decode<contract::StartedEvent>(event.data)) {
        outcome_.seed = started->seed;
        outcome_.queue_wait_ms = started->queue_wait_ms.value_or(0);
      }
    } else if (event.event == "end") {
      auto end = contract::decode<contract::EndEvent>(event.data);
      if (end) {
        outcome_.end = std::move(*end);
      } else {
        outcome_.error = end.error();
      }
    } else if (event.event == "error") {
      auto body = contract::decode<contract::ErrorBody>(event.data);
      outcome_.error = body ? contract::to_error(*body) : body.error();
    }
  }

  Api& api_;
  const std::string path_;
  const bool print_;
  std::mutex mutex_;
  std::condition_variable changed_;
  net::sse::Decoder decoder_;
  Outcome outcome_;
  std::string last_id_;
  std::string body_;
  int status_ = 0;
  bool connection_over_ = false;
  std::optional<Clock::time_point> first_token_at_;
  Clock::time_point last_progress_ = Clock::now();
};

// Ctrl-C and SIGTERM as something to poll. REQUIRES them blocked (run_cli does that before any thread starts).
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

// A path that exists is meant as a file; everything else is an alias or a full reference.
std::string model_reference(const std::string& model) {
  std::error_code ec;
  if (model.ends_with(".gguf") && std::filesystem::exists(model, ec)) {
    return "file:" + std::filesystem::canonical(model, ec).string();
  }
  return model;
}

void print_stats(const Outcome& o) {
  const std::int64_t decode_ms = o.end->decode_time_ms;
  const double rate =
      decode_ms > 0 ? 1000.0 * static_cast<double>(o.end->tokens_out - 1) / static_cast<double>(decode_ms) : 0;
  fmt::print(stderr, "\nqueue wait {} ms · time to first token {} ms · {} tokens in {} ms · {:.1f} tokens/s\n",
             o.queue_wait_ms, o.first_token_ms, o.end->tokens_out, decode_ms, rate);
}

void print_json(const std::string& job_id, const Outcome& o) {
  // Composed from encoded parts; the text goes through the same encoder as every token.
  const std::string text = contract::encode(contract::TokenEvent{.t = o.text, .i = 0});
  fmt::print(
      "{{\"job_id\":\"{}\",\"text\":{},\"seed\":{},\"queue_wait_ms\":{},\"first_token_ms\":{},\"total_ms\":{},\"end\":{"
      "}}}\n",
      job_id, text.substr(5, text.size() - 5 - 7), o.seed, o.queue_wait_ms, o.first_token_ms, o.total_ms,
      contract::encode(*o.end));
}

}  // namespace

int run_prompt(const GlobalOptions& global, const RunOptions& options) {
  InterruptWatch interrupt;
  contract::SubmitRequest request{.model = model_reference(options.model),
                                  .max_tokens = options.max_tokens,
                                  .temperature = options.temperature,
                                  .top_p = options.top_p.value_or(1.0),
                                  .seed = options.seed,
                                  .on_disconnect = contract::OnDisconnect::kResume};
  request.priority =
      contract::enum_from_name<contract::Priority>(options.priority).value_or(contract::Priority::kInteractive);
  request.prompt = options.prompt ? *options.prompt : std::string(std::istreambuf_iterator<char>(std::cin), {});

  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto submitted_at = Clock::now();
  const auto body = (*api)->call("POST", "/v2/tasks", contract::encode(request));
  if (!body) return report(body.error(), global.json);
  const auto reply = contract::decode<contract::SubmitReply>(*body);
  if (!reply) return report(reply.error(), global.json);

  Follower follower(**api, reply->events_url, !global.json);
  do {
    follower.follow([&] { return interrupt.fired(); });
    if (!follower.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  } while (!follower.ended() && follower.silence() < kReconnectFor);

  if (interrupt.fired()) {
    const auto cancelled = (*api)->call("POST", "/v2/tasks/" + reply->job_id + "/cancel");
    fmt::print(stderr, "\n{}\n",
               cancelled ? "cancelled" : "the job could not be cancelled: " + cancelled.error().message);
    return kInterrupted;
  }
  const bool ended = follower.ended();
  const Outcome outcome = follower.take(submitted_at);
  if (!ended) {
    return report(base::Error{ErrorCode::kUnreachable,
                              "the stream was lost and orchestratord did not come back; the job goes on: llorch show " +
                                  reply->job_id,
                              {}},
                  global.json);
  }
  if (outcome.error) return report(*outcome.error, global.json);
  if (global.json) {
    print_json(reply->job_id, outcome);
  } else {
    fmt::print("\n");
    if (options.stats) print_stats(outcome);
  }
  return kOk;
}

}  // namespace llorch::cli
