// What streams hold, whose it is, and who gives way where they hold too much.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "base/entropy.h"
#include "orchestratord/streams/replay/offset_gone.h"
#include "orchestratord/streams/testing/hub_fixture.h"

namespace llorch::orchestratord::streams {
namespace {

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
  const EventId stream_id = stream->terminal_id();
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
  const base::Error said = offset_gone(to_string(stream_id), 1);
  EXPECT_EQ(late->error_->message, said.message);
  EXPECT_EQ(late->error_->details, said.details);
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

// What waits for readers is in no tenant's share, so that of all who read one stream is little: of those that stop while it grows, and
// of those that come for what is there.
TEST_F(StreamHubTest, ReadersThatStopReadingHoldLittleOfAStream) {
  constexpr std::size_t kEventBytesMax = 2000;
  const StreamPtr stream = running("job-1");
  std::vector<std::shared_ptr<FakeExchange>> readers;
  while (readers.size() < Stream::kReadersMax / 2) readers.push_back(attach(stream, {}, /*reads=*/false));
  for (int i = 0; i < 2000; ++i) token(stream, i, std::string(1000, 'x'));
  while (readers.size() < Stream::kReadersMax) readers.push_back(attach(stream, {}, /*reads=*/false));
  finish(stream);
  std::size_t unsent = 0;
  for (const auto& reader : readers) {
    EXPECT_FALSE(reader->aborted_ || reader->ended_);
    unsent += reader->queue_.size();
  }
  EXPECT_LE(unsent, Stream::kReadersMax * (Stream::kUnsentBytesMax + kEventBytesMax));
  EXPECT_LE(Stream::kReadersMax * Stream::kUnsentBytesMax, std::size_t{512} << 10);
}

// Holds the whole output, and closes with events that each repeat it.
class RepeatingRenderer final : public Renderer {
 public:
  static constexpr int kRepeated = 4;
  bool streams() const override { return true; }
  Head head() const override { return {}; }
  void queued(const wire::QueuedEvent&, const EventId&, std::string&) override {}
  void started(const wire::StartedEvent&, const EventId&, std::string&) override {}
  void token(const TokenView& token, const EventId&, std::string& out) override {
    output_ += token.t;
    out += token.t;
  }
  void metrics(const wire::MetricsEvent&, std::string&) override {}
  void end(const wire::EndEvent&, const EventId&, std::string&) override { left_ = kRepeated; }
  void error(const wire::ErrorBody&, const std::optional<EventId>&, std::string&) override {}
  void keep_alive(std::string&) override {}
  bool more(std::string& out) override {
    if (left_ == 0) return false;
    --left_;
    out += output_;
    return true;
  }
  std::size_t bytes_held() const override { return output_.capacity(); }

