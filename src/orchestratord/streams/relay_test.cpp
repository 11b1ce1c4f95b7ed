// The relay against workers made of real sockets.
#include "orchestratord/streams/relay.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "base/entropy.h"
#include "base/error_detail.h"
#include "base/sha256.h"
#include "net/server.h"
#include "net/sse/sse.h"
#include "orchestratord/streams/replay/sse_renderer.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace llorch::orchestratord::streams {
namespace {

using base::ErrorCode;

// A client that takes everything at once.
class MemoryExchange final : public net::Exchange {
 public:
  explicit MemoryExchange(std::string& seen) : seen_(seen) {}
  bool respond(net::Response) override { return false; }
  bool respond_error(const base::Error&) override { return false; }
  bool start_stream(int, net::http::Headers h) override { return headers = std::move(h), true; }
  bool write(std::string_view bytes) override { return seen_ += bytes, true; }
  bool end() override { return true; }
  void abort() override {}
  std::size_t queued_bytes() const override { return 0; }
  std::uint64_t sent_bytes() const override { return seen_.size(); }
  bool closed() const override { return false; }
  void on_drain(std::size_t, std::function<void()>) override {}
  void on_close(std::function<void(net::CloseReason)>) override {}

  net::http::Headers headers;

 private:
  std::string& seen_;
};

class RelayTest : public testing::Test {
 public:
  ~RelayTest() override {
    server_->stop(0);
    client_.reset();
    relay_.reset();
    runtime_.stop();
  }

 protected:
  RelayTest() {
    server_ = std::make_unique<net::Server>(runtime_, net::ServerOptions{.component = "test-worker"});
    server_->route("POST", "/execute", net::Scope::kPublic,
                   [this](const net::Request& request, const net::ExchangePtr& exchange) {
                     body_ = request.body;
                     correlation_ = request.correlation_id.value;
                     worker_(exchange);
                   });
    server_->route("POST", "/cancel", net::Scope::kPublic,
                   [this](const net::Request& request, const net::ExchangePtr& exchange) {
                     cancel_body_ = request.body;
                     ++cancels_;
                     exchange->respond(net::http::json_response(202, "{}"));
                   });
    EXPECT_TRUE(server_->start());
    hub_ = std::make_unique<StreamHub>(StreamHub::Options{.limits = {}, .clock = &clock_});
    client_ = std::make_unique<net::Client>(runtime_);
    relay_ = std::make_unique<Relay>(
        Relay::Options{.client = client_.get(), .hub = hub_.get(), .clock = &clock_, .boot_id = "b"});
    stream_ = hub_->open(base::JobId("job-1"), wire::OnDisconnect::kResume);
    stream_->queued({.job_id = "job-1"});
  }

  static std::string event(std::string_view name, std::string_view data) {
    std::string out;
    net::sse::append_event(out, {.event = name, .id = {}, .data = data});
    return out;
  }
  static std::string started() { return event("started", R"({"job_id":"job-1","seed":7})"); }
  static std::string token(int i, const std::string& t) {
    return event("token", wire::encode(wire::WorkerTokenEvent{.t = t, .i = i, .id = 100 + i, .logprobs = {}}));
  }
  static std::string end(int tokens) {
    return event("end", R"({"job_id":"job-1","tokens_out":)" + std::to_string(tokens) +
                            R"(,"decode_time_ms":5,"stop_reason":"eos"})");
  }
  // Answers with these bytes, then ends or breaks the stream.
  void worker_sends(std::string bytes, bool complete = true) {
    worker_ = [bytes = std::move(bytes), complete](const net::ExchangePtr& exchange) {
      exchange->start_stream(200, net::http::sse_headers());
      exchange->write(bytes);
      if (complete) {
        exchange->end();
      } else {
        exchange->on_drain(0, [exchange] { exchange->abort(); });
      }
    };
  }
  Relay::Reports::Outcome run(std::uint64_t execution = 1) { return run(order(execution)); }
  Relay::Reports::Outcome run(Relay::Order order) {
    std::promise<Relay::Reports::Outcome> ended;
    relay_->execute(std::move(order), {.started = [this] { ++starts_; },
                                       .progress = [this](std::int64_t n) { progress_ = n; },
                                       .ended = [&](Relay::Reports::Outcome o) { ended.set_value(std::move(o)); }});
    return ended.get_future().get();
  }
  Relay::Order order(std::uint64_t execution) {
    return {.execution = execution,
            .stream = stream_,
            .worker_uri = server_->url(),
            .payload = R"({"job_id":"job-1"})",
            .timeout_ms = 60'000,
            .correlation_id = base::CorrelationId("corr-1"),
            .worker_id = "worker-1",
            .model = "demo",
            .queue_wait_ms = 9,
            .expected = {.seed = 7}};
  }
  std::int64_t tokens_held() const { return stream_->progress().tokens_count; }

