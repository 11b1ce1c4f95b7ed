#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "base/entropy.h"
#include "orchestratord/streams/testing/hub_fixture.h"

namespace llorch::orchestratord::streams {
namespace {

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
  EXPECT_LE(slow->queue_.size(), Stream::kUnsentBytesMax);
  EXPECT_TRUE(quick->ended_);
  EXPECT_FALSE(slow->ended_);
  while (!slow->queue_.empty()) slow->take(10'000);
  EXPECT_TRUE(slow->ended_);
  EXPECT_EQ(slow->received_, quick->received_);
}

// Browsers ask again after every end of a stream, and stop at this status alone.
TEST_F(StreamHubTest, AClientThatHoldsTheEndIsToldThatNothingIsLeft) {
  const StreamPtr stream = running("job-1");
  token(stream, 0);
  const EventId last_token{.seq = kFirstTokenSeq, .prefix = stream->terminal_id().prefix};
  EXPECT_EQ(attach(stream, stream->terminal_id())->status_, 200) << "it has not ended";
  finish(stream);
  const auto has_all = attach(stream, stream->terminal_id());
  ASSERT_TRUE(has_all->response_);
  EXPECT_EQ(has_all->response_->status, kNothingLeft);
  EXPECT_EQ(has_all->status_, 0);
  EXPECT_TRUE(has_all->received_.empty());
  has_all->close(net::CloseReason::kFinished);
  EXPECT_EQ(attach(stream, last_token)->names(), std::vector<std::string>{"end"});
  EXPECT_EQ(attach(stream)->names(), (std::vector<std::string>{"queued", "started", "token", "end"}));
  const StreamPtr failed = running("job-2");
  failed->finish(wire::ErrorBody{.code = "TIMEOUT"}, now());
  EXPECT_EQ(failed->error_code(), "TIMEOUT");
  EXPECT_FALSE(stream->error_code());
  EXPECT_EQ(attach(failed, failed->terminal_id())->response_.value().status, kNothingLeft);
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
  executor_.run();
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
  executor_.run();
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

TEST_F(StreamHubTest, AClientThatBreaksOffDuringTheEndKeepsTheBuffer) {
  const StreamPtr stream = running("job-1");
  const auto client = attach(stream);
  finish(stream);
  client->close(net::CloseReason::kPeerGone);
  EXPECT_NE(hub_->find(base::JobId("job-1")), nullptr);
  EXPECT_TRUE(gone_.empty()) << "a finished job cannot be cancelled";
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
