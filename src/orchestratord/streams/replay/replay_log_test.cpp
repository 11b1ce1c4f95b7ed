#include "orchestratord/streams/replay/replay_log.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iterator>

#include "base/file.h"
#include "base/utf8.h"
#include "net/sse/sse.h"
#include "orchestratord/streams/replay/sse_renderer.h"
#include "orchestratord/streams/replay/token_json.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace llorch::orchestratord::streams {
namespace {

using base::ErrorCode;

wire::QueuedEvent queued_event() { return {.job_id = "job-1", .queue_position = 2, .predicted_start_ms = 150}; }
wire::StartedEvent started_event() {
  return {.job_id = "job-1",
          .worker_id = "worker-1",
          .model = "demo",
          .started_at = "2026-01-02T03:04:05.678Z",
          .seed = 7,
          .queue_wait_ms = 12};
}
const wire::EndEvent kEnd{.job_id = "job-1", .tokens_in = 3, .tokens_out = 3, .decode_time_ms = 9, .first_token_ms = 4};
wire::ErrorBody error_event(std::string code, std::string message = "m") {
  return {.code = std::move(code), .message = std::move(message)};
}

ReplayLog log_with(const std::vector<std::string>& tokens) {
  ReplayLog log;
  log.queued(queued_event());
  log.started(started_event());
  log.begin_attempt();
  for (std::size_t i = 0; i < tokens.size(); ++i)
    EXPECT_TRUE(log.token({.t = tokens[i], .i = static_cast<std::int64_t>(i)}));
  return log;
}

// Everything a client with this cursor is sent until it has to wait or the stream ends.
struct Read {
  std::string bytes;
  Next last = Next::kWait;
};
Read read_all(const ReplayLog& log, Cursor& cursor, std::size_t bytes_max = 64) {
  Read out;
  SseRenderer renderer;
  do {
    std::string bytes;
    out.last = advance(log, cursor, renderer, bytes_max, bytes);
    out.bytes += bytes;
  } while (out.last == Next::kMore);
  return out;
}

std::string terminal_of(const ReplayLog& log) {
  SseRenderer renderer;
  std::string out;
  log.render_terminal(renderer, out);
  return out;
}

std::string event_of(const ReplayLog& log, std::int64_t seq) {
  SseRenderer renderer;
  std::string out;
  log.render(seq, renderer, out);
  return out;
}

void expect_golden(const std::string& name, const std::string& actual) {
  const std::string path = std::string(LLORCH_SOURCE_DIR) + "/src/orchestratord/streams/replay/golden/" + name;
  if (std::getenv("LLORCH_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << actual;
  const auto expected = base::read_file(path, 1 << 20);
  ASSERT_TRUE(expected) << path;
  EXPECT_EQ(actual, *expected) << "run with LLORCH_UPDATE_GOLDEN=1 after a meant change";
}

// SYS-5.1.3, OC-CTRL-2022, ORCH-2002, ORCH-3029: the order of events, their ids and their bytes.
TEST(ReplayLog, ACompletedStream) {
  ReplayLog log = log_with({"Once", "", " upon\n\"a\""});
  log.finish(kEnd);
  Cursor cursor = attach(std::nullopt);
  const Read read = read_all(log, cursor);
  EXPECT_EQ(read.last, Next::kLast);
  expect_golden("completed.sse", read.bytes);
}

TEST(ReplayLog, AStreamCancelledInTheQueue) {
  ReplayLog log;
  log.queued(queued_event());
  log.seal();
  log.finish(error_event("CANCELLED", "the job was cancelled"));
  Cursor cursor = attach(std::nullopt);
  expect_golden("cancelled_in_queue.sse", read_all(log, cursor).bytes);
}

// h is the running SHA-256 over u32 i, u32 length, text; this test computes it a second time.
TEST(ReplayLog, IdsCarryTheRunningHash) {
  const ReplayLog log = log_with({"a", "", "\xC3\xA9"});
  std::string prefix;
  const auto h = [&prefix] { return base::to_hex(base::sha256(prefix)).substr(0, 16); };
  EXPECT_EQ(to_string(log.id_of(0)), "0-" + h());
  EXPECT_EQ(to_string(log.id_of(1)), "1-" + h());
  prefix += std::string("\0\0\0\0\1\0\0\0a", 9);
  EXPECT_EQ(to_string(log.id_of(2)), "2-" + h());
  prefix += std::string("\1\0\0\0\0\0\0\0", 8);
  EXPECT_EQ(to_string(log.id_of(3)), "3-" + h());
  prefix += std::string("\2\0\0\0\2\0\0\0\xC3\xA9", 10);
  EXPECT_EQ(to_string(log.id_of(4)), "4-" + h());
  EXPECT_EQ(to_string(log.terminal_id()), "5-" + h());
}

TEST(EventId, ParsesWhatItWritesAndNothingElse) {
  const EventId id{123, 0x00ab'cdef'0123'4567};
  EXPECT_EQ(parse_event_id(to_string(id)).value(), id);
  for (const char* bad :
       {"", "-", "5", "5-", "-0123456789abcdef", "5-0123456789abcde", "5-0123456789abcdef0", "5-0123456789ABCDEF",
        "+5-0123456789abcdef", " 5-0123456789abcdef", "5-0123456789abcdeg", "9999999999999999999-0123456789abcdef"}) {
    EXPECT_EQ(parse_event_id(bad).error().code, ErrorCode::kInvalidParams) << bad;
  }
}

// The fast encoder against the contract's.
TEST(TokenJson, EqualsTheContractsEncoder) {
  EXPECT_TRUE(rc::check("token json", [](const std::string& raw, std::uint32_t i) {
    const std::string t = base::is_valid_utf8(raw) ? raw : std::string(raw.size(), '\x1f');
    std::string out;
    append_token_json(out, {.t = t, .i = i});
    RC_ASSERT(out == wire::encode(wire::TokenEvent{.t = t, .i = i}));
  }));
  for (int c = 0; c < 0x80; ++c) {
    std::string out;
    const std::string t(1, static_cast<char>(c));
    append_token_json(out, {.t = t, .i = 0});
    EXPECT_EQ(out, wire::encode(wire::TokenEvent{.t = t, .i = 0})) << c;
  }
}

// The fast reader against the contract's: what it takes means the same there, and what it leaves leaves no trace.
TEST(TokenJson, ReadsWhatItTakesAsTheContractDoes) {
  const auto agrees = [](const std::string& json) {
    std::string text = "before";
    const auto numbers = read_token_json(json, text);
    if (!numbers) return text == "before";
    const auto token = wire::decode<wire::WorkerTokenEvent>(json, wire::UnknownKeys::kRefuse);
    if (!token || token->id.has_value() != numbers->id.has_value()) return false;
    return token->i == numbers->i && (!token->id || *token->id == base::index(*numbers->id)) &&
           "before" + token->t == text && !token->logprobs;
  };
  for (const char* json : {R"({"t":"a","i":0})",
                           R"({"t":"","i":12})",
                           R"({"t":"\n\"\\\/\b\f\r\t","i":1})",
                           R"({"t":"\u0041","i":1})",
                           R"({"t":"a","i":-1})",
                           R"({"t":"a","i":01})",
                           R"({"t":"a","i":})",
                           R"({"t":"a","i":1)",
                           R"({"t":"a","i":1}})",
                           R"({"t":"a","i":1.0})",
                           R"({"t":"a","i":99999999999999999999})",
                           R"({"t":"a","i")",
                           R"({"t":"a\)",
                           R"({"t":")",
                           "",
                           R"({"t":"a","i":1,"logprobs":{}})",
                           R"({"i":1,"t":"a"})",
                           "{\"t\":\"\xc3\",\"i\":1}",
                           "{\"t\":\"\x01\",\"i\":1}",
                           "{\"t\":\"\xc3\xa9\",\"i\":1}",
                           R"({"t":"a","i":+1})",
                           R"({"t":"a","i":1 })",
                           R"({"t":"a","i":1,"id":7})",
                           R"({"t":"a","i":1,"id":2147483647})",
                           R"({"t":"a","i":1,"id":2147483648})",
                           R"({"t":"a","i":1,"id":-1})",
                           R"({"t":"a","i":1,"id":})",
                           R"({"t":"a","i":1,"id":7,"id":7})",
                           R"({"t":"a","id":7,"i":1})",
                           R"({"t":"a","i":1,"id":7,"logprobs":{}})"}) {
    EXPECT_TRUE(agrees(json)) << json;
  }
  EXPECT_TRUE(rc::check("token json read", [&](const std::string& raw, std::uint32_t i, std::uint8_t at, char changed) {
    const std::string t = base::is_valid_utf8(raw) ? raw : std::string(raw.size(), '\n');
    std::string json, text;
    append_token_json(json, {.t = t, .i = i});
    const bool plain = std::none_of(t.begin(), t.end(), [](unsigned char c) {
      return c < 0x20 && c != '\b' && c != '\f' && c != '\n' && c != '\r' && c != '\t';
    });
    RC_ASSERT(!plain || read_token_json(json, text) == TokenNumbers{.i = i});
    RC_ASSERT(!plain || text == t);
    if (plain) {
      const wire::WorkerTokenEvent whole{.t = t, .i = i, .id = i % 1000, .logprobs = {}};
      std::string again;
      RC_ASSERT(read_token_json(wire::encode(whole), again) ==
                (TokenNumbers{.i = i, .id = base::TokenId{static_cast<std::uint32_t>(i % 1000)}}));
      RC_ASSERT(again == t);
    }
    json[at % json.size()] = changed;
    RC_ASSERT(agrees(json));
  }));
}