  base::SystemClock clock_;
  net::IoRuntime runtime_;
  std::unique_ptr<net::Server> server_;
  std::unique_ptr<StreamHub> hub_;
  std::unique_ptr<net::Client> client_;
  std::unique_ptr<Relay> relay_;
  StreamPtr stream_;
  std::function<void(const net::ExchangePtr&)> worker_;
  std::string body_, cancel_body_, correlation_;
  std::atomic<int> starts_{0}, cancels_{0};
  std::atomic<std::int64_t> progress_{0};
};

// SYS-6.1.1, STREAM-20030: order and meaning of the worker's events are kept; correlation ids go along.
TEST_F(RelayTest, RelaysAWholeJob) {
  worker_sends(started() + token(0, "Once") + ": comment\n\n" + event("metrics", R"({"tokens_out":1})") +
               token(1, " upon") + end(2));
  const auto outcome = run();
  ASSERT_TRUE(outcome.end);
  EXPECT_EQ(outcome.end->tokens_out, 2);
  EXPECT_EQ(outcome.end->job_id, "job-1");
  EXPECT_EQ(outcome.tokens_out, 2);
  EXPECT_EQ(starts_, 1);
  EXPECT_GE(progress_, 1);
  EXPECT_EQ(tokens_held(), 2);
  EXPECT_EQ(body_, R"({"job_id":"job-1","timeout_ms":60000,"execution_id":"b-1"})");
  EXPECT_EQ(correlation_, "corr-1");
}

// ORCH-3460: whoever decides and counts hears of a job's tokens once a second at most, however many there are.
TEST_F(RelayTest, ProgressIsReportedOnceASecond) {
  base::ManualClock clock;
  clock.advance_ms(10'000);
  Relay relay({.client = client_.get(), .hub = hub_.get(), .clock = &clock});
  std::promise<net::ExchangePtr> serving;
  worker_ = [&](const net::ExchangePtr& exchange) { serving.set_value(exchange); };
  std::mutex mutex;
  std::vector<std::int64_t> reports;
  std::promise<Relay::Reports::Outcome> ended;
  relay.execute(order(1), {.started = [] {},
                           .progress =
                               [&](std::int64_t tokens) {
                                 const std::scoped_lock lock(mutex);
                                 reports.push_back(tokens);
                               },
                           .ended = [&](Relay::Reports::Outcome o) { ended.set_value(std::move(o)); }});
  const net::ExchangePtr worker = serving.get_future().get();
  worker->start_stream(200, net::http::sse_headers());
  worker->write(started());
  const auto say = [&](int first, int end) {
    for (int i = first; i < end; ++i) worker->write(token(i, "x"));
    while (tokens_held() < end) std::this_thread::yield();
  };
  say(0, 1);
  say(1, 30);
  clock.advance_ms(999);
  say(30, 31);
  clock.advance_ms(1);
  say(31, 60);
  worker->write(end(60));
  worker->end();
  EXPECT_EQ(ended.get_future().get().tokens_out, 60);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0], 1);
  EXPECT_GT(reports[1], 31);
  client_.reset();  // its callbacks use what is local here
}

// What a worker says of its speed reaches nobody: clients would take it for orchestratord's word.
TEST_F(RelayTest, AWorkersMetricsEndHere) {
  std::string seen;
  stream_->attach({.exchange = std::make_shared<MemoryExchange>(seen),
                   .renderer = std::make_shared<SseRenderer>(),
                   .headers = {{"X-Budget-Tokens-Remaining", "90"}}},
                  0);
  worker_sends(started() + token(0, "Once") + event("metrics", R"({"queue_depth":7,"tokens_budget_remaining":1})") +
               end(1));
  EXPECT_TRUE(run().end);
  EXPECT_NE(seen.find("Once"), std::string::npos) << seen;
  EXPECT_EQ(seen.find("event: metrics"), std::string::npos) << seen;
}

