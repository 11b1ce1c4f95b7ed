#pragma once
// A hub of streams whose clients read when a test says so, by a clock that stands still.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/executor.h"
#include "net/sse/sse.h"
#include "orchestratord/streams/replay/sse_renderer.h"
#include "orchestratord/streams/stream_hub.h"

namespace llorch::orchestratord::streams {

// An exchange whose client reads only when the test says so.
class FakeExchange final : public net::Exchange {
 public:
  bool respond(net::Response response) override {
    response_ = std::move(response);
    return true;
  }
  void release_request() override { released_ = true; }
  bool respond_error(const base::Error& error) override {
    error_ = error;
    return true;
  }
  bool start_stream(int status, net::http::Headers) override {
    status_ = status;
    return true;
  }
  bool write(std::string_view bytes) override {
    if (closed_) return false;
    queue_ += bytes;
    if (reads_) take(queue_.size());
    return true;
  }
  bool end() override {
    ended_ = true;
    return true;
  }
  void abort() override { aborted_ = true; }  // the real one closes later, on its own thread
  std::size_t queued_bytes() const override { return queue_.size(); }
  std::uint64_t sent_bytes() const override { return received_.size(); }
  bool closed() const override { return closed_; }
  void on_drain(std::size_t low, std::function<void()> fn) override {
    low_ = low;
    drain_ = std::move(fn);
  }
  void on_close(std::function<void(net::CloseReason)> fn) override { on_close_ = std::move(fn); }

  void take(std::size_t bytes) {
    received_ += queue_.substr(0, bytes);
    queue_.erase(0, bytes);
    if (drain_ && queue_.size() <= low_) std::exchange(drain_, nullptr)();
  }
  void close(net::CloseReason reason) {
    if (std::exchange(closed_, true)) return;
    drain_ = nullptr;
    if (on_close_) std::exchange(on_close_, nullptr)(reason);
  }
  std::vector<std::string> names() const {
    net::sse::Decoder decoder;
    std::vector<net::sse::Event> events;
    EXPECT_TRUE(decoder.feed(received_, events));
    std::vector<std::string> out;
    for (const auto& event : events) out.push_back(event.event);
    return out;
  }

  bool reads_ = true;
  bool released_ = false;
  std::optional<net::Response> response_;
  std::optional<base::Error> error_;
  int status_ = 0;
  bool ended_ = false;
  bool closed_ = false;
  bool aborted_ = false;
  std::string queue_, received_;
  std::size_t low_ = 0;
  std::function<void()> drain_;
  std::function<void(net::CloseReason)> on_close_;
};

// One answer: the text of all tokens.
class TextRenderer final : public Renderer {
 public:
  bool streams() const override { return false; }
  Head head() const override { return {.status = failed_ ? 504 : 200, .headers = {{"Content-Type", "text/plain"}}}; }
  void queued(const wire::QueuedEvent&, const EventId&, std::string&) override {}
  void started(const wire::StartedEvent&, const EventId&, std::string&) override {}
  void token(const TokenView& token, const EventId&, std::string& out) override { out += token.t; }
  void metrics(const wire::MetricsEvent&, std::string& out) override { out += "metrics"; }
  void end(const wire::EndEvent&, const EventId&, std::string& out) override { out += "."; }
  void error(const wire::ErrorBody& error, const std::optional<EventId>&, std::string& out) override {
    failed_ = true;
    out += error.code;
  }
  void keep_alive(std::string& out) override { out += "alive"; }

 private:
  bool failed_ = false;
};

// Runs what was posted when a test says so.
class HeldExecutor final : public net::Executor {
 public:
  void post(std::function<void()> fn) override { posted_.push_back(std::move(fn)); }
  void post_after(std::int64_t, std::function<void()> fn) override { post(std::move(fn)); }
  void run_one() {
    const auto next = std::move(posted_.front());
    posted_.pop_front();
    next();
  }
  void run() {
    while (!posted_.empty()) run_one();
  }
  std::size_t count() const { return posted_.size(); }