TEST(TokenJson, LogprobsStandLast) {
  const wire::TokenLogprobs logprobs{.id = 1, .logprob = -0.25, .token = "a", .bytes = {97}, .top_logprobs = {}};
  std::string out;
  append_token_json(out, {.t = "a", .i = 3, .logprobs = wire::encode(logprobs)});
  EXPECT_EQ(out, wire::encode(wire::TokenEvent{.t = "a", .i = 3, .logprobs = logprobs}));
}

// The hash is over i and t only, so a client that asks for logprobs holds the same ids.
TEST(ReplayLog, LogprobsAreNoPartOfTheIds) {
  ReplayLog plain = log_with({"a", "b"});
  ReplayLog with = log_with({});
  ASSERT_TRUE(with.token({.t = "a", .i = 0, .logprobs = R"({"id":1})"}));
  ASSERT_TRUE(with.token({.t = "b", .i = 1, .logprobs = R"({"id":2})"}));
  EXPECT_EQ(with.terminal_id(), plain.terminal_id());
  Cursor cursor = attach(std::nullopt);
  EXPECT_NE(read_all(with, cursor).bytes.find(R"({"t":"b","i":1,"logprobs":{"id":2}})"), std::string::npos);
  with.begin_attempt();
  EXPECT_TRUE(with.token({.t = "a", .i = 0, .logprobs = R"({"id":1})"}));
  EXPECT_EQ(with.token({.t = "b", .i = 1, .logprobs = R"({"id":3})"}).error().code, ErrorCode::kReplayDiverged);
}