// ORCH-1122: a worker's error keeps its code, before and within the stream.
TEST_F(RelayTest, TheWorkersOwnErrorsAreKept) {
  worker_ = [](const net::ExchangePtr& exchange) { exchange->respond_error({ErrorCode::kWorkerBusy, "no slot", {}}); };
  EXPECT_EQ(run(1).error->code, ErrorCode::kWorkerBusy);
  worker_sends(started() + token(0, "a") + event("error", R"({"code":"VRAM_OOM","message":"m","retriable":false})"));
  const auto outcome = run(2);
  EXPECT_EQ(outcome.error->code, ErrorCode::kVramOom);
  EXPECT_EQ(outcome.tokens_out, 1);
}

// An accepted job is valid: a worker of an older build does not know all of it.
TEST_F(RelayTest, AFieldThatAWorkerDoesNotKnowIsAMatterOfVersions) {
  const auto refuses = [this](const char* reason) {
    worker_ = [reason](const net::ExchangePtr& exchange) {
      exchange->respond_error(base::Error{ErrorCode::kInvalidParams, "later_field is not a known field", {}}
                                  .with("field", std::string("later_field"))
                                  .with("reason", std::string(reason)));
    };
  };
  refuses("unknown");
  const auto error = run(1).error.value();
  EXPECT_EQ(error.code, ErrorCode::kVersionMismatch);
  EXPECT_TRUE(base::has_detail(error, "field", "later_field"));
  refuses("range");
  EXPECT_EQ(run(2).error->code, ErrorCode::kInvalidParams);
}

TEST_F(RelayTest, ABrokenConnectionIsAWorkerReset) {
  worker_sends(started() + token(0, "a"), false);
  EXPECT_EQ(run(1).error->code, ErrorCode::kWorkerReset);
  EXPECT_EQ(tokens_held(), 1);
  worker_sends(started() + token(0, "a"));  // complete HTTP, but no terminal event
  EXPECT_EQ(run(2).error->code, ErrorCode::kWorkerReset);
  for (const std::string& bad :
       {started() + event("token", "{"), token(0, "a"), started() + token(1, "a"), event("started", "[]"),
        started() + event("end", "{}"), started() + event("error", "1"), started() + started(),
        event("started", R"({"job_id":"job-1","seed":8})")}) {
    worker_sends(bad);
    static std::uint64_t execution = 100;
    const auto outcome = run(execution++);
    ASSERT_TRUE(outcome.error) << bad;
    EXPECT_EQ(outcome.error->code, ErrorCode::kWorkerReset) << bad;
  }
  EXPECT_EQ(tokens_held(), 1);
}