 private:
  std::deque<std::function<void()>> posted_;
};

class StreamHubTest : public testing::Test {
 public:
  StreamHubTest() { restart({}); }
  // As the server does: no exchange outlives it, and with it go the callbacks that hold streams.
  ~StreamHubTest() override {
    for (const auto& exchange : exchanges_) exchange->close(net::CloseReason::kAborted);
  }

 protected:
  void restart(config::StreamConfig limits, std::size_t ticks_per_s = 1) {
    limits_ = limits;
    hub_ = std::make_unique<StreamHub>(
        StreamHub::Options{.limits = limits,
                           .clock = &clock_,
                           .answers = &executor_,
                           .on_clients_gone = [this](const base::JobId& id) { gone_.push_back(id.value); },
                           .on_paused_too_long = [this](const base::JobId& id) { starved_.push_back(id.value); },
                           .on_checkpoints =
                               [this](auto points) {
                                 for (auto& p : points) checkpoints_.push_back(p.job_id.value + ":" + to_string(p.id));
                               },
                           .ticks_per_s = ticks_per_s});
  }
  StreamPtr running(const std::string& id, wire::OnDisconnect policy = wire::OnDisconnect::kCancel,
                    bool is_held = false, const std::string& tenant = {}) {
    StreamPtr stream = hub_->open(base::JobId(id), policy, tenant);
    stream->queued({.job_id = id});
    stream->begin_attempt(is_held);
    stream->started({.job_id = id, .seed = 1});
    return stream;
  }
  void token(const StreamPtr& stream, std::int64_t i, std::string_view t = "x") {
    const TokenView event{.t = t, .i = i};
    EXPECT_TRUE(stream->tokens({&event, 1}, now()));
  }
  std::shared_ptr<FakeExchange> attach(const StreamPtr& stream, std::optional<EventId> last = {}, bool reads = true,
                                       bool observes = false) {
    auto exchange = std::make_shared<FakeExchange>();
    exchange->reads_ = reads;
    exchanges_.push_back(exchange);
    stream->attach({.exchange = exchange,
                    .renderer = std::make_shared<SseRenderer>(),
                    .last_event_id = last,
                    .observes = observes},
                   now());
    return exchange;
  }
  std::shared_ptr<FakeExchange> attach_waiting(const StreamPtr& stream) {
    auto exchange = std::make_shared<FakeExchange>();
    exchanges_.push_back(exchange);
    stream->attach({.exchange = exchange, .renderer = std::make_shared<TextRenderer>(), .headers = {{"X-More", "1"}}},
                   now());
    return exchange;
  }
  StreamPtr running_of(const std::string& tenant, const std::string& id) {
    return running(id, wire::OnDisconnect::kCancel, false, tenant);
  }
  // One whose relay notes in calls_ when it is paused and resumed.
  StreamPtr relayed_of(const std::string& tenant, const std::string& id) {
    StreamPtr stream = running_of(tenant, id);
    hub_->relay_begins(*stream, [this, id](bool paused) { calls_.push_back((paused ? "pause " : "resume ") + id); });
    return stream;
  }
  // One that has ended, with an output that nobody reads.
  void unread_of(const std::string& tenant, const std::string& id, std::size_t bytes) {
    const StreamPtr stream = running_of(tenant, id);
    token(stream, 0, std::string(bytes, 'x'));
    finish(stream);
  }
  bool is_held(const std::string& id) const { return hub_->find(base::JobId(id)) != nullptr; }
  void finish(const StreamPtr& stream) { stream->finish(wire::EndEvent{}, now()); }
  std::int64_t now() const { return clock_.now().mono_ms; }
  void pass(std::int64_t ms) {
    for (; ms > 0; ms -= 1000) {
      clock_.advance_ms(std::min<std::int64_t>(ms, 1000));
      hub_->tick();
    }
  }

  base::ManualClock clock_;
  HeldExecutor executor_;  // of whole answers
  config::StreamConfig limits_;
  std::unique_ptr<StreamHub> hub_;
  std::vector<std::string> gone_, starved_, checkpoints_, calls_;
  std::vector<std::shared_ptr<FakeExchange>> exchanges_;
};

}  // namespace llorch::orchestratord::streams