// Promise 3: a retry's tokens are compared one by one; clients see no second start, no gap, no duplicate.
// What a log holds counts against its tenant: a string that doubles would hold twice its text.
TEST(ReplayLog, ALongLogHoldsLittleMoreThanItsTokens) {
  ReplayLog log = log_with({});
  const std::string text(1000, 'x');
  for (std::int64_t i = 0; i < 5600; ++i) {
    ASSERT_TRUE(log.token({.t = text, .i = i}));
    ASSERT_LE(log.bytes_held(), static_cast<std::size_t>(i + 1) * 1024 * 5 / 4 + (70 << 10)) << i;
  }
  log.finish(kEnd);
  log.drop_tokens();
  EXPECT_LT(log.bytes_held(), 100u);
}

TEST(ReplayLog, ARetryContinuesWhereTheFirstAttemptBroke) {
  ReplayLog log = log_with({"a", "b"});
  Cursor cursor = attach(std::nullopt);
  std::string seen = read_all(log, cursor).bytes;
  log.started(started_event());
  log.begin_attempt();
  EXPECT_TRUE(log.token({.t = "a", .i = 0}));
  EXPECT_TRUE(log.token({.t = "b", .i = 1}));
  EXPECT_EQ(read_all(log, cursor).bytes, "");
  EXPECT_TRUE(log.token({.t = "c", .i = 2}));
  seen += read_all(log, cursor).bytes;
  Cursor fresh = attach(std::nullopt);
  EXPECT_EQ(seen, read_all(log_with({"a", "b", "c"}), fresh).bytes);
}

TEST(ReplayLog, ARetryWithOtherTokensIsRefused) {
  ReplayLog log = log_with({"a", "b"});
  log.begin_attempt();
  EXPECT_TRUE(log.token({.t = "a", .i = 0}));
  EXPECT_EQ(log.token({.t = "x", .i = 1}).error().code, ErrorCode::kReplayDiverged);
  EXPECT_EQ(log.tokens_count(), 2);
}

