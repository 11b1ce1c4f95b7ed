// Whole answers: made one after another on a thread of their own, for as many clients as may read one stream.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <new>

#include "orchestratord/streams/testing/hub_fixture.h"

namespace llorch::orchestratord::streams {
namespace {

// While it is made the stream is everybody's: a renderer that asks it would wait for its lock for ever.
class AskingRenderer : public Renderer {
 public:
  explicit AskingRenderer(StreamPtr stream) : stream_(std::move(stream)) {}
  bool streams() const override { return false; }
  Head head() const override { return {}; }
  void queued(const wire::QueuedEvent&, const EventId&, std::string&) override {}
  void started(const wire::StartedEvent&, const EventId&, std::string&) override {}
  void token(const TokenView& token, const EventId&, std::string& out) override { out += token.t; }
  void metrics(const wire::MetricsEvent&, std::string&) override {}
  void end(const wire::EndEvent&, const EventId&, std::string& out) override {
    out += stream_->progress().finished ? "." : "?";
    lets_go_ = stream_->let_go(true);
  }
  void error(const wire::ErrorBody&, const std::optional<EventId>&, std::string&) override {}
  void keep_alive(std::string&) override {}

  bool lets_go_ = false;

 private:
  const StreamPtr stream_;
};

TEST_F(StreamHubTest, WholeAnswersAreMadeAwayFromTheThreadThatEndsTheJob) {
  const StreamPtr stream = running("job-1");
  const auto client = attach_waiting(stream);
  token(stream, 0, "a");
  finish(stream);
  EXPECT_FALSE(client->response_);
  EXPECT_EQ(executor_.count(), 1u);
  executor_.run();
  ASSERT_TRUE(client->response_);
  EXPECT_EQ(client->response_->body, "a.");
  const auto late = attach_waiting(stream);
  EXPECT_FALSE(late->response_) << "whoever asks again is answered there, too";
  executor_.run();
  EXPECT_EQ(late->response_->body, "a.");
}

TEST_F(StreamHubTest, AWholeAnswerIsMadeWithoutTheLockOfItsStream) {
  const StreamPtr stream = running("job-1");
  auto exchange = std::make_shared<FakeExchange>();
  exchanges_.push_back(exchange);
  const auto renderer = std::make_shared<AskingRenderer>(stream);
  stream->attach({.exchange = exchange, .renderer = renderer}, now());
  token(stream, 0, "a");
  finish(stream);
  executor_.run();
  EXPECT_EQ(exchange->response_->body, "a.");
  EXPECT_FALSE(renderer->lets_go_) << "its tokens are being read";
  EXPECT_EQ(renderer.use_count(), 1) << "it holds as much as the answer";
}

// Kept responses gather a stream: it comes at once, and nobody waits for it.
TEST_F(StreamHubTest, APartOfOursThatReadsAStreamIsNotWaitedFor) {
  const StreamPtr stream = running("job-1");
  const auto client = attach(stream);
  const auto ours = std::make_shared<FakeExchange>();
  exchanges_.push_back(ours);
  stream->attach({.exchange = ours, .renderer = std::make_shared<SseRenderer>(), .goes_first = true}, now());
  token(stream, 0, "a");
  finish(stream);
  EXPECT_TRUE(ours->ended_);
  EXPECT_TRUE(client->ended_);
}

// It came behind a client, as after a restart, and has its answer before that one is told the end.
TEST_F(StreamHubTest, APartOfOursThatCameLaterIsWaitedFor) {
  const StreamPtr stream = running("job-1");
  const auto client = attach(stream);
  const auto ours = std::make_shared<FakeExchange>();
  exchanges_.push_back(ours);
  stream->attach({.exchange = ours, .renderer = std::make_shared<TextRenderer>(), .goes_first = true}, now());
  token(stream, 0, "a");
  finish(stream);
  EXPECT_FALSE(client->ended_);
  executor_.run();
  EXPECT_TRUE(ours->response_);
  EXPECT_TRUE(client->ended_);
}

// As where memory is short: that client is told, and everybody else has an answer.
TEST_F(StreamHubTest, AnAnswerThatALibraryFailsInHoldsUpNoOther) {
  class Failing final : public AskingRenderer {
   public:
    using AskingRenderer::AskingRenderer;
    void end(const wire::EndEvent&, const EventId&, std::string&) override { throw std::bad_alloc(); }
  };
  const StreamPtr stream = running("job-1");
  auto exchange = std::make_shared<FakeExchange>();
  exchanges_.push_back(exchange);
  stream->attach({.exchange = exchange, .renderer = std::make_shared<Failing>(stream)}, now());
  const auto other = attach_waiting(stream);
  finish(stream);
  executor_.run();
  executor_.run();
  ASSERT_TRUE(exchange->error_);
  EXPECT_EQ(exchange->error_->code, base::ErrorCode::kInternal);
  ASSERT_TRUE(other->response_);
  EXPECT_TRUE(stream->let_go(true)) << "no answer is being made";
}

// However many answers one tenant has made, another one's is the next but one, and what comes to the executor goes between them.
TEST_F(StreamHubTest, TenantsHaveTheirAnswersMadeByTurns) {
  std::vector<std::shared_ptr<FakeExchange>> heavy;
  for (int i = 0; i < 3; ++i) {
    const StreamPtr stream = running_of("heavy", fmt::format("heavy-{}", i));
    heavy.push_back(attach_waiting(stream));
    finish(stream);
  }
  const StreamPtr light = running_of("light", "light");
  const auto client = attach_waiting(light);
  finish(light);
  EXPECT_EQ(executor_.count(), 1u) << "one at a time";
  bool has_had_its_turn = false;
  executor_.post([&] { has_had_its_turn = true; });
  executor_.run_one();
  EXPECT_TRUE(heavy[0]->response_);
  executor_.run_one();
  EXPECT_TRUE(has_had_its_turn);
  executor_.run_one();
  EXPECT_TRUE(client->response_);
  EXPECT_FALSE(heavy[1]->response_);
  executor_.run();
  EXPECT_TRUE(heavy[1]->response_ && heavy[2]->response_);
}

TEST_F(StreamHubTest, NothingIsMadeForAClientThatHasGone) {
  const StreamPtr stream = running("job-1"), other = running("job-2");
  const auto client = attach_waiting(stream), stays = attach_waiting(other);
  finish(stream);
  client->close(net::CloseReason::kPeerGone);
  finish(other);
  executor_.run();
  EXPECT_FALSE(client->response_);
  EXPECT_TRUE(stays->response_);
}

// What is done with the answer is begun before a client can ask for it.
TEST_F(StreamHubTest, ClientsAreToldTheEndBehindAnAnswerThatGoesFirst) {
  const StreamPtr stream = running("job-1");
  auto ours = std::make_shared<FakeExchange>();
  exchanges_.push_back(ours);
  stream->attach({.exchange = ours, .renderer = std::make_shared<TextRenderer>(), .goes_first = true}, now());
  const auto client = attach(stream);
  token(stream, 0);
  finish(stream);
  EXPECT_EQ(client->names(), (std::vector<std::string>{"queued", "started", "token"}));
  executor_.run();
  EXPECT_TRUE(ours->response_);
  EXPECT_EQ(client->names(), (std::vector<std::string>{"queued", "started", "token", "end"}));
}

// Past the hard limit, too: it frees its memory by itself, as soon as it is made.
TEST_F(StreamHubTest, AnAnswerThatIsDueIsMadeWhateverMemoryIsThere) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 100'000;
  restart(limits);
  const StreamPtr stream = running_of("heavy", "job-1");
  const auto client = attach_waiting(stream);
  for (int i = 0; i < 30; ++i) token(stream, i, std::string(10'000, 'x'));
  finish(stream);
  hub_->tick();
  hub_->abort_clients();
  EXPECT_FALSE(client->aborted_);
  executor_.run();
  EXPECT_EQ(client->response_->body.size(), 300'001u);
  hub_->tick();
  EXPECT_FALSE(is_held("job-1"));
}

TEST_F(StreamHubTest, TheNewestClientsOfACallerReadAStream) {
  const StreamPtr stream = running("job-1");
  const auto reads_as = [&](const std::string& account, bool streams) {
    auto exchange = std::make_shared<FakeExchange>();
    exchanges_.push_back(exchange);
    std::shared_ptr<Renderer> renderer;
    if (streams) {
      renderer = std::make_shared<SseRenderer>();
    } else {
      renderer = std::make_shared<TextRenderer>();
    }
    stream->attach({.exchange = exchange, .renderer = std::move(renderer), .account = account}, now());
    return exchange;
  };
  const auto other = reads_as("operator", true);
  std::vector<std::shared_ptr<FakeExchange>> waiting;
  for (std::size_t i = 0; i < Stream::kReadersMax + 2; ++i) waiting.push_back(reads_as("tenant", false));
  for (const std::size_t i : {0u, 1u}) {
    ASSERT_TRUE(waiting[i]->error_) << i;
    EXPECT_EQ(waiting[i]->error_->code, base::ErrorCode::kConflict);
    waiting[i]->close(net::CloseReason::kFinished);
  }
  EXPECT_EQ(stream->progress().clients_count, Stream::kReadersMax + 1);
  token(stream, 0);
  EXPECT_EQ(other->names(), (std::vector<std::string>{"queued", "started", "token"}));
  finish(stream);
  executor_.run();
  for (std::size_t i = 2; i < waiting.size(); ++i) EXPECT_TRUE(waiting[i]->response_) << i;
  EXPECT_TRUE(gone_.empty());
}

TEST_F(StreamHubTest, WhoOnlyLooksOnGivesWayToAClientThatTheJobIsFor) {
  const StreamPtr stream = running("job-1");
  std::vector<std::shared_ptr<FakeExchange>> own;
  for (std::size_t i = 0; i + 1 < Stream::kReadersMax; ++i) own.push_back(attach(stream));
  const auto observer = attach(stream, {}, true, /*observes=*/true);
  const auto next = attach(stream, {}, true, /*observes=*/true);
  EXPECT_TRUE(observer->ended_);
  own.push_back(attach(stream));
  EXPECT_TRUE(next->ended_);
  const auto last = attach(stream, {}, true, /*observes=*/true);
  ASSERT_TRUE(last->error_);
  EXPECT_EQ(last->error_->code, base::ErrorCode::kConflict);
  for (const auto& client : own) EXPECT_FALSE(client->ended_);
  EXPECT_EQ(stream->progress().clients_count, Stream::kReadersMax);
}

TEST_F(StreamHubTest, AStreamThatIsReadAnewSendsItsOldestClientAway) {
  const StreamPtr stream = running("job-1");
  const auto told = attach(stream), stuck = attach(stream, {}, /*reads=*/false);
  token(stream, 0);
  std::vector<std::shared_ptr<FakeExchange>> later;
  for (std::size_t i = 0; i < Stream::kReadersMax; ++i) later.push_back(attach(stream));
  EXPECT_EQ(told->names().back(), "error");
  EXPECT_NE(told->received_.find("CONFLICT"), std::string::npos);
  EXPECT_TRUE(told->ended_);
  EXPECT_TRUE(stuck->aborted_) << "whatever it has not read is not followed by a word";
  for (const auto& client : {told, stuck}) client->close(net::CloseReason::kAborted);
  later.front()->close(net::CloseReason::kPeerGone);
  attach(stream);
  EXPECT_FALSE(later[1]->ended_) << "one that has gone counts no more";
  EXPECT_TRUE(gone_.empty());
}

// Such a format's last event says how the job ended. Whoever takes that for the job's end never comes back for the rest.
TEST_F(StreamHubTest, AClientWhoseFormatHasNoWordForItsOwnEndIsCutOff) {
  class Wordless final : public SseRenderer {
    void error(const wire::ErrorBody& error, const std::optional<EventId>& id, std::string& out) override {
      if (id) SseRenderer::error(error, id, out);
    }
  };
  const StreamPtr stream = running("job-1");
  const auto reads = [&](std::optional<EventId> last_event_id) {
    auto exchange = std::make_shared<FakeExchange>();
    exchanges_.push_back(exchange);
    stream->attach({.exchange = exchange, .renderer = std::make_shared<Wordless>(), .last_event_id = last_event_id},
                   now());
    return exchange;
  };
  const auto oldest = reads({});
  token(stream, 0);
  for (std::size_t i = 0; i < Stream::kReadersMax; ++i) attach(stream);
  const auto diverged = reads(EventId{.seq = kFirstTokenSeq, .prefix = 1});
  for (const auto& client : {oldest, diverged}) {
    EXPECT_TRUE(client->aborted_);
    EXPECT_FALSE(client->ended_) << "what it got is no whole stream";
  }
  EXPECT_EQ(oldest->names(), (std::vector<std::string>{"queued", "started", "token"}));
  EXPECT_TRUE(diverged->received_.empty());
  const auto rest = reads({});
  finish(stream);
  EXPECT_EQ(rest->names().back(), "end");
}

TEST_F(StreamHubTest, WhatAJobWaitsForIsToldByOne) {
  const StreamPtr stream = running("job-1");
  attach(stream);
  EXPECT_FALSE(stream->begin_telling()) << "nobody asked";
  const auto asks = [&] {
    auto exchange = std::make_shared<FakeExchange>();
    exchanges_.push_back(exchange);
    stream->attach({.exchange = exchange, .renderer = std::make_shared<SseRenderer>(), .verbose = true}, now());
    return exchange;
  };
  const auto first = asks();
  EXPECT_TRUE(stream->begin_telling());
  stream->metrics({.phase = "WAITING_FOR_SLOT"}, now());
  const auto second = asks();
  EXPECT_FALSE(stream->begin_telling());
  const std::vector<std::string> heard{"queued", "started", "metrics"};
  EXPECT_EQ(first->names(), heard);
  EXPECT_EQ(second->names(), heard) << "it hears the newest as it comes";
  first->close(net::CloseReason::kPeerGone);
  EXPECT_TRUE(stream->wants_telling()) << "the other one still does";
  second->close(net::CloseReason::kPeerGone);
  EXPECT_FALSE(stream->wants_telling());
  asks();
  EXPECT_TRUE(stream->begin_telling());
  stream->end_telling();
  EXPECT_TRUE(stream->begin_telling());
}

}  // namespace
}  // namespace llorch::orchestratord::streams