// The number of tokens is bounded by the job; what they hold is bounded with it.
TEST_F(RelayTest, LongerTokensThanTokensAreIsAWorkerReset) {
  std::string bytes = started();
  for (int i = 0; i < 3; ++i) bytes += token(i, std::string(500'000, 'x'));
  worker_sends(bytes + end(3));
  Relay::Order asked = order(1);
  asked.tokens_max = 3;
  EXPECT_EQ(run(std::move(asked)).error->code, ErrorCode::kWorkerReset);
}

// Whoever writes a token's alternatives for clients compares each with those before it, on the thread of all streams.
TEST_F(RelayTest, MoreAlternativesThanARequestMayAskForAreAWorkerReset) {
  std::uint64_t execution = 1;
  const auto outcome_of = [&](std::size_t alternatives, bool of_prompt) {
    const std::vector<wire::TokenLogprob> top(alternatives, {.id = 1, .logprob = -1, .token = "t", .bytes = {116}});
    wire::WorkerTokenEvent told{.t = "", .i = 0, .id = 5};
    if (of_prompt) {
      told.prompt_logprobs = wire::PromptTokenLogprobs{.id = 5, .token = "p", .bytes = {112}, .top_logprobs = top};
    } else {
      told.logprobs = wire::TokenLogprobs{.id = 5, .token = "p", .bytes = {112}, .top_logprobs = top};
    }
    worker_sends(started() + event("token", wire::encode(told)) + (of_prompt ? token(1, "a") : "") + end(1));
    const std::string job_id = "job-" + std::to_string(execution + 1);
    stream_ = hub_->open(base::JobId(job_id), wire::OnDisconnect::kResume);
    stream_->queued({.job_id = job_id});
    Relay::Order asked = order(execution++);
    asked.tokens_max = 100;
    asked.prompt_events = of_prompt ? 1 : 0;
    return run(std::move(asked));
  };
  for (const bool of_prompt : {false, true}) {
    const auto most = outcome_of(20, of_prompt);
    EXPECT_TRUE(most.end) << most.error->message;
    const auto more = outcome_of(21, of_prompt);
    ASSERT_TRUE(more.error) << of_prompt;
    EXPECT_EQ(more.error->code, ErrorCode::kWorkerReset);
  }
}

// What is kept of a job's beginning and end is short; nothing of it is said in the core's name.
TEST_F(RelayTest, WhatAWorkerSaysOfAJobIsShort) {
  std::uint64_t execution = 1;
  const auto outcome_of = [&](std::string bytes) {
    worker_sends(std::move(bytes));
    const std::string job_id = "job-" + std::to_string(execution + 1);
    stream_ = hub_->open(base::JobId(job_id), wire::OnDisconnect::kResume);
    stream_->queued({.job_id = job_id});
    return run(execution++);
  };
  const std::string text(100'000, 'x');
  const auto began = outcome_of(event("started", R"({"job_id":"job-1","seed":7,"started_at":")" + text + "\"}"));
  EXPECT_EQ(began.error->code, ErrorCode::kWorkerReset);
  EXPECT_EQ(starts_, 0);
  const auto said = [](const std::string& more) {
    return event("end", R"({"job_id":"job-1","tokens_out":1,"decode_time_ms":5,"stop_reason":"eos")" + more + "}");
  };
  const wire::Receipt receipt{.engine_build = text, .seed = 7};
  const auto ended = outcome_of(started() + token(0, "a") + said(",\"receipt\":" + wire::encode(receipt)));
  ASSERT_TRUE(ended.error);
  EXPECT_EQ(ended.error->code, ErrorCode::kWorkerReset);

  std::string umlauts;
  for (int i = 0; i < 5000; ++i) umlauts += "\u00e4";
  wire::ErrorBody body{.code = "VRAM_OOM", .message = "m" + umlauts};
  body.details.emplace_back("vram_bytes", std::int64_t{7});
  body.details.emplace_back("why", umlauts);
  body.details.emplace_back(text, std::string("why"));
  for (int i = 0; i < 1000; ++i) body.details.emplace_back("k" + std::to_string(i), std::int64_t{i});
  const base::Error error = outcome_of(started() + event("error", wire::encode(body))).error.value();
  EXPECT_EQ(error.code, ErrorCode::kVramOom);
  EXPECT_EQ(error.message.size(), 4095u) << "no half letter";
  EXPECT_LE(error.details.size(), 32u);
  for (const auto& [key, value] : error.details) {
    EXPECT_LE(key.size(), 64u);
    const auto* words = std::get_if<std::string>(&value);
    EXPECT_TRUE(words == nullptr || words->size() == 4096u) << key;
  }
  EXPECT_EQ(error.details[0].first, "vram_bytes");

  const auto told = outcome_of(started() + token(0, "a") + said(",\"tokens_budget_remaining\":1"));
  ASSERT_TRUE(told.end) << told.error->message;
  EXPECT_EQ(told.end->budget, wire::BudgetRemaining{});
}

// Tokens of the prompt are counted apart: none more, none less, and none that adds to the text.
TEST_F(RelayTest, TokensOfThePromptAreThoseThatWereAskedFor) {
  std::uint64_t execution = 1;
  const auto told = [](int i, std::string text = "") {
    return event("token", wire::encode(wire::WorkerTokenEvent{
                              .t = std::move(text),
                              .i = i,
                              .id = 5,
                              .prompt_logprobs = wire::PromptTokenLogprobs{.id = 5, .token = "p", .bytes = {112}}}));
  };
  const auto outcome_of = [&](const std::string& bytes, std::int64_t prompt_events) {
    worker_sends(started() + bytes);
    const std::string job_id = "job-" + std::to_string(execution + 1);
    stream_ = hub_->open(base::JobId(job_id), wire::OnDisconnect::kResume);
    stream_->queued({.job_id = job_id});
    Relay::Order asked = order(execution++);
    asked.tokens_max = 1;
    asked.prompt_events = prompt_events;
    return run(std::move(asked));
  };
  const auto whole = outcome_of(told(0) + told(1) + token(2, "a") + end(1), 2);
  ASSERT_TRUE(whole.end) << whole.error->message;
  EXPECT_EQ(whole.tokens_out, 1);
  EXPECT_EQ(stream_->progress().tokens_count, 3);
  EXPECT_EQ(stream_->progress().prompt_tokens_count, 2);
  const std::pair<std::string, std::int64_t> wrong[] = {
      {told(0) + told(1) + token(2, "a") + end(1), 1}, {told(0) + told(1) + token(2, "a") + end(1), 0},
      {told(0) + token(1, "a") + end(1), 2},           {token(0, "a") + end(1), 1},
      {told(0) + told(1) + token(2, "a") + end(3), 2}, {told(0, "x") + token(1, "a") + end(1), 1},
      {token(0, "a") + told(1) + end(1), 1},           {told(0) + token(1, "a") + token(2, "b") + end(2), 1},
  };
  for (const auto& [bytes, asked] : wrong) {
    const auto outcome = outcome_of(bytes, asked);
    ASSERT_TRUE(outcome.error) << bytes;
    EXPECT_EQ(outcome.error->code, ErrorCode::kWorkerReset) << bytes;
  }
}

// A worker that says the end and keeps the answer open: nothing of it stays behind.
TEST_F(RelayTest, AnAnswerThatStaysOpenBehindItsEndIsClosed) {
  net::ExchangePtr kept;
  std::promise<void> closed;
  worker_ = [&](const net::ExchangePtr& exchange) {
    kept = exchange;
    exchange->on_close([&](net::CloseReason) { closed.set_value(); });
    exchange->start_stream(200, net::http::sse_headers());
    exchange->write(started() + token(0, "a") + end(1));
  };
  EXPECT_TRUE(run().end);
  auto gone = closed.get_future();
  while (gone.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) relay_->tick();
}

// Others' answers are made of it as it stands: base64 or a number that is none would end orchestratord, or stand in their JSON.
TEST_F(RelayTest, AVectorThatIsNoneIsAWorkerReset) {
  std::uint64_t execution = 1;
  const auto outcome_of = [&](wire::Workload workload, const std::vector<std::string>& texts, std::int64_t inputs) {
    std::string bytes = started();
    for (std::size_t i = 0; i < texts.size(); ++i) bytes += token(static_cast<int>(i), texts[i]);
    worker_sends(bytes + end(static_cast<int>(texts.size())));
    const std::string job_id = "job-" + std::to_string(execution + 1);
    stream_ = hub_->open(base::JobId(job_id), wire::OnDisconnect::kResume);
    stream_->queued({.job_id = job_id});
    Relay::Order asked = order(execution++);
    asked.workload = workload;
    asked.tokens_max = inputs;
    return run(std::move(asked));
  };
  const std::string vector = "AACAPwAAAEA=";  // 1, 2
  EXPECT_TRUE(outcome_of(wire::Workload::kEmbedding, {vector, vector}, 2).end);
  EXPECT_TRUE(outcome_of(wire::Workload::kRerank, {"0.25", "1"}, 2).end);
  for (const char* text : {"!", "", "AACA", "AACAfw==", "AAAAAA==\"", "\"}"}) {  // the fourth: infinity
    EXPECT_EQ(outcome_of(wire::Workload::kEmbedding, {text}, 1).error->code, ErrorCode::kWorkerReset) << text;
  }
  for (const char* text :
       {"", "inf", "nan", "1e999", "1e-400", "-0.5", "2", "0x1", ".5", "00.5", " 0.5", "0.5\n", "0.5,1", "\"0.5\""}) {
    EXPECT_EQ(outcome_of(wire::Workload::kRerank, {text}, 1).error->code, ErrorCode::kWorkerReset) << text;
  }
  EXPECT_EQ(outcome_of(wire::Workload::kEmbedding, {vector}, 2).error->code, ErrorCode::kWorkerReset)
      << "one is missing";
  EXPECT_EQ(outcome_of(wire::Workload::kEmbedding, {}, 1).error->code, ErrorCode::kWorkerReset);
}

// What a worker said when the connection broke in the middle of it is not known (simulator, seed 31003824).
TEST_F(RelayTest, ARefusalThatIsCutShortIsAWorkerReset) {
  worker_ = [](const net::ExchangePtr& exchange) {
    exchange->start_stream(503, {{"Content-Type", "application/json"}});
    exchange->write(R"({"error":{"code":"WORKER_B)");
    exchange->on_drain(0, [exchange] { exchange->abort(); });
  };
  EXPECT_EQ(run(1).error->code, ErrorCode::kWorkerReset);
}

// STREAM-20050
TEST_F(RelayTest, NobodyThereIsUnreachable) {
  net::Server gone(runtime_, {.component = "gone"});
  ASSERT_TRUE(gone.start());
  Relay::Order to_nobody = order(1);
  to_nobody.worker_uri = gone.url();
  gone.stop(0);
  std::promise<Relay::Reports::Outcome> ended;
  relay_->execute(to_nobody, {.started = [] {},
                              .progress = [](std::int64_t) {},
                              .ended = [&](Relay::Reports::Outcome o) { ended.set_value(std::move(o)); }});
  EXPECT_EQ(ended.get_future().get().error->code, ErrorCode::kUnreachable);
}

// Promise 3: another worker's replay continues the stream, or is refused when it differs anywhere.
TEST_F(RelayTest, AReplayIsCheckedTokenByToken) {
  worker_sends(started() + token(0, "a") + token(1, "b"), false);
  EXPECT_EQ(run(1).error->code, ErrorCode::kWorkerReset);
  worker_sends(started() + token(0, "a") + token(1, "b") + token(2, "c") + end(3));
  EXPECT_TRUE(run(2).end);
  EXPECT_EQ(tokens_held(), 3);

  worker_sends(started() + token(0, "a") + token(1, "x") + end(2));
  EXPECT_EQ(run(3).error->code, ErrorCode::kReplayDiverged);
  worker_sends(started() + token(0, "a") + end(1));
  EXPECT_EQ(run(4).error->code, ErrorCode::kReplayDiverged) << "a replay that stops early differs too";
}

// SYS-2.3.5: a receipt is passed on only when it is about this job and what was relayed of it.
TEST_F(RelayTest, AReceiptThatContradictsTheJobIsNotPassedOn) {
  const wire::Receipt good{.model_digest = "sha256:m",
                           .seed = 7,
                           .prompt_sha256 = "p",
                           .output_sha256 = base::to_hex(base::sha256("Once upon")),
                           .tokens_out = 2,
                           .parameters_sha256 = "q"};
  std::uint64_t execution = 1;
  const auto outcome_of = [&](const wire::Receipt& receipt, std::int64_t tokens_out) {
    stream_ = hub_->open(base::JobId("job-" + std::to_string(execution)), wire::OnDisconnect::kResume);
    stream_->queued({.job_id = "job-1"});
    const wire::EndEvent end{.job_id = "job-1", .tokens_out = tokens_out, .receipt = receipt};
    worker_sends(started() + token(0, "Once") + token(1, " upon") + event("end", wire::encode(end)));
    Relay::Order asked = order(execution++);
    asked.expected = {.seed = 7, .prompt_sha256 = "p", .parameters_sha256 = "q", .model_digest = "sha256:m"};
    std::promise<Relay::Reports::Outcome> ended;
    relay_->execute(asked, {.started = [] {},
                            .progress = [](std::int64_t) {},
                            .ended = [&](Relay::Reports::Outcome o) { ended.set_value(std::move(o)); }});
    return ended.get_future().get();
  };
  EXPECT_EQ(outcome_of(good, 2).end->receipt, good);
  wire::Receipt older = good;
  older.parameters_sha256.reset();
  EXPECT_TRUE(outcome_of(older, 2).end) << "a worker of an older build does not say it";
  EXPECT_EQ(outcome_of(good, 3).error->code, ErrorCode::kWorkerReset) << "the event itself counts wrongly";

  const std::vector<std::pair<std::string, std::function<void(wire::Receipt&)>>> lies{
      {"seed", [](auto& r) { r.seed = 8; }},
      {"prompt_sha256", [](auto& r) { r.prompt_sha256 = "x"; }},
      {"parameters_sha256", [](auto& r) { r.parameters_sha256 = "x"; }},
      {"model_digest", [](auto& r) { r.model_digest = "sha256:x"; }},
      {"tokens_out", [](auto& r) { r.tokens_out = 1; }},
      {"output_sha256", [](auto& r) { r.output_sha256 = base::to_hex(base::sha256("Once")); }}};
  for (const auto& [field, lie] : lies) {
    wire::Receipt receipt = good;
    lie(receipt);
    const auto outcome = outcome_of(receipt, 2);
    ASSERT_TRUE(outcome.error) << field;
    EXPECT_EQ(outcome.error->code, ErrorCode::kWorkerReset);
    ASSERT_EQ(outcome.error->details.size(), 1u);
    EXPECT_EQ(std::get<std::string>(outcome.error->details[0].second), field);
  }
}

// What a worker sends is held in memory: no more than was asked for.
TEST_F(RelayTest, AWorkerThatDoesNotStopIsBroken) {
  worker_sends(started() + token(0, "a") + token(1, "b") + token(2, "c"));
  Relay::Order short_order = order(1);
  short_order.tokens_max = 2;
  std::promise<Relay::Reports::Outcome> ended;
  relay_->execute(short_order, {.started = [] {},
                                .progress = [](std::int64_t) {},
                                .ended = [&](Relay::Reports::Outcome o) { ended.set_value(std::move(o)); }});
  EXPECT_EQ(ended.get_future().get().error->code, ErrorCode::kWorkerReset);
  EXPECT_LE(tokens_held(), 2);
}

// A worker that is slowed down for want of stream memory does not count as silent.
TEST_F(RelayTest, APausedExecutionStillReports) {
  config::StreamConfig limits;
  limits.buffer_bytes_max = 1000;
  StreamHub small({.limits = limits, .clock = &clock_});
  const StreamPtr older = small.open(base::JobId("older"), wire::OnDisconnect::kResume);
  older->queued({.job_id = "older"});
  older->started({.job_id = "older"});
  small.relay_begins(*older, [](bool) {});
  Relay relay({.client = client_.get(), .hub = &small, .clock = &clock_});
  Relay::Order young = order(1);
  young.stream = small.open(base::JobId("job-1"), wire::OnDisconnect::kResume);
  young.stream->queued({.job_id = "job-1"});
  std::promise<net::ExchangePtr> serving;
  worker_ = [&](const net::ExchangePtr& exchange) { serving.set_value(exchange); };
  std::atomic<int> reports{0};
  std::promise<Relay::Reports::Outcome> ended;
  relay.execute(young, {.started = [] {},
                        .progress = [&](std::int64_t) { ++reports; },
                        .ended = [&](Relay::Reports::Outcome o) { ended.set_value(std::move(o)); }});
  const net::ExchangePtr worker = serving.get_future().get();
  relay.tick();
  EXPECT_EQ(reports, 0);
  const std::string text(2000, 'x');
  const TokenView big{.t = text, .i = 0};
  ASSERT_TRUE(older->tokens({&big, 1}, clock_.now().mono_ms));
  EXPECT_EQ(small.gauges().relays_paused, 1);
  relay.tick();
  EXPECT_EQ(reports, 1);
  small.relay_ends(*older);
  small.tick();  // nobody else runs: it goes on
  worker->start_stream(200, net::http::sse_headers());
  worker->write(started() + token(0, "a") + end(1));
  worker->end();
  EXPECT_TRUE(ended.get_future().get().end);
  client_.reset();  // its callbacks use what is local here
}

TEST_F(RelayTest, AbortClosesTheConnectionAndTellsTheWorker) {
  std::promise<void> serving, closed;
  net::ExchangePtr kept;
  worker_ = [&](const net::ExchangePtr& exchange) {
    kept = exchange;
    exchange->on_close([&](net::CloseReason) { closed.set_value(); });
    exchange->start_stream(200, net::http::sse_headers());
    exchange->write(started());
    serving.set_value();
  };
  std::promise<Relay::Reports::Outcome> ended;
  relay_->execute(order(1), {.started = [] {},
                             .progress = [](std::int64_t) {},
                             .ended = [&](Relay::Reports::Outcome o) { ended.set_value(std::move(o)); }});
  serving.get_future().wait();
  relay_->abort(1);
  EXPECT_EQ(ended.get_future().get().error->code, ErrorCode::kCancelled);
  closed.get_future().wait();
  relay_->abort(1);  // after the end: nothing happens
  while (cancels_ == 0) std::this_thread::yield();
  EXPECT_EQ(cancels_, 1);
  EXPECT_EQ(cancel_body_, R"({"job_id":"job-1","execution_id":"b-1"})") << "no other run of the job";
}

// Promise 3, against the same job undisturbed: whatever pieces a worker's bytes come in, and wherever its connections break,
// also within an event or a code point, a client that reads on and one that comes back with what it holds see the same
// bytes. The seed is the report.
TEST_F(RelayTest, CutAnywhereAndBrokenAnywhereTheStreamIsTheSame) {
  const base::JobId job("job-1");
  const ReplayLog::Terminal terminal = wire::EndEvent{};
  const auto reads = [this](std::string& seen, std::optional<EventId> held) {
    stream_->attach({.exchange = std::make_shared<MemoryExchange>(seen),
                     .renderer = std::make_shared<SseRenderer>(),
                     .last_event_id = held},
                    0);
  };
  const auto untimed = [](std::string text) {
    const std::size_t at = text.find("\"started_at\":\"");
    return at == std::string::npos ? text : text.erase(at, text.find(',', at) - at);
  };
  std::uint64_t execution = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    base::SeededEntropy entropy(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(entropy.next_u64() % n); };
    const auto open = [&] {
      hub_->forget(job);
      stream_ = hub_->open(job, wire::OnDisconnect::kResume);
      stream_->queued({.job_id = "job-1"});
    };
    constexpr std::string_view kTexts[] = {"", " a", "\n", "data: \"x\"\r\n\r\n", "\u00e9\U0001f600", "<|end|>\\"};
    const int tokens = 1 + static_cast<int>(below(30));
    std::string all = started();
    for (int i = 0; i < tokens; ++i) all += token(i, std::string(kTexts[below(std::size(kTexts))]));
    all += end(tokens);

    std::string undisturbed;
    open();
    reads(undisturbed, {});
    worker_sends(all);
    ASSERT_TRUE(run(++execution).end) << "seed " << seed;
    stream_->finish(terminal, 0);

    std::string seen, before, after;
    open();
    reads(seen, {});
    reads(before, {});
    std::optional<EventId> held;
    for (std::size_t breaks = below(5);; --breaks) {
      const std::size_t until = breaks > 0 ? below(all.size()) : all.size();
      std::promise<void> closed;
      worker_ = [&, until](const net::ExchangePtr& exchange) {
        exchange->start_stream(200, net::http::sse_headers());
        exchange->on_close([&closed](net::CloseReason) { closed.set_value(); });
        const auto next = std::make_shared<std::function<void(std::size_t)>>();
        *next = [&, exchange, until, weak = std::weak_ptr(next)](std::size_t at) {
          if (at == until) return until == all.size() ? void(exchange->end()) : exchange->abort();
          const std::size_t bytes = std::min(until - at, 1 + below(below(8) == 0 ? 400 : 12));
          exchange->write(std::string_view(all).substr(at, bytes));
          exchange->on_drain(0, [again = weak.lock(), at, bytes] { (*again)(at + bytes); });
        };
        (*next)(0);
      };
      const auto outcome = run(++execution);
      closed.get_future().wait();  // the worker's side uses what is of this round
      ASSERT_EQ(outcome.end.has_value(), breaks == 0) << "seed " << seed;
      if (breaks == 0) break;
      ASSERT_EQ(outcome.error->code, ErrorCode::kWorkerReset) << "seed " << seed;
      if (!held && below(2) == 0) {  // one client leaves here, and comes back
        held = stream_->progress().id;
        after = before;
        reads(after, held);
      }
    }
    stream_->finish(terminal, 0);
    EXPECT_TRUE(untimed(seen) == untimed(undisturbed)) << "seed " << seed;
    EXPECT_TRUE(!held || untimed(after) == untimed(undisturbed)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace llorch::orchestratord::streams