// The id is no part of the hash and not on the wire of /v2; a retry that draws another token diverges all the same.
TEST(ReplayLog, TheIdsOfTokensAreHeldAndCompared) {
  ReplayLog log = log_with({});
  ASSERT_TRUE(log.token({.t = "a", .i = 0, .id = base::TokenId{7}}));
  EXPECT_EQ(log.terminal_id(), log_with({"a"}).terminal_id());
  EXPECT_EQ(event_of(log, 2), event_of(log_with({"a"}), 2));
  log.begin_attempt();
  EXPECT_TRUE(log.token({.t = "a", .i = 0, .id = base::TokenId{7}}));
  log.begin_attempt();
  EXPECT_EQ(log.token({.t = "a", .i = 0, .id = base::TokenId{8}}).error().code, ErrorCode::kReplayDiverged);
}

// A long text costs its bytes and 24 for each token.
TEST(ReplayLog, HoldsTokensAndNothingThatIsMadeOfThem) {
  ReplayLog log = log_with({});
  constexpr std::int64_t kTokens = 1 << 12;
  for (std::int64_t i = 0; i < kTokens; ++i) ASSERT_TRUE(log.token({.t = " word", .i = i, .id = base::TokenId{1}}));
  EXPECT_LE(log.bytes_held(), static_cast<std::size_t>(2 * kTokens * (5 + 24))) << "buffers grow by doubling";
}

TEST(ReplayLog, TokensOutOfSequenceAreAWorkerFault) {
  ReplayLog log = log_with({"a"});
  EXPECT_EQ(log.token({.t = "c", .i = 2}).error().code, ErrorCode::kWorkerReset);
  EXPECT_EQ(log.token({.t = "a", .i = 0}).error().code, ErrorCode::kWorkerReset);
  EXPECT_TRUE(log.token({.t = "b", .i = 1}));
}

// ORCH-3026, SSE-1002: after the seal no client is sent a token, held or new.
TEST(ReplayLog, ASealedStreamSendsNoMoreTokens) {
  ReplayLog log = log_with({"a", "b", "c"});
  Cursor slow = attach(std::nullopt);
  SseRenderer renderer;
  std::string held;
  for (int event = 0; event < 3; ++event) (void)advance(log, slow, renderer, 1, held);  // queued, started, a
  Cursor fresh = attach(std::nullopt);
  log.seal();
  EXPECT_TRUE(log.token({.t = "d", .i = 3}));
  log.finish(error_event("CANCELLED"));
  EXPECT_EQ(read_all(log, slow).bytes, terminal_of(log));
  const std::string all = read_all(log, fresh, 1 << 20).bytes;
  EXPECT_EQ(all.find("event: token"), std::string::npos) << all;
  EXPECT_NE(all.find("event: started"), std::string::npos) << all;
}

// ---- reconnecting -------------------------------------------------------------------------------------------------

// Numbers its own events, so that what it says of one depends on those before.
class CountingRenderer final : public Renderer {
 public:
  bool streams() const override { return true; }
  Head head() const override { return {}; }
  void queued(const wire::QueuedEvent&, const EventId&, std::string& out) override { say("queued", out); }
  void started(const wire::StartedEvent&, const EventId&, std::string& out) override { say("started", out); }
  void token(const TokenView& token, const EventId&, std::string& out) override { say(token.t, out); }
  void metrics(const wire::MetricsEvent&, std::string&) override {}
  void end(const wire::EndEvent&, const EventId&, std::string& out) override { say("end", out); }
  void error(const wire::ErrorBody&, const std::optional<EventId>&, std::string& out) override { say("error", out); }
  void keep_alive(std::string&) override {}

 private:
  void say(std::string_view what, std::string& out) { out.append(std::to_string(++count_)).append(what).append(";"); }
  int count_ = 0;
};

