#include "orchestratord/streams/stream_hub.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "base/entropy.h"
#include "net/sse/sse.h"
#include "orchestratord/streams/replay/sse_renderer.h"

namespace llorch::orchestratord::streams {
namespace {

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
                           .on_clients_gone = [this](const base::JobId& id) { gone_.push_back(id.value); },
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
  config::StreamConfig limits_;
  std::unique_ptr<StreamHub> hub_;
  std::vector<std::string> gone_, checkpoints_, calls_;
  std::vector<std::shared_ptr<FakeExchange>> exchanges_;
};

TEST_F(StreamHubTest, SeveralClientsReadOneStream) {
  const StreamPtr stream = running("job-1");
  const auto early = attach(stream);
  token(stream, 0);
  const auto late = attach(stream);
  token(stream, 1);
  finish(stream);
  EXPECT_EQ(early->received_, late->received_);
  EXPECT_EQ(early->names(), (std::vector<std::string>{"queued", "started", "token", "token", "end"}));
  EXPECT_TRUE(early->ended_);
  EXPECT_EQ(early->status_, 200);
}

TEST_F(StreamHubTest, AHeldStreamTellsAllOfItAtItsRelease) {
  const StreamPtr stream = hub_->open(base::JobId("job-1"), wire::OnDisconnect::kCancel);
  stream->queued({.job_id = "job-1"});
  const auto client = attach(stream);
  stream->begin_attempt(true);
  stream->started({.job_id = "job-1", .seed = 1});
  token(stream, 0);
  const auto late = attach(stream);
  EXPECT_EQ(client->names(), std::vector<std::string>{"queued"});
  EXPECT_TRUE(late->names().empty());
  stream->release();
  EXPECT_EQ(client->names(), (std::vector<std::string>{"queued", "started", "token"}));
  token(stream, 1);
  finish(stream);
  EXPECT_EQ(client->names(), (std::vector<std::string>{"queued", "started", "token", "token", "end"}));
  EXPECT_EQ(late->received_, client->received_);
}

// What ends is told whole: its last row is on the disk.
TEST_F(StreamHubTest, TheEndReleasesAHeldStream) {
  const StreamPtr stream = running("job-1", wire::OnDisconnect::kCancel, true);
  const auto client = attach(stream);
  token(stream, 0);
  EXPECT_TRUE(client->names().empty());
  finish(stream);
  EXPECT_EQ(client->names(), (std::vector<std::string>{"queued", "started", "token", "end"}));
}

// SSE-1003/1004: a slow client bounds its own socket queue, never the worker, and loses nothing.
TEST_F(StreamHubTest, ASlowClientPullsFromTheBuffer) {
  const StreamPtr stream = running("job-1");
  const auto slow = attach(stream);
  const auto quick = attach(stream);
  slow->reads_ = false;
  for (int i = 0; i < 2000; ++i) token(stream, i, std::string(1000, 'x'));
  finish(stream);
  EXPECT_LE(slow->queue_.size(), 512u << 10);
  EXPECT_TRUE(quick->ended_);
  EXPECT_FALSE(slow->ended_);
  while (!slow->queue_.empty()) slow->take(10'000);
  EXPECT_TRUE(slow->ended_);
  EXPECT_EQ(slow->received_, quick->received_);
}

// A client that waits for the whole holds no bytes, hears nothing before the end, and counts as any other does.
TEST_F(StreamHubTest, AWaitingClientGetsOneAnswer) {
  const StreamPtr stream = running("job-1");
  const auto early = attach_waiting(stream);
  EXPECT_TRUE(early->released_) << "it may wait for long";
  for (int i = 0; i < 20'000; ++i) token(stream, i, "0123456789");
  stream->metrics({.tokens_out = 1}, now());
  pass(10 * limits_.slow_client_timeout_ms);
  EXPECT_FALSE(early->response_);
  EXPECT_FALSE(early->aborted_);
  finish(stream);
  const auto late = attach_waiting(stream);
  for (const auto& client : {early, late}) {
    ASSERT_TRUE(client->response_);
    EXPECT_EQ(client->response_->status, 200);
    EXPECT_EQ(client->response_->headers.get("Content-Type"), "text/plain");
    EXPECT_EQ(client->response_->headers.get("X-More"), "1");
    EXPECT_EQ(client->response_->body.size(), 200'001u);
    EXPECT_TRUE(client->received_.empty());
  }
}

TEST_F(StreamHubTest, AWaitingClientIsToldHowTheJobFailedOrCancelsIt) {
  const StreamPtr failing = running("job-1"), left = running("job-2");
  const auto client = attach_waiting(failing);
  failing->seal();
  failing->finish(wire::ErrorBody{.code = "TIMEOUT", .message = "m"}, now());
  EXPECT_EQ(client->response_->status, 504);
  EXPECT_EQ(client->response_->body, "TIMEOUT");
  attach_waiting(left)->close(net::CloseReason::kPeerGone);
  EXPECT_EQ(gone_, std::vector<std::string>{"job-2"});
}

// Who looks at another one's job may go, and takes neither the job nor its stream along.
TEST_F(StreamHubTest, AnObserverGoesAsItCame) {
  const StreamPtr stream = running("job-1"), kept = running("job-2", wire::OnDisconnect::kResume);
  for (const StreamPtr& one : {stream, kept})
    attach(one, {}, true, /*observes=*/true)->close(net::CloseReason::kPeerGone);
  pass(2 * limits_.reconnect_grace_ms);
  EXPECT_TRUE(gone_.empty());
  token(stream, 0);
  const auto observer = attach(stream, {}, true, /*observes=*/true);
  finish(stream);
  EXPECT_TRUE(observer->ended_);
  observer->close(net::CloseReason::kFinished);
  pass(2 * limits_.reconnect_grace_ms);
  EXPECT_EQ(hub_->find(base::JobId("job-1")), stream) << "nobody it was for has read it";
  attach(stream)->close(net::CloseReason::kFinished);
  pass(2 * limits_.reconnect_grace_ms);
  EXPECT_EQ(hub_->find(base::JobId("job-1")), nullptr);
  attach(kept)->close(net::CloseReason::kPeerGone);
  pass(2 * limits_.reconnect_grace_ms);
  EXPECT_EQ(gone_, std::vector<std::string>{"job-2"});
}

TEST_F(StreamHubTest, NoProgressCountsAsADisconnect) {
  const StreamPtr stream = running("job-1");
  const auto client = attach(stream);
  client->reads_ = false;
  token(stream, 0);
  pass(limits_.slow_client_timeout_ms - 1000);
  EXPECT_FALSE(client->aborted_);
  client->take(1);  // slow is not stuck
  pass(limits_.slow_client_timeout_ms - 1000);
  EXPECT_FALSE(client->aborted_);
  pass(2000);
  EXPECT_TRUE(client->aborted_);
  client->close(net::CloseReason::kAborted);
  EXPECT_EQ(gone_, std::vector<std::string>{"job-1"});
}

// The hub leaves a finished stream alone for a long time; one who comes back for it and stops reading still goes.
TEST_F(StreamHubTest, AStuckReaderOfAFinishedStreamIsCutOff) {
  const StreamPtr stream = running("job-1");
  for (int i = 0; i < 4; ++i) token(stream, i, std::string(100'000, 'x'));
  finish(stream);
  pass(2000);
  const auto client = attach(stream, {}, /*reads=*/false);
  EXPECT_FALSE(client->ended_) << "more than a socket takes";
  pass(2 * limits_.slow_client_timeout_ms);
  EXPECT_TRUE(client->aborted_);
}

// OC-CTRL-2027: comments keep an idle connection alive and break no parser.
TEST_F(StreamHubTest, KeepAliveCommentsOnlyWhenIdle) {
  const StreamPtr stream = running("job-1");
  const auto client = attach(stream);
  pass(limits_.keep_alive_ms - 1000);
  EXPECT_EQ(client->received_.find("keep-alive"), std::string::npos);
  token(stream, 0);
  pass(limits_.keep_alive_ms - 1000);
  EXPECT_EQ(client->received_.find("keep-alive"), std::string::npos);
  pass(1000);
  EXPECT_NE(client->received_.find(": keep-alive\n\n"), std::string::npos);
  EXPECT_EQ(client->names().size(), 3u);
}

// SYS-7.4.1: when the last client goes, the job is cancelled at once; a job that no client attached to runs on.
TEST_F(StreamHubTest, DisconnectCancelsAtOnceByDefault) {
  const StreamPtr lonely = running("lonely");
  const StreamPtr stream = running("job-1");
  const auto a = attach(stream), b = attach(stream);
  a->close(net::CloseReason::kPeerGone);
  EXPECT_TRUE(gone_.empty());
  b->close(net::CloseReason::kPeerGone);
  EXPECT_EQ(gone_, std::vector<std::string>{"job-1"});
  pass(60'000);
  EXPECT_EQ(gone_.size(), 1u);
}

TEST_F(StreamHubTest, DisconnectWithResumeWaitsForTheGrace) {
  const StreamPtr stream = running("job-1", wire::OnDisconnect::kResume);
  attach(stream)->close(net::CloseReason::kPeerGone);
  pass(limits_.reconnect_grace_ms - 1000);
  const auto back = attach(stream);
  pass(60'000);
  EXPECT_TRUE(gone_.empty());
  back->close(net::CloseReason::kPeerGone);
  pass(limits_.reconnect_grace_ms);
  EXPECT_EQ(gone_, std::vector<std::string>{"job-1"});
}

TEST_F(StreamHubTest, AClientWithAForeignIdDoesNotCancelTheJob) {
  const StreamPtr stream = running("job-1");
  const auto stranger = attach(stream, EventId{1, 42});
  EXPECT_TRUE(stranger->ended_);
  EXPECT_NE(stranger->received_.find("REPLAY_DIVERGED"), std::string::npos);
  stranger->close(net::CloseReason::kFinished);
  EXPECT_TRUE(gone_.empty());
}

TEST_F(StreamHubTest, AForeignIdDoesNotEndTheGrace) {
  const StreamPtr stream = running("job-1", wire::OnDisconnect::kResume);
  attach(stream)->close(net::CloseReason::kPeerGone);
  pass(1000);
  attach(stream, EventId{1, 42})->close(net::CloseReason::kFinished);
  pass(limits_.reconnect_grace_ms);
  EXPECT_EQ(gone_, std::vector<std::string>{"job-1"});
}

TEST_F(StreamHubTest, AStopCutsOffOnlyWhoWaitsForMore) {
  const StreamPtr done = running("done"), open = running("open");
  const auto complete = attach(done), waiting = attach(open);
  finish(done);
  hub_->abort_clients();
  EXPECT_FALSE(complete->aborted_) << "its terminal event may still be on its way";
  EXPECT_TRUE(waiting->aborted_);
}

// The buffer stays for retain_ms, or for the grace of a client that was sent all of it.
TEST_F(StreamHubTest, TheBufferGoesWhenReadOrWhenOld) {
  const StreamPtr read = running("read");
  const auto reader = attach(read);
  const StreamPtr unread = running("unread");
  token(unread, 0);
  finish(read);
  finish(unread);
  EXPECT_NE(hub_->find(base::JobId("read")), nullptr);
  reader->close(net::CloseReason::kFinished);
  pass(limits_.reconnect_grace_ms - 1000);
  EXPECT_NE(hub_->find(base::JobId("read")), nullptr);
  pass(1000);
  EXPECT_EQ(hub_->find(base::JobId("read")), nullptr);
  pass(limits_.retain_ms - limits_.reconnect_grace_ms - 1000);
  EXPECT_NE(hub_->find(base::JobId("unread")), nullptr);
  pass(1000);
  EXPECT_EQ(hub_->find(base::JobId("unread")), nullptr);
  EXPECT_TRUE(gone_.empty());
}

// SYS-7.5.1: the kernel had taken the end for a client whose connection then broke; it comes back and finds the rest.
TEST_F(StreamHubTest, WhatTheKernelTookIsNotYetRead) {
  const StreamPtr stream = running("job-1");
  const auto broken = attach(stream);
  token(stream, 0, "a");
  const EventId held = stream->progress().id;
  token(stream, 1, "b");
  finish(stream);
  broken->close(net::CloseReason::kFinished);
  const StreamPtr found = hub_->find(base::JobId("job-1"));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(attach(found, held)->names(), (std::vector<std::string>{"token", "end"}));
}

// What waits for a client's return is the first to go: it never makes a worker wait.
TEST_F(StreamHubTest, SentStreamsGoWhenMemoryIsShort) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 400'000;
  restart(limits);
  const auto run_to_the_end = [&](const std::string& id) {
    const StreamPtr stream = running(id);
    token(stream, 0, std::string(30'000, 'x'));
    const auto client = attach(stream);
    finish(stream);
    client->close(net::CloseReason::kFinished);
  };
  for (int i = 0; i < 10; ++i) run_to_the_end("sent-" + std::to_string(i));
  EXPECT_LE(hub_->gauges().bytes_held, limits.buffer_bytes_max / 4);
  EXPECT_EQ(hub_->find(base::JobId("sent-0")), nullptr);
  EXPECT_NE(hub_->find(base::JobId("sent-9")), nullptr);
  const StreamPtr live = running("live");
  int paused = 0;
  hub_->relay_begins(*live, [&](bool) { ++paused; });
  while (hub_->gauges().bytes_held <= limits.buffer_bytes_max && hub_->find(base::JobId("sent-9")) != nullptr) {
    token(live, live->progress().tokens_count, std::string(20'000, 'x'));
  }
  EXPECT_EQ(hub_->find(base::JobId("sent-9")), nullptr);
  EXPECT_EQ(paused, 0);
  hub_->relay_ends(*live);
}

TEST_F(StreamHubTest, SentStreamsOfATenantWithinItsShareStay) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 400'000;
  restart(limits);
  const auto run_to_the_end = [&](const std::string& tenant, const std::string& id) {
    const StreamPtr stream = running_of(tenant, id);
    token(stream, 0, std::string(30'000, 'x'));
    const auto client = attach(stream);
    finish(stream);
    client->close(net::CloseReason::kFinished);
  };
  run_to_the_end("light", "mine");
  for (int i = 0; i < 10; ++i) run_to_the_end("heavy", "sent-" + std::to_string(i));
  EXPECT_LE(hub_->gauges().bytes_held, limits.buffer_bytes_max / 4);
  EXPECT_FALSE(is_held("sent-0"));
  EXPECT_TRUE(is_held("sent-9"));
  EXPECT_TRUE(is_held("mine"));
  const StreamPtr live = relayed_of("heavy", "live");
  for (int i = 0; i < 25; ++i) token(live, i, std::string(20'000, 'x'));
  EXPECT_GT(hub_->gauges().bytes_held, limits.buffer_bytes_max);
  EXPECT_FALSE(is_held("sent-9"));
  EXPECT_TRUE(is_held("mine"));
}

TEST_F(StreamHubTest, OfManySentStreamsThoseOfWhoHasMostGo) {
  const auto run_to_the_end = [&](const std::string& tenant, const std::string& id) {
    const StreamPtr stream = running_of(tenant, id);
    const auto client = attach(stream);
    finish(stream);
    client->close(net::CloseReason::kFinished);
  };
  run_to_the_end("light", "mine");
  for (int i = 0; i < 4100; ++i) run_to_the_end("heavy", "sent-" + std::to_string(i));
  EXPECT_FALSE(is_held("sent-4"));
  EXPECT_TRUE(is_held("sent-5"));
  EXPECT_TRUE(is_held("mine"));
}

TEST_F(StreamHubTest, AClientThatBreaksOffDuringTheEndKeepsTheBuffer) {
  const StreamPtr stream = running("job-1");
  const auto client = attach(stream);
  finish(stream);
  client->close(net::CloseReason::kPeerGone);
  EXPECT_NE(hub_->find(base::JobId("job-1")), nullptr);
  EXPECT_TRUE(gone_.empty()) << "a finished job cannot be cancelled";
}

TEST_F(StreamHubTest, PastTheMemoryLimitTheNewestRelayIsPaused) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 100'000;
  restart(limits);
  std::vector<std::string> calls;
  const StreamPtr old = running("old"), young = running("young");
  hub_->relay_begins(*old, [&](bool paused) { calls.push_back(paused ? "pause old" : "resume old"); });
  hub_->relay_begins(*young, [&](bool paused) { calls.push_back(paused ? "pause young" : "resume young"); });
  for (int i = 0; i < 200; ++i) token(old, i, std::string(1000, 'x'));
  EXPECT_EQ(calls, std::vector<std::string>{"pause young"});
  EXPECT_EQ(hub_->gauges().relays_paused, 1);
  EXPECT_GT(hub_->gauges().bytes_held, 200'000);
  hub_->relay_ends(*old);
  hub_->tick();
  EXPECT_EQ(calls.back(), "resume young");
  finish(old);
  hub_->forget(base::JobId("old"));
}

TEST_F(StreamHubTest, UnreadOutputsOfATenantHoldUpNobodyElse) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 400'000;
  restart(limits);
  relayed_of("heavy", "oldest");
  relayed_of("heavy", "young");
  const StreamPtr other = relayed_of("light", "other");
  for (int i = 0; i < 5; ++i) unread_of("heavy", "unread-" + std::to_string(i), 90'000);
  for (int i = 0; i < 20; ++i) token(other, i, std::string(1000, 'x'));
  EXPECT_EQ(calls_, std::vector<std::string>{"pause young"});
  pass(limits.slow_client_timeout_ms - 1000);
  EXPECT_TRUE(is_held("unread-0")) << "its reader may be slow";
  pass(1000);
  EXPECT_FALSE(is_held("unread-0"));
  EXPECT_FALSE(is_held("unread-1"));
  EXPECT_TRUE(is_held("unread-2")) << "there is room";
  EXPECT_EQ(calls_, (std::vector<std::string>{"pause young", "resume young"}));
}

TEST_F(StreamHubTest, AReaderOfAnEndedStreamHasTheTimeOfASlowClientWhereMemoryIsShort) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 1'000'000;
  restart(limits);
  relayed_of("heavy", "oldest");
  relayed_of("heavy", "young");  // is paused meanwhile
  const StreamPtr stream = running_of("heavy", "job-1");
  const auto quick = attach(stream);
  const auto slow = attach(stream, {}, /*reads=*/false);
  for (int i = 0; i < 110; ++i) token(stream, i, std::string(10'000, 'x'));
  finish(stream);
  EXPECT_TRUE(quick->ended_);
  const auto read_for = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      slow->take(1000);
      pass(1000);
    }
  };
  read_for(29);
  EXPECT_FALSE(slow->aborted_);
  read_for(1);
  EXPECT_TRUE(slow->aborted_);
  EXPECT_FALSE(quick->aborted_) << "it has the end";
  EXPECT_FALSE(is_held("job-1"));
  EXPECT_LT(hub_->gauges().bytes_held, 1000);
  const auto late = attach(stream);  // found it a moment ago
  ASSERT_TRUE(late->error_);
  EXPECT_EQ(late->error_->code, base::ErrorCode::kStreamOffsetGone);
  EXPECT_TRUE(late->received_.empty());
  slow->take(slow->queue_.size());
  EXPECT_FALSE(slow->ended_) << "what it got is no whole stream";
}

// Past the limit too, as long as no relay waits for the room; what nobody reads goes.
TEST_F(StreamHubTest, AReaderOfAnEndedStreamReadsOnWhereNoRelayIsPaused) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 1'000'000;
  restart(limits);
  const StreamPtr oldest = relayed_of("heavy", "oldest");
  const StreamPtr stream = running_of("heavy", "job-1");
  const auto slow = attach(stream, {}, /*reads=*/false);
  for (int i = 0; i < 110; ++i) token(stream, i, std::string(10'000, 'x'));
  finish(stream);
  unread_of("heavy", "unread", 90'000);
  const auto read_for = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      slow->take(1000);
      pass(1000);
    }
  };
  read_for(30);
  EXPECT_FALSE(is_held("unread"));
  EXPECT_FALSE(slow->aborted_);
  read_for(60);
  EXPECT_FALSE(slow->aborted_);
  EXPECT_TRUE(is_held("job-1"));
  EXPECT_TRUE(calls_.empty());
  relayed_of("heavy", "young");
  token(oldest, 0);
  EXPECT_EQ(calls_, (std::vector<std::string>{"pause young", "resume young"}));
  EXPECT_TRUE(slow->aborted_);
  EXPECT_FALSE(is_held("job-1"));
}

// Where there is room for it, a slow reader reads for as long as it likes.
TEST_F(StreamHubTest, ASlowReaderOfAnEndedStreamReadsOnWhereMemoryIsNotShort) {
  const StreamPtr stream = running_of("heavy", "job-1");
  const auto slow = attach(stream, {}, /*reads=*/false);
  for (int i = 0; i < 100; ++i) token(stream, i, std::string(10'000, 'x'));
  finish(stream);
  for (int i = 0; i < 100; ++i) {
    slow->take(1000);
    pass(1000);
  }
  EXPECT_FALSE(slow->aborted_);
  EXPECT_TRUE(is_held("job-1"));
}

TEST_F(StreamHubTest, PastTwiceTheLimitTheOutputsOfWhoHoldsMostGoAtOnce) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 400'000;
  restart(limits);
  relayed_of("heavy", "oldest");
  relayed_of("heavy", "young");
  const StreamPtr other = relayed_of("light", "other");
  unread_of("light", "mine", 90'000);
  for (int i = 0; i < 20; ++i) {
    unread_of("heavy", "unread-" + std::to_string(i), 90'000);
    token(other, i, std::string(1000, 'x'));
    EXPECT_LE(hub_->gauges().bytes_held, 2 * limits.buffer_bytes_max);
  }
  EXPECT_FALSE(is_held("unread-0"));
  EXPECT_TRUE(is_held("unread-19"));
  EXPECT_TRUE(is_held("mine"));
  EXPECT_EQ(calls_, std::vector<std::string>{"pause young"});
}

// A stream that was sent to one client's end, and that another one reads slowly, is neither let go nor forgotten unseen.
TEST_F(StreamHubTest, ASentStreamThatIsReadAgainIsStillLookedAt) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 1'000'000;
  restart(limits);
  StreamPtr stream = running("job-1");
  for (int i = 0; i < 35; ++i) token(stream, i, std::string(10'000, 'x'));
  const auto quick = attach(stream), stuck = attach(stream, {}, /*reads=*/false);
  finish(stream);
  quick->close(net::CloseReason::kFinished);  // a quarter of the limit is for sent streams
  EXPECT_TRUE(is_held("job-1"));
  pass(limits.slow_client_timeout_ms);
  EXPECT_TRUE(stuck->aborted_);
  stuck->close(net::CloseReason::kAborted);
  pass(limits.slow_client_timeout_ms);
  EXPECT_FALSE(is_held("job-1"));
  stream.reset();
  EXPECT_EQ(hub_->gauges().bytes_held, 0);
}

// Whatever tenants write, read and leave unread: memory has its bound, jobs end, and whoever was told the end has all of it.
TEST_F(StreamHubTest, WhateverIsHeldHasABound) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 300'000;
  constexpr std::int64_t kJobTokens = 20;
  constexpr std::size_t kTokenBytes = 2000;
  // A log grows to 64 KiB at most; one may have grown past the limit before the others pause, and the oldest goes on.
  const std::int64_t bound = 3 * limits.buffer_bytes_max + 2 * (70 << 10);
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    restart(limits);
    base::SeededEntropy entropy(seed);
    const auto below = [&](std::uint64_t n) { return entropy.next_u64() % n; };
    std::map<int, StreamPtr> live;
    std::set<int> paused;
    std::vector<std::shared_ptr<FakeExchange>> readers;
    int next = 0, ended = 0;
    for (int step = 0; step < 3000 || !live.empty(); ++step) {
      ASSERT_LT(step, 200'000) << "jobs that never end, seed " << seed;
      if (step < 3000 && live.size() < 12 && below(4) == 0) {
        const int id = next++;
        const StreamPtr stream = running_of("tenant-" + std::to_string(below(3)), "job-" + std::to_string(id));
        hub_->relay_begins(*stream, [&paused, id](bool pauses) {
          EXPECT_EQ(pauses, paused.insert(id).second);
          if (!pauses) paused.erase(id);
        });
        live[id] = stream;
        if (below(2) == 0) readers.push_back(attach(stream, {}, /*reads=*/below(2) == 0));
      }
      if (below(10) == 0) hub_->tick();
      if (live.empty()) continue;
      const auto at = std::next(live.begin(), static_cast<std::ptrdiff_t>(below(live.size())));
      const auto [id, stream] = *at;
      if (paused.contains(id)) continue;
      if (const std::int64_t tokens = stream->progress().tokens_count; tokens < kJobTokens) {
        token(stream, tokens, std::string(kTokenBytes, 'x'));
      } else {
        hub_->relay_ends(*stream);
        finish(stream);
        live.erase(at);
        ++ended;
      }
      ASSERT_LE(hub_->gauges().bytes_held, bound) << "seed " << seed;
    }
    EXPECT_EQ(ended, next);
    std::size_t whole = 0;
    for (const auto& reader : readers) {
      while (!reader->aborted_ && !reader->queue_.empty()) reader->take(10'000);
      if (!reader->ended_) continue;
      ++whole;
      EXPECT_EQ(reader->names().size(), kJobTokens + 3);
    }
    EXPECT_GT(whole, 0u);
    for (const auto& reader : readers) reader->close(net::CloseReason::kAborted);
  }
}

// A job that runs out of time meanwhile says why: before its row is written, and in the same words to its clients.
TEST_F(StreamHubTest, TheTimeThatARelayWasPausedIsTold) {
  const StreamPtr stream = running("job-1");
  EXPECT_EQ(stream->paused_ms(), 0);
  stream->relay_paused(true, now());
  pass(5000);
  stream->relay_paused(false, now());
  pass(5000);
  stream->relay_paused(true, now());
  pass(2000);
  EXPECT_EQ(stream->paused_ms(), 7000);
  stream->seal();
  pass(5000);
  stream->relay_paused(true, now());
  pass(5000);
  stream->relay_paused(false, now());
  EXPECT_EQ(stream->paused_ms(), 7000);

  const base::Error timeout{base::ErrorCode::kTimeout, "The wall limit ran out.", {}};
  const base::Error told = with_pause(timeout, 7000);
  EXPECT_NE(told.message.find("paused for 7000 ms"), std::string::npos) << told.message;
  ASSERT_EQ(told.details.size(), 1u);
  EXPECT_EQ(told.details[0].first, "paused_ms");
  EXPECT_EQ(with_pause(timeout, 0).message, timeout.message);
  EXPECT_EQ(with_pause({base::ErrorCode::kCancelled, "m", {}}, 7000).message, "m");
}

TEST_F(StreamHubTest, CheckpointsTellWhatMoved) {
  const StreamPtr stream = running("job-1");
  pass(1000);
  EXPECT_TRUE(checkpoints_.empty());
  token(stream, 0);
  token(stream, 1);
  pass(2000);
  ASSERT_EQ(checkpoints_.size(), 1u);
  EXPECT_EQ(checkpoints_[0].substr(0, 8), "job-1:3-");
}

// OC-CTRL-2027: whatever other streams do, whenever it was opened, and also when the time is shorter than a second.
TEST_F(StreamHubTest, AKeepAliveIsDueByTheStreamsOwnClock) {
  config::StreamConfig limits;
  limits.keep_alive_ms = 150;
  restart(limits, 20);
  const auto count = [](const std::string& text) {
    std::size_t n = 0;
    for (auto at = text.find(": keep-alive\n\n"); at != std::string::npos; at = text.find(": keep-alive\n\n", at + 1))
      ++n;
    return n;
  };
  const auto tick = [&] {
    clock_.advance_ms(50);
    hub_->tick();
  };
  for (int i = 0; i < 30; ++i) running("other-" + std::to_string(i));
  tick();
  const StreamPtr stream = running("job-1");
  tick();
  const auto client = attach(stream);  // between two looks
  for (std::size_t comments = 0; comments < 3; ++comments) {
    tick();
    tick();
    EXPECT_EQ(count(client->received_), comments);
    tick();
    EXPECT_EQ(count(client->received_), comments + 1);
  }
  token(stream, 0);
  tick();
  tick();
  EXPECT_EQ(count(client->received_), 3u) << "a token counts as well";
  tick();
  EXPECT_EQ(count(client->received_), 4u);
}

TEST_F(StreamHubTest, NoKeepAliveWhereItIsSwitchedOff) {
  config::StreamConfig limits;
  limits.keep_alive_ms = 0;
  restart(limits);
  const auto client = attach(running("job-1"));
  pass(60'000);
  EXPECT_EQ(client->received_.find("keep-alive"), std::string::npos);
}

TEST_F(StreamHubTest, StreamsOpenedTogetherAreLookedAtInDifferentTicks) {
  restart({}, 4);
  for (int i = 0; i < 10; ++i) token(running("job-" + std::to_string(i)), 0);
  std::vector<std::size_t> told;
  const auto pass_a_second = [&] {
    told.clear();
    for (int tick = 0; tick < 4; ++tick) {
      clock_.advance_ms(250);
      hub_->tick();
      told.push_back(checkpoints_.size());
    }
  };
  pass_a_second();
  EXPECT_EQ(told, (std::vector<std::size_t>{3, 6, 8, 10}));
  EXPECT_EQ(std::set(checkpoints_.begin(), checkpoints_.end()).size(), 10u) << "each of them once";
  pass_a_second();
  EXPECT_EQ(checkpoints_.size(), 10u) << "none moved";
}

// OC-CTRL-2023: metrics are additive, unnumbered, and only the newest is sent.
TEST_F(StreamHubTest, MetricsCarryNoId) {
  const StreamPtr stream = running("job-1");
  const auto client = attach(stream);
  stream->metrics({.queue_depth = 3, .on_time_probability = 1.0}, now());
  token(stream, 0);
  EXPECT_EQ(client->names(), (std::vector<std::string>{"queued", "started", "metrics", "token"}));
  EXPECT_NE(client->received_.find("event: metrics\ndata: {\"queue_depth\":3"), std::string::npos) << client->received_;
}

}  // namespace
}  // namespace llorch::orchestratord::streams