 private:
  std::string output_;
  int left_ = 0;
};

struct RepeatingReaders : StreamHubTest {
  static constexpr std::size_t kOutputBytes = 1'000'000;
  std::shared_ptr<FakeExchange> attach_repeating(const StreamPtr& stream) {
    auto exchange = std::make_shared<FakeExchange>();
    exchange->reads_ = false;
    exchanges_.push_back(exchange);
    stream->attach({.exchange = exchange, .renderer = std::make_shared<RepeatingRenderer>()}, now());
    return exchange;
  }
  void say(const StreamPtr& stream) {
    for (std::size_t i = 0; i < kOutputBytes / 1000; ++i) {
      token(stream, static_cast<std::int64_t>(i), std::string(1000, 'x'));
    }
  }
};

TEST_F(RepeatingReaders, HoldOneOfTheClosingEventsAtATime) {
  const StreamPtr stream = running("job-1");
  const auto reader = attach_repeating(stream);
  say(stream);
  finish(stream);
  std::size_t unsent = 0;
  while (!reader->ended_) {
    unsent = std::max(unsent, reader->queue_.size());
    ASSERT_FALSE(reader->queue_.empty());
    reader->take(reader->queue_.size());
  }
  reader->take(reader->queue_.size());
  EXPECT_LE(unsent, Stream::kUnsentBytesMax + kOutputBytes);
  EXPECT_EQ(reader->received_.size(), (1 + RepeatingRenderer::kRepeated) * kOutputBytes);
}

// A stop comes while a reader takes the closing events.
TEST_F(RepeatingReaders, GetTheRestOfAnEndedStreamAtAStop) {
  const StreamPtr stream = running("job-1");
  const auto reader = attach_repeating(stream);
  say(stream);
  finish(stream);
  while (reader->received_.size() <= kOutputBytes) reader->take(reader->queue_.size());
  ASSERT_FALSE(reader->ended_);
  stream->abort_clients();
  EXPECT_TRUE(reader->ended_);
  EXPECT_FALSE(reader->aborted_);
  reader->take(reader->queue_.size());
  EXPECT_EQ(reader->received_.size(), (1 + RepeatingRenderer::kRepeated) * kOutputBytes);
}

TEST_F(RepeatingReaders, CountForTheTenantOfTheirStream) {
  const StreamPtr stream = running("job-1");
  const auto reader = attach_repeating(stream);
  say(stream);
  const std::int64_t unread = hub_->gauges().bytes_held;
  reader->reads_ = true;
  reader->take(reader->queue_.size());
  const std::int64_t read = hub_->gauges().bytes_held;
  EXPECT_GE(read - unread, static_cast<std::int64_t>(kOutputBytes) * 9 / 10) << "it holds what it has told";
  finish(stream);
  EXPECT_TRUE(reader->ended_);
  EXPECT_LE(hub_->gauges().bytes_held, read - static_cast<std::int64_t>(kOutputBytes)) << "and nothing behind the end";
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

// What running jobs hold past the hard limit is nobody's for as long as they like, and whoever holds little notices nothing of it.
TEST_F(StreamHubTest, AJobThatIsPausedForLongEndsWhereMemoryStaysShort) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 100'000;
  restart(limits);
  relayed_of("old", "oldest");
  const StreamPtr first = relayed_of("heavy", "first"), second = relayed_of("heavy", "second");
  const StreamPtr mine = relayed_of("light", "mine");
  for (int i = 0; i < 12; ++i) token(first, i, std::string(10'000, 'x'));
  for (int i = 0; i < 9; ++i) token(second, i, std::string(10'000, 'x'));
  token(mine, 0);
  ASSERT_GT(hub_->gauges().bytes_held, 2 * limits.buffer_bytes_max);
  EXPECT_EQ(calls_, (std::vector<std::string>{"pause second", "pause first"}));
  pass(limits.slow_client_timeout_ms - 1000);
  EXPECT_TRUE(starved_.empty());
  pass(1000);
  EXPECT_EQ(starved_, std::vector<std::string>{"second"}) << "the newest of who holds most";
  pass(limits.slow_client_timeout_ms);
  EXPECT_EQ(starved_.size(), 1u) << "it is still on its way to its end";
  hub_->relay_ends(*second);
  finish(second);
  pass(1000);
  EXPECT_FALSE(is_held("second"));
  EXPECT_EQ(calls_.back(), "resume first");
  EXPECT_EQ(starved_.size(), 1u);
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

// The end of a stream reports back to a hub that may be at its own: nothing is looked for or let go then.
TEST_F(StreamHubTest, AHubEndsPastItsLimitWithStreamsOfEveryKind) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 1000;
  restart(limits);
  for (int i = 0; i < 20; ++i) hub_->open(base::JobId(fmt::format("empty-{}", i)), wire::OnDisconnect::kCancel, "a");
  for (int i = 0; i < 20; ++i) unread_of("a", fmt::format("ended-{}", i), 60);
  clock_.advance_ms(limits.slow_client_timeout_ms);  // no tick has looked since
  ASSERT_TRUE(is_held("ended-0"));
  hub_->forget(base::JobId("empty-0"));
  EXPECT_TRUE(is_held("ended-0")) << "the end of a stream is no reason to look";
  hub_.reset();
}

}  // namespace
}  // namespace llorch::orchestratord::streams