// Leaves each event but the first for more(), in two halves.
class LeavingRenderer final : public Renderer {
 public:
  bool streams() const override { return true; }
  Head head() const override { return {}; }
  void queued(const wire::QueuedEvent&, const EventId&, std::string& out) override { out += "queued;"; }
  void started(const wire::StartedEvent&, const EventId&, std::string&) override { leave("started"); }
  void token(const TokenView& token, const EventId&, std::string&) override { leave(std::string(token.t)); }
  void metrics(const wire::MetricsEvent&, std::string&) override {}
  void end(const wire::EndEvent&, const EventId&, std::string&) override { leave("end"); }
  void error(const wire::ErrorBody&, const std::optional<EventId>&, std::string&) override { leave("error"); }
  void keep_alive(std::string&) override {}
  bool more(std::string& out) override {
    if (left_.empty()) return false;
    out += left_.front();
    left_.pop_front();
    return true;
  }

 private:
  void leave(const std::string& what) {
    EXPECT_TRUE(left_.empty()) << "what was left comes before the next event";
    left_.insert(left_.end(), {what + "-1;", what + "-2;"});
  }
  std::deque<std::string> left_;
};

TEST(ReplayLog, EventsThatARendererLeavesComeOneAtATimeAndInOrder) {
  ReplayLog log = log_with({"a", "b"});
  LeavingRenderer renderer;
  Cursor cursor = attach(std::nullopt);
  std::vector<std::string> parts;
  const auto read = [&](std::size_t bytes_max) {
    std::string bytes;
    const Next next = advance(log, cursor, renderer, bytes_max, bytes);
    if (!bytes.empty()) parts.push_back(bytes);
    return next;
  };
  while (read(1) == Next::kMore) continue;
  EXPECT_EQ(read(1), Next::kWait);
  log.finish(kEnd);
  while (read(1) == Next::kMore) continue;
  EXPECT_EQ(read(1), Next::kLast) << "the end is told once";
  EXPECT_EQ(parts, (std::vector<std::string>{"queued;", "started-1;", "started-2;", "a-1;", "a-2;", "b-1;", "b-2;",
                                             "end-1;", "end-2;"}));
  for (std::int64_t held = 0; held < log.events_count(); ++held) {
    LeavingRenderer rest;
    Cursor resumed = attach(log.id_of(held));
    std::string lacking;
    while (advance(log, resumed, rest, 1, lacking) == Next::kMore) continue;
    EXPECT_EQ(std::ranges::count(lacking, ';'), 2 * (log.events_count() - held)) << lacking;
  }
}

TEST(Reconnect, ARendererWithStateIsReplayedAndSaysOnlyWhatTheClientLacks) {
  ReplayLog log = log_with({"a", "b", "c"});
  log.finish(kEnd);
  for (std::int64_t held = 0; held < log.events_count(); ++held) {
    CountingRenderer whole, rest;
    Cursor from_begin = attach(std::nullopt), resumed = attach(log.id_of(held));
    std::string all, lacking;
    while (advance(log, from_begin, whole, 1, all) == Next::kMore) continue;
    while (advance(log, resumed, rest, 1, lacking) == Next::kMore) continue;
    EXPECT_EQ(all, "1queued;2started;3a;4b;5c;6end;");
    EXPECT_TRUE(all.ends_with(lacking)) << lacking;
    EXPECT_EQ(std::ranges::count(lacking, ';'), log.events_count() - held);
  }
}

TEST(Reconnect, WrongPrefixIsTold) {
  const ReplayLog log = log_with({"a", "b"});
  for (const EventId held : {EventId{0, 1}, EventId{1, 1}, EventId{2, log.id_of(3).prefix}}) {
    Cursor cursor = attach(held);
    EXPECT_EQ(read_all(log, cursor).last, Next::kDiverged);
  }
}

// SYS-7.5.1: after a restart a client that is ahead of the replay waits, and goes on when the replay proves it right.
TEST(Reconnect, AClientAheadOfTheReplayWaits) {
  const ReplayLog before = log_with({"a", "b", "c", "d"});
  ReplayLog after = log_with({"a"});
  Cursor cursor = attach(before.id_of(4));  // holds a, b, c
  EXPECT_EQ(read_all(after, cursor).last, Next::kWait);
  ASSERT_TRUE(after.token({.t = "b", .i = 1}));
  EXPECT_EQ(read_all(after, cursor).bytes, "");
  ASSERT_TRUE(after.token({.t = "c", .i = 2}));
  EXPECT_EQ(read_all(after, cursor).bytes, "");
  ASSERT_TRUE(after.token({.t = "d", .i = 3}));
  EXPECT_EQ(read_all(after, cursor).bytes, event_of(before, 5));
}

TEST(Reconnect, AReplayThatTellsAnotherTaleIsTold) {
  const ReplayLog before = log_with({"a", "b", "c"});
  ReplayLog other = log_with({"a", "x"});
  Cursor cursor = attach(before.id_of(4));
  EXPECT_EQ(read_all(other, cursor).last, Next::kWait);
  ASSERT_TRUE(other.token({.t = "c", .i = 2}));
  EXPECT_EQ(read_all(other, cursor).last, Next::kDiverged);

  ReplayLog shorter = log_with({"a", "b"});
  Cursor ahead = attach(before.id_of(4));
  shorter.finish(kEnd);
  EXPECT_EQ(read_all(shorter, ahead).last, Next::kDiverged);

  ReplayLog failed = log_with({"a"});
  Cursor waiting = attach(before.id_of(4));
  failed.finish(error_event("TIMEOUT"));
  const Read read = read_all(failed, waiting);
  EXPECT_EQ(read.last, Next::kLast);
  EXPECT_EQ(read.bytes, terminal_of(failed)) << "a failure is told as what it is";
}

TEST(Reconnect, AClientThatHoldsEverythingGetsNothing) {
  ReplayLog log = log_with({"a"});
  log.finish(kEnd);
  Cursor cursor = attach(log.terminal_id());
  const Read read = read_all(log, cursor);
  EXPECT_EQ(read.last, Next::kLast);
  EXPECT_EQ(read.bytes, "");
}

// The server says of events that it no longer holds that they are gone; it never skips them.
TEST(Reconnect, FromTheStoreOnlyTheTerminalEventIsServed) {
  ReplayLog log = log_with({"a", "b"});
  const StoredTerminal terminal{log.terminal_id()};
  EXPECT_EQ(answer_from_store(terminal, std::nullopt), StoredAnswer::kTerminalEvent);
  EXPECT_EQ(answer_from_store(terminal, log.id_of(3)), StoredAnswer::kTerminalEvent);
  EXPECT_EQ(answer_from_store(terminal, log.terminal_id()), StoredAnswer::kNothing);
  EXPECT_EQ(answer_from_store(terminal, log.id_of(2)), StoredAnswer::kOffsetGone);
  EXPECT_EQ(answer_from_store(terminal, EventId{3, 42}), StoredAnswer::kOffsetGone);
  EXPECT_EQ(answer_from_store(terminal, EventId{9, log.id_of(3).prefix}), StoredAnswer::kOffsetGone);
  EXPECT_EQ(answer_from_store(terminal, log.id_of(0)), StoredAnswer::kOffsetGone) << "there were tokens";
}

// There is no `started` between `queued` and the end of a job that ended while it waited.
TEST(Reconnect, WhoHoldsTheQueuedEventOfAJobThatNeverRanLacksItsEndAlone) {
  const ReplayLog queued = log_with({});
  const StoredTerminal terminal{queued.terminal_id()};
  EXPECT_EQ(answer_from_store(terminal, queued.id_of(0)), StoredAnswer::kTerminalEvent);
  EXPECT_EQ(answer_from_store(terminal, EventId{0, 42}), StoredAnswer::kOffsetGone);
}

std::vector<net::sse::Event> events_of(const std::string& bytes) {
  net::sse::Decoder decoder;
  std::vector<net::sse::Event> events;
  EXPECT_TRUE(decoder.feed(bytes, events));
  return events;
}

// SYS-7.5.1, promise 3: for any text, any cuts, any worker losses and any restarts, a client that reconnects with the
// last id it saw holds exactly the events of an undisturbed run.
TEST(Reconnect, AnyDisturbanceGivesTheSameEvents) {
  EXPECT_TRUE(rc::check("any disturbance", [] {
    const int count = *rc::gen::inRange(0, 40);
    std::vector<std::string> tokens;
    for (int i = 0; i < count; ++i)
      tokens.push_back(*rc::gen::element<std::string>("", "a", " tale", "\n", "\"", "\xF0\x9F\xA6\x8A"));
    ReplayLog undisturbed = log_with(tokens);
    undisturbed.finish(kEnd);
    Cursor whole = attach(std::nullopt);
    const std::vector<net::sse::Event> expected = events_of(read_all(undisturbed, whole).bytes);

    SseRenderer renderer;
    auto log = std::make_unique<ReplayLog>();
    log->queued(queued_event());
    std::int64_t at = -1;  // next token of the attempt; -1: not started
    Cursor cursor = attach(std::nullopt);
    std::string inbox;  // what the client received since it connected, whole events and a torn tail
    std::vector<net::sse::Event> held;
    const auto disconnect = [&] {
      for (const net::sse::Event& event : events_of(inbox)) held.push_back(event);
      inbox.clear();
      cursor = attach(held.empty() ? std::nullopt : std::optional(parse_event_id(held.back().id.value()).value()));
    };
    bool read_to_the_end = false;
    for (int steps = 0; !read_to_the_end; ++steps) {
      // Losses end, or a long text is hardly ever whole.
      const bool is_calm = steps >= 500;
      RC_ASSERT(steps < 2000);
      switch (is_calm ? *rc::gen::weightedElement<int>({{12, 0}, {8, 1}})
                      : *rc::gen::weightedElement<int>({{12, 0}, {8, 1}, {2, 2}, {1, 3}, {1, 4}})) {
        case 0:  // the worker goes on
          if (log->finished()) break;
          if (at < 0) {
            log->started(started_event());
            log->begin_attempt();
            at = 0;
          } else if (at < count) {
            RC_ASSERT(log->token({.t = tokens[static_cast<std::size_t>(at)], .i = at}).has_value());
            ++at;
          } else {
            log->finish(kEnd);
          }
          break;
        case 1: {  // the client reads
          std::string bytes;
          const Next next = advance(*log, cursor, renderer, 100, bytes);
          RC_ASSERT(next != Next::kDiverged);
          inbox += bytes;
          read_to_the_end = next == Next::kLast;
          break;
        }
        case 2: {  // the connection breaks, possibly inside an event
          const auto keep = *rc::gen::inRange<std::size_t>(0, inbox.size() + 1);
          inbox.resize(keep);
          disconnect();
          break;
        }
        case 3:  // the worker is lost
          if (!log->finished()) at = -1;
          break;
        default:  // the orchestrator is lost
          if (log->finished()) break;
          log = std::make_unique<ReplayLog>();
          log->queued(queued_event());
          at = -1;
          disconnect();
      }
    }
    disconnect();
    RC_ASSERT(held == expected);
  }));
}

wire::PromptTokenLogprobs prompt_logprobs_of(std::int64_t id) {
  return {.id = id,
          .logprob = id == 1 ? std::nullopt : std::optional(-0.5),
          .token = "p",
          .bytes = {112},
          .top_logprobs = {}};
}

// The prompt's tokens are events like any: numbered, resumed behind, compared when the job is run again.
TEST(ReplayLog, TokensOfThePromptComeFirstAndSayThatTheyAre) {
  const std::string first = wire::encode(prompt_logprobs_of(1)), second = wire::encode(prompt_logprobs_of(2));
  const TokenView prompt[] = {{.t = "", .i = 0, .logprobs = first, .of_prompt = true},
                              {.t = "", .i = 1, .logprobs = second, .of_prompt = true}};
  ReplayLog log = log_with({});
  for (const TokenView& token : prompt) ASSERT_TRUE(log.token(token));
  ASSERT_TRUE(log.token({.t = "a", .i = 2}));
  EXPECT_EQ(log.tokens_count(), 3);
  EXPECT_EQ(log.prompt_tokens_count(), 2);
  EXPECT_EQ(log.token({.t = "", .i = 3, .logprobs = second, .of_prompt = true}).error().code, ErrorCode::kWorkerReset);
  const wire::TokenEvent shown{.i = 1, .prompt_logprobs = prompt_logprobs_of(2)};
  EXPECT_NE(event_of(log, 3).find("data: " + wire::encode(shown) + "\n"), std::string::npos) << event_of(log, 3);
  EXPECT_EQ(event_of(log, 4).find("prompt_logprobs"), std::string::npos);

  log.begin_attempt();
  for (const TokenView& token : prompt) EXPECT_TRUE(log.token(token));
  EXPECT_EQ(log.tokens_count(), 3) << "the same again";
  for (TokenView other : {TokenView{.t = "", .i = 0, .logprobs = second, .of_prompt = true},
                          TokenView{.t = "", .i = 0, .logprobs = first}, TokenView{.t = "", .i = 0}}) {
    log.begin_attempt();
    EXPECT_EQ(log.token(other).error().code, ErrorCode::kReplayDiverged);
  }
}

}  // namespace
}  // namespace llorch::orchestratord::streams
