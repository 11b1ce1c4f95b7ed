#include "worker/engine_loop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "base/log.h"
#include "engine/compute/cpu/backend.h"
#include "engine/inference/testing/recording_backend.h"
#include "engine/inference/testing/tiny_engine.h"
#include "engine/io/gguf.h"
#include "engine/io/tokenizer_source.h"
#include "wire/json.h"

namespace llorch::worker {
namespace {

constexpr const char* kModel = LLORCH_SOURCE_DIR "/models/demo/fairytale-5m-q8_0.gguf";
constexpr std::int64_t kPlenty = 600'000;
constexpr std::chrono::seconds kHangs{300};  // only bounds a hang

// Keeps what a job said; `hold` plays a reader that takes nothing.
class Recorder final : public JobSink {
 public:
  void token(const TokenOut& token) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(token.index, std::ssize(prompt_) + tokens_);
    if (token.prompt_logprobs) return prompt_.push_back(*token.prompt_logprobs);
    text_ += token.text;
    if (token.logprobs) drawn_.push_back(*token.logprobs);
    ++tokens_;
    if (tokens_ == 1) {
      hold = hold_after_first;
      first_.set_value();
    }
  }
  void vector(const embedding::VectorOut& vector) override {
    const std::lock_guard lock(mutex_);
    vectors_.push_back(vector.text);
    EXPECT_EQ(vector.index + 1, std::ssize(vectors_));
    if (vectors_.size() == 1) first_.set_value();
  }
  void end(wire::EndEvent end) override {
    const std::lock_guard lock(mutex_);
    ++endings_;
    end_ = std::move(end);
    done_.set_value();
  }
  void error(const base::Error& error) override {
    const std::lock_guard lock(mutex_);
    ++endings_;
    error_ = error;
    done_.set_value();
  }
  bool congested() override { return hold.load(); }

  void wait_first() { ASSERT_EQ(first_future_.wait_for(kHangs), std::future_status::ready); }
  void wait_done() { ASSERT_EQ(done_future_.wait_for(kHangs), std::future_status::ready); }
  std::string text() const { return locked(text_); }
  int tokens() const { return locked(tokens_); }
  std::vector<std::string> vectors() const { return locked(vectors_); }
  std::vector<wire::PromptTokenLogprobs> prompt() const { return locked(prompt_); }
  std::vector<wire::TokenLogprobs> drawn() const { return locked(drawn_); }
  int endings() const { return locked(endings_); }
  std::optional<base::Error> error() const { return locked(error_); }
  std::optional<wire::EndEvent> ended() const { return locked(end_); }

  std::atomic<bool> hold{false};
  bool hold_after_first = false;  // set before the job starts

 private:
  template <class T>
  T locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }
  mutable std::mutex mutex_;
  std::string text_;
  int tokens_ = 0;
  std::vector<std::string> vectors_;
  std::vector<wire::PromptTokenLogprobs> prompt_;
  std::vector<wire::TokenLogprobs> drawn_;
  int endings_ = 0;
  std::optional<base::Error> error_;
  std::optional<wire::EndEvent> end_;
  std::promise<void> first_, done_;
  std::future<void> first_future_ = first_.get_future(), done_future_ = done_.get_future();
};

struct OutputWanted {
  std::int64_t max_tokens = 1;
  double temperature = 0;
};

class EngineLoopTest : public testing::Test {
 protected:
  // `kv_tokens` as in EngineOptions; salt for a prefix cache.
  void load(std::uint32_t slots, std::uint64_t kv_tokens = 0, bool caches = false) {
    if (!backend_)
      backend_ = engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 64u << 20}).value();
    engine_ = engine::inference::Engine::load(kModel,
                                              {.context_tokens = 256,
                                               .slots = slots,
                                               .prefill_chunk = 16,
                                               .output_rows_max = output_rows_,
                                               .kv_tokens = kv_tokens},
                                              *backend_)
                  .value();
    const auto file = engine::io::GgufFile::open(kModel).value();
    tokenizer_.emplace(text::Tokenizer::create(engine::io::read_tokenizer_data(file).value()).value());
    engine::inference::ContinuousBatchOptions batch;
    if (caches) batch.cache_salt.assign(16, std::byte{7});
    loop_.emplace(*engine_,
                  EngineLoopOptions{.batch = batch,
                                    .residency_check_ms = residency_check_ms_,
                                    .on_residency_lost = [this] { lost_.set_value(); },
                                    .may_step = may_step_},
                  *tokenizer_, Identity{.model_digest = "sha256:x", .numerics = "cpu-1"}, clock_);
  }
  base::Result<EngineLoop::Run> start(const std::string& id, const std::string& prompt, std::int64_t max_tokens,
                                      const std::shared_ptr<Recorder>& sink, std::int64_t timeout_ms = kPlenty,
                                      std::optional<std::string> execution_id = {}) {
    auto spec = make_sequence_spec({.job_id = id,
                                    .execution_id = std::move(execution_id),
                                    .prompt = prompt,
                                    .max_tokens = max_tokens,
                                    .temperature = 0.7,
                                    .seed = 5},
                                   *tokenizer_, engine_->facts().context_tokens, 0);
    return loop_->start(std::move(*spec), sink, timeout_ms, [] {});
  }
  std::string text_of(const std::string& prompt) {
    auto sink = std::make_shared<Recorder>();
    EXPECT_TRUE(start("alone", prompt, 24, sink).has_value());
    sink->wait_done();
    return sink->text();
  }

  base::Result<EngineLoop::Run> score(const std::string& id, const std::vector<std::int32_t>& prompt,
                                      const std::shared_ptr<Recorder>& sink, const OutputWanted& output = {}) {
    wire::ExecuteRequest request{.job_id = id,
                                 .prompt_tokens = prompt,
                                 .max_tokens = output.max_tokens,
                                 .temperature = output.temperature,
                                 .seed = 5};
    request.sampling.prompt_logprobs = request.sampling.logprobs = true;
    request.sampling.top_logprobs = 3;
    auto spec = TRY(make_sequence_spec(request, *tokenizer_, engine_->facts().context_tokens, 0));
    return loop_->start(std::move(spec), sink, kPlenty, [] {});
  }
  // Every bit of what is told of the prompt, a line for each token.
  std::vector<std::string> scored(const std::vector<std::int32_t>& prompt) {
    auto sink = std::make_shared<Recorder>();
    const auto run = score("alone", prompt, sink);
    EXPECT_TRUE(run) << run.error().message;
    if (run) sink->wait_done();
    return lines_of(*sink);
  }
  static std::vector<std::string> lines_of(const Recorder& sink) {
    std::vector<std::string> lines;
    for (const auto& token : sink.prompt()) lines.push_back(wire::encode(token));
    return lines;
  }
  std::vector<std::int32_t> ids_of(const std::string& text) const {
    const auto tokens = tokenizer_->encode(text).value();
    std::vector<std::int32_t> ids;
    for (const auto token : tokens) ids.push_back(static_cast<std::int32_t>(index(token)));
    return ids;
  }

  base::SystemClock clock_;
  std::uint32_t output_rows_ = 0;  // as in EngineOptions
  std::int64_t residency_check_ms_ = kPlenty;
  std::promise<void> lost_;
  std::function<bool()> may_step_;
  std::unique_ptr<engine::plan::Backend> backend_;
  std::unique_ptr<engine::inference::Engine> engine_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<EngineLoop> loop_;
};

// M0-W-1301, SYS-8.2.2#one-job: one job per slot; the next one is told to wait.
TEST_F(EngineLoopTest, RunsOneJobPerSlotAndRefusesMore) {
  load(1);
  auto first = std::make_shared<Recorder>();
  first->hold = true;
  ASSERT_TRUE(start("a", "Once upon a time", 8, first).has_value());
  auto second = std::make_shared<Recorder>();
  EXPECT_EQ(start("b", "Once", 8, second).error().code, base::ErrorCode::kWorkerBusy);
  first->hold = false;
  loop_->wake();
  first->wait_done();
  EXPECT_EQ(first->tokens(), 8);
  EXPECT_EQ(first->endings(), 1);
  EXPECT_EQ(first->ended()->stop_reason, wire::StopReason::kMaxTokens);
  EXPECT_EQ(first->ended()->receipt->seed, 5u);
  EXPECT_EQ(loop_->slots_free(), 1);
}

// OC-CORE-1033: neighbours in the batch, and prompts longer than a step, change nothing.
TEST_F(EngineLoopTest, NeighboursNeverChangeAnAnswer) {
  load(4);
  const std::string long_prompt =
      "There was once a king who had three daughters and a golden apple tree in his garden, and every night";
  const std::string alone_a = text_of("Once upon a time"), alone_b = text_of(long_prompt);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (int i = 0; i < 4; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    ASSERT_TRUE(
        start("j" + std::to_string(i), i % 2 == 0 ? "Once upon a time" : long_prompt, 24, sinks.back()).has_value());
  }
  for (int i = 0; i < 4; ++i) {
    sinks[static_cast<std::size_t>(i)]->wait_done();
    EXPECT_EQ(sinks[static_cast<std::size_t>(i)]->text(), i % 2 == 0 ? alone_a : alone_b);
  }
}

const std::string kLongPrompt =
    "There was once a king who had three daughters and a golden apple tree in his garden, and every night when the "
    "moon "
    "had risen one of the apples was gone. Then the king bade his gardener keep watch under the tree until the "
    "morning, and the gardener set his eldest son to watch, but at midnight he fell asleep.";

// Four jobs want twelve pages and there are four: jobs are computed again, with the same answers.
TEST_F(EngineLoopTest, JobsThatDoNotFitTogetherAreComputedAgainWithTheSameAnswer) {
  std::atomic<bool> may_go{true};
  may_step_ = [&] { return may_go.load(); };
  load(4, 256);
  const std::string alone = [&] {
    auto sink = std::make_shared<Recorder>();
    EXPECT_TRUE(start("alone", "Once upon a time", 150, sink).has_value());
    sink->wait_done();
    return sink->text();
  }();
  std::vector<std::shared_ptr<Recorder>> sinks;
  may_go = false;  // until all of them are there
  for (int i = 0; i < 4; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    ASSERT_TRUE(start("j" + std::to_string(i), "Once upon a time", 150, sinks.back()).has_value());
  }
  may_go = true;
  loop_->wake();
  for (const auto& sink : sinks) {
    sink->wait_done();
    EXPECT_EQ(sink->text(), alone);
    EXPECT_EQ(sink->endings(), 1);
  }
  EXPECT_GT(loop_->usage().counts.preemptions, 0u);
  EXPECT_EQ(loop_->usage().pages_used, 0u);
}

TEST_F(EngineLoopTest, APromptThatBeginsAlikeIsFoundInTheCacheAndChangesNothing) {
  load(1, 0, true);
  const std::string cold = text_of(kLongPrompt);
  EXPECT_EQ(loop_->usage().counts.prefix_tokens_hit, 0u);
  EXPECT_EQ(text_of(kLongPrompt), cold);
  const auto hit = loop_->usage().counts.prefix_tokens_hit;
  EXPECT_GE(hit, 64u);
  EXPECT_GT(loop_->usage().pages_cached, 0u);
  loop_->clear_cache();
  EXPECT_EQ(text_of(kLongPrompt), cold);
  EXPECT_EQ(loop_->usage().counts.prefix_tokens_hit, hit) << "what was cleared is not found";
}

// OC-CORE-1033: a row or many in a step, cached or not, alone, among others or computed again: one set of bits.
TEST_F(EngineLoopTest, LogprobsOfAPromptAreTheSameHoweverTheyAreComputed) {
  load(1);
  const auto prompt = ids_of(kLongPrompt), brief = ids_of("Once upon a time");
  const auto alone = scored(prompt), alone_brief = scored(brief);
  ASSERT_EQ(alone.size(), prompt.size());
  EXPECT_EQ(alone[0].find("\"logprob\""), std::string::npos) << alone[0];
  EXPECT_NE(alone[1].find("\"logprob\""), std::string::npos) << alone[1];

  const auto reload = [&](std::uint32_t slots, std::uint64_t kv_tokens, bool caches) {
    loop_.reset();
    engine_.reset();
    output_rows_ = engine::inference::output_rows_of(slots, 0);
    load(slots, kv_tokens, caches);
  };
  reload(1, 0, true);
  EXPECT_EQ(scored(prompt), alone) << "many rows in a step";
  EXPECT_EQ(scored(prompt), alone) << "its own pages are there";
  EXPECT_EQ(loop_->usage().counts.prefix_tokens_hit, 0u) << "and are not read";
  EXPECT_FALSE(text_of(kLongPrompt).empty());
  EXPECT_GT(loop_->usage().counts.prefix_tokens_hit, 0u) << "which others do";

  std::atomic<bool> may_go{false};
  may_step_ = [&] { return may_go.load(); };
  const auto all_of = [&](std::vector<std::shared_ptr<Recorder>> sinks) {
    may_go = true;  // once all of them are there
    loop_->wake();
    for (const auto& sink : sinks) sink->wait_done();
    may_go = false;
    return sinks;
  };
  const auto sink = [] { return std::make_shared<Recorder>(); };
  reload(4, 0, false);
  std::vector<std::shared_ptr<Recorder>> sinks{sink(), sink(), sink(), sink()};
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(score("j" + std::to_string(i), i == 2 ? brief : prompt, sinks[i]).has_value());
  }
  for (std::size_t i = 0; const auto& done : all_of(sinks)) {
    EXPECT_EQ(lines_of(*done), i++ == 2 ? alone_brief : alone);
  }

  reload(4, 256, false);
  sinks = {sink(), sink(), sink(), sink()};
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(score("j" + std::to_string(i), brief, sinks[i], {.max_tokens = 150, .temperature = 0.7}).has_value());
  }
  for (const auto& done : all_of(sinks)) {
    EXPECT_EQ(lines_of(*done), alone_brief);
    EXPECT_EQ(done->endings(), 1);
  }
  EXPECT_GT(loop_->usage().counts.preemptions, 0u);
  loop_.reset();  // before what it asks for each step
}

// What was drawn, said again as a prompt: a number of a token is a matter of what stands before it alone.
TEST_F(EngineLoopTest, LogprobsOfAPromptAreThoseOfTheDraws) {
  output_rows_ = engine::inference::output_rows_of(1, 0);
  load(1);
  const auto prompt = ids_of("Once upon a time");
  auto drawn = std::make_shared<Recorder>();
  ASSERT_TRUE(score("drawn", prompt, drawn, {.max_tokens = 40}).has_value());
  drawn->wait_done();
  const auto output = drawn->drawn();
  ASSERT_GT(output.size(), 10u);
  auto whole = prompt;
  for (const auto& token : output) whole.push_back(static_cast<std::int32_t>(token.id));
  auto again = std::make_shared<Recorder>();
  ASSERT_TRUE(score("again", whole, again).has_value());
  again->wait_done();
  const auto told = again->prompt();
  ASSERT_EQ(told.size(), whole.size());
  double sum = 0, sum_drawn = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    const auto& token = told[prompt.size() + i];
    EXPECT_EQ(token.id, output[i].id);
    EXPECT_EQ(token.logprob, output[i].logprob) << i;
    EXPECT_EQ(token.top_logprobs.front().id, token.id) << "greedy";
    sum += *token.logprob;
    sum_drawn += output[i].logprob;
  }
  EXPECT_EQ(sum, sum_drawn);
  EXPECT_EQ(again->ended()->tokens_out, 1);
  EXPECT_EQ(again->ended()->tokens_in, std::ssize(whole));
}

TEST_F(EngineLoopTest, APromptOfOneTokenHasNoLogprob) {
  load(1);
  const auto lines = scored({ids_of("Once").back()});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find("\"logprob\""), std::string::npos);
}

// SYS-6.3.5, M0-W-1330: cancel is idempotent, ends the job once, and frees its slot.
TEST_F(EngineLoopTest, CancelEndsTheJobOnceAndFreesTheSlot) {
  load(1);
  auto sink = std::make_shared<Recorder>();
  sink->hold_after_first = true;
  ASSERT_TRUE(start("a", "Once upon a time", 400, sink).has_value());
  sink->wait_first();
  EXPECT_TRUE(loop_->cancel(base::JobId("a"), {}));
  sink->wait_done();
  EXPECT_EQ(sink->error()->code, base::ErrorCode::kCancelled);
  EXPECT_EQ(sink->endings(), 1);
  EXPECT_FALSE(loop_->cancel(base::JobId("a"), {}));
  EXPECT_EQ(loop_->slots_free(), 1);
  EXPECT_EQ(text_of("Once upon a time").empty(), false);
  EXPECT_EQ(loop_->counts().cancelled, 1);
}

// A late close of an old connection must not end the run that a retry has started.
TEST_F(EngineLoopTest, CancellingAnOldRunLeavesTheNewOneAlone) {
  load(2);
  auto first = std::make_shared<Recorder>();
  const auto old_run = start("a", "Once upon a time", 2, first);
  first->wait_done();
  auto second = std::make_shared<Recorder>();
  second->hold = true;
  ASSERT_TRUE(start("a", "Once upon a time", 2, second).has_value());
  EXPECT_EQ(start("a", "Once upon a time", 2, first).error().code, base::ErrorCode::kWorkerBusy);
  loop_->cancel(*old_run);
  second->hold = false;
  loop_->wake();
  second->wait_done();
  EXPECT_FALSE(second->error().has_value());
}

// A held step holds tokens and nothing else: jobs are taken in, and cancels and deadlines end them.
TEST_F(EngineLoopTest, HeldStepsPassOneByOneAndHoldUpNoEnd) {
  std::atomic<int> passes{0};
  may_step_ = [&] {
    int left = passes.load();
    while (left > 0 && !passes.compare_exchange_weak(left, left - 1)) {
    }
    return left > 0;
  };
  load(2);
  auto held = std::make_shared<Recorder>(), late = std::make_shared<Recorder>();
  ASSERT_TRUE(start("held", "Once upon a time", 8, held).has_value());
  passes = 3;
  loop_->wake();
  while (passes.load() > 0) std::this_thread::yield();
  ASSERT_TRUE(start("late", "Once", 8, late, 20).has_value());
  late->wait_done();
  EXPECT_EQ(late->error()->code, base::ErrorCode::kTimeout);
  EXPECT_EQ(held->tokens(), 3) << "a step each, the prompt's included";
  EXPECT_EQ(late->tokens(), 0);
  EXPECT_TRUE(loop_->cancel(base::JobId("held"), {}));
  held->wait_done();
  EXPECT_EQ(held->error()->code, base::ErrorCode::kCancelled);
  EXPECT_EQ(held->tokens(), 3);
}

// The same of a late call to /cancel, whichever of the two runs came with an execution_id; a call that comes in time ends
// its run, and one for a run that is not here yet ends none.
TEST_F(EngineLoopTest, ALateCancelLeavesTheNextExecutionAlone) {
  load(2);
  const base::JobId job("a");
  EXPECT_FALSE(loop_->cancel(job, "boot-1"));
  auto first = std::make_shared<Recorder>();
  first->hold_after_first = true;
  ASSERT_TRUE(start("a", "Once upon a time", 400, first, kPlenty, "boot-1").has_value());
  first->wait_first();
  EXPECT_FALSE(loop_->cancel(job, "boot-2"));
  EXPECT_FALSE(loop_->cancel(job, {}));
  EXPECT_TRUE(loop_->cancel(job, "boot-1"));
  first->wait_done();
  EXPECT_EQ(first->error()->code, base::ErrorCode::kCancelled);
  auto second = std::make_shared<Recorder>();
  second->hold = true;
  ASSERT_TRUE(start("a", "Once upon a time", 2, second, kPlenty, "boot-2").has_value());
  EXPECT_FALSE(loop_->cancel(job, "boot-1"));
  EXPECT_FALSE(loop_->cancel(job, {}));
  second->hold = false;
  loop_->wake();
  second->wait_done();
  EXPECT_FALSE(second->error().has_value());
}

// SSE-1004: a reader that takes nothing stops its own job, not its neighbour's.
TEST_F(EngineLoopTest, ASlowReaderHoldsUpNobodyElse) {
  load(2);
  auto slow = std::make_shared<Recorder>();
  slow->hold = true;
  ASSERT_TRUE(start("slow", "Once upon a time", 50, slow).has_value());
  auto quick = std::make_shared<Recorder>();
  ASSERT_TRUE(start("quick", "Once upon a time", 50, quick).has_value());
  quick->wait_done();
  EXPECT_EQ(slow->tokens(), 0);
  slow->hold = false;
  loop_->wake();
  slow->wait_done();
  EXPECT_EQ(slow->text(), quick->text());
}

// A device whose memory was moved away behind its back.
class LeakyBackend final : public engine::inference::testing::RecordingBackend {
 public:
  base::Result<> check_residency() override {
    ++checks;
    if (!moved.load()) return {};
    return base::fail(base::ErrorCode::kCudaError, "weights are in managed memory");
  }
  std::atomic<int> checks{0};
  std::atomic<bool> moved{false};
};

// SYS-6.3.1, M0-W-1012: looked at again and again, also while nobody asks for anything; a worker outside its device's memory
// gives its jobs back for others to run, takes no new one, says so in its health and leaves.
TEST_F(EngineLoopTest, MemoryThatLeftTheDeviceEndsTheWorker) {
  auto backend = std::make_unique<LeakyBackend>();
  LeakyBackend& device = *backend;
  backend_ = std::move(backend);
  residency_check_ms_ = 1;
  load(2);
  while (device.checks.load() < 2) std::this_thread::yield();
  auto sink = std::make_shared<Recorder>();
  sink->hold_after_first = true;
  ASSERT_TRUE(start("a", "Once upon a time", 100, sink).has_value());
  sink->wait_first();
  EXPECT_TRUE(loop_->resident());
  device.moved.store(true);
  sink->wait_done();
  EXPECT_EQ(sink->error()->code, base::ErrorCode::kWorkerReset) << "whoever asked may run it again elsewhere";
  EXPECT_EQ(sink->endings(), 1);
  ASSERT_EQ(lost_.get_future().wait_for(kHangs), std::future_status::ready);
  EXPECT_FALSE(loop_->resident());
  EXPECT_FALSE(loop_->healthy());
  EXPECT_EQ(start("b", "Once", 8, std::make_shared<Recorder>()).error().code, base::ErrorCode::kShuttingDown);
  loop_->stop(0);
}

// The reason of a failed step reaches its jobs and the log, and no text of theirs does.
TEST_F(EngineLoopTest, AFailedStepSaysWhy) {
  auto backend = std::make_unique<engine::inference::testing::RecordingBackend>();
  auto& device = *backend;
  backend_ = std::move(backend);
  load(1);
  device.failing = engine::plan::Opcode::kSwiglu;
  std::mutex mutex;
  std::string log;
  base::capture_log_lines([&](std::string_view line) {
    const std::lock_guard lock(mutex);
    log += line;
  });
  auto sink = std::make_shared<Recorder>();
  ASSERT_TRUE(start("a", "Once upon a secret time", 8, sink).has_value());
  sink->wait_done();
  loop_->stop(0);
  base::capture_log_lines({});
  ASSERT_TRUE(sink->error());
  EXPECT_EQ(sink->error()->code, base::ErrorCode::kCudaError);
  EXPECT_NE(sink->error()->message.find("failed on recording"), std::string::npos) << sink->error()->message;
  EXPECT_NE(log.find(sink->error()->message), std::string::npos) << log;
  EXPECT_EQ(log.find("secret"), std::string::npos) << log;
}

// M0-W-1021#told, M0-W-1021#freed, M0-W-1021#goes-on, M0-W-1825: a device that runs out of memory in a
// step ends the jobs of that step with VRAM_OOM and keeps nothing of theirs; the worker goes on with the next one.
TEST_F(EngineLoopTest, AStepWithoutMemoryEndsItsJobsAndNotTheWorker) {
  auto backend = std::make_unique<engine::inference::testing::RecordingBackend>();
  auto& device = *backend;
  backend_ = std::move(backend);
  std::atomic<bool> may_go = false;
  may_step_ = [&] { return may_go.load(); };
  load(2);
  const std::uint64_t held = device.memory_used_bytes();
  device.failing = engine::plan::Opcode::kSwiglu;
  device.failure = base::ErrorCode::kOutOfDeviceMemory;
  const std::vector sinks{std::make_shared<Recorder>(), std::make_shared<Recorder>()};
  ASSERT_TRUE(start("a", "Once upon a time", 8, sinks[0]).has_value());
  ASSERT_TRUE(start("b", "There was a king", 8, sinks[1]).has_value());
  may_go = true;
  loop_->wake();
  for (const auto& sink : sinks) {
    sink->wait_done();
    EXPECT_EQ(sink->error()->code, base::ErrorCode::kVramOom) << sink->error()->message;
    EXPECT_EQ(sink->endings(), 1);
    EXPECT_EQ(sink->tokens(), 0);
  }
  EXPECT_EQ(loop_->slots_free(), 2);
  EXPECT_EQ(loop_->usage().pages_used, 0u);
  EXPECT_EQ(device.memory_used_bytes(), held);
  EXPECT_TRUE(loop_->healthy());
  device.failing = engine::plan::Opcode::kMoe;  // of which the model has none
  const auto next = std::make_shared<Recorder>();
  ASSERT_TRUE(start("c", "Once upon a time", 8, next).has_value());
  next->wait_done();
  EXPECT_FALSE(next->error().has_value());
  EXPECT_EQ(next->tokens(), 8);
  EXPECT_EQ(loop_->counts().failed, 2);
}

TEST_F(EngineLoopTest, AJobOverItsTimeEndsWithTimeoutAndTheNumbers) {
  load(1);
  auto sink = std::make_shared<Recorder>();
  sink->hold = true;
  ASSERT_TRUE(start("a", "Once upon a time", 8, sink, 20).has_value());
  sink->wait_done();
  EXPECT_EQ(sink->error()->code, base::ErrorCode::kTimeout);
  EXPECT_EQ(sink->error()->details.at(0).first, "stage");
  EXPECT_EQ(loop_->counts().timed_out, 1);
}

TEST_F(EngineLoopTest, StopEndsWhatRunsAndTakesNothingMore) {
  load(1);
  auto sink = std::make_shared<Recorder>();
  sink->hold = true;
  ASSERT_TRUE(start("a", "Once upon a time", 8, sink).has_value());
  loop_->stop(10);
  EXPECT_EQ(sink->error()->code, base::ErrorCode::kCancelled);
  EXPECT_EQ(start("b", "Once", 8, std::make_shared<Recorder>()).error().code, base::ErrorCode::kShuttingDown);
}

class EmbeddingLoopTest : public EngineLoopTest {
 protected:
  void load_embeddings(std::uint32_t slots) {
    load(1);  // for its tokenizer, which is asked nothing
    loop_.reset();
    engine_.reset();
    backend_ = engine::compute::cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 64u << 20}).value();
    engine_ =
        engine::inference::Engine::load(file_.path(), {.slots = slots, .prefill_chunk = 16, .draws = true}, *backend_)
            .value();
    loop_.emplace(*engine_, EngineLoopOptions{.may_step = may_step_}, *tokenizer_, Identity{}, clock_);
  }
  base::Result<EngineLoop::Run> start_inputs(const std::string& id, std::vector<std::int64_t> input_tokens,
                                             const std::shared_ptr<Recorder>& sink) {
    wire::ExecuteRequest request{.job_id = id, .prompt_tokens = std::vector<std::int32_t>{}};
    for (const std::int64_t count : input_tokens)
      for (std::int64_t i = 0; i < count; ++i)
        request.prompt_tokens->push_back(static_cast<std::int32_t>((i + count) % 40));
    request.embedding = {.input_tokens = std::move(input_tokens)};
    auto spec = embedding::make_embedding_spec(request, {.vocab = 40, .context_tokens = 192, .dimensions = 64});
    return loop_->start(std::move(*spec), sink, kPlenty, [] {});
  }
  std::vector<std::string> vectors_of(std::vector<std::int64_t> input_tokens) {
    auto sink = std::make_shared<Recorder>();
    EXPECT_TRUE(start_inputs("alone", std::move(input_tokens), sink).has_value());
    sink->wait_done();
    return sink->vectors();
  }

  engine::inference::testing::ModelFile file_{
      {.overrides = {{"llama.pooling_type", engine::io::GgufValue{std::uint32_t{3}}}}}};
};

// Inputs that are done in another order than they came in, over fewer slots than there are: all vectors, in order, as each alone.
TEST_F(EmbeddingLoopTest, VectorsComeInTheOrderOfTheInputsAndAreThoseOfEachAlone) {
  load_embeddings(3);
  const std::vector<std::int64_t> lengths{100, 1, 40, 2, 2, 150, 7};
  auto sink = std::make_shared<Recorder>();
  ASSERT_TRUE(start_inputs("a", lengths, sink).has_value());
  sink->wait_done();
  ASSERT_TRUE(sink->ended());
  EXPECT_EQ(sink->ended()->tokens_out, std::ssize(lengths));
  EXPECT_EQ(sink->ended()->tokens_in, 302);
  EXPECT_EQ(sink->ended()->receipt->tokens_out, std::ssize(lengths));
  std::vector<std::string> expected;
  for (const std::int64_t length : lengths) expected.push_back(vectors_of({length}).at(0));
  EXPECT_EQ(sink->vectors(), expected);
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_EQ(loop_->slots_free(), 3);
}

TEST_F(EmbeddingLoopTest, ACancelTakesAllInputsAwayAndLeavesNeighboursAlone) {
  std::atomic<bool> may_go{false};
  may_step_ = [&] { return may_go.load(); };
  load_embeddings(2);
  auto sink = std::make_shared<Recorder>(), neighbour = std::make_shared<Recorder>();
  const auto run = start_inputs("a", {5, 6, 7, 8}, sink);
  ASSERT_TRUE(run.has_value());
  ASSERT_TRUE(start_inputs("b", {5, 9}, neighbour).has_value());
  loop_->cancel(*run);
  sink->wait_done();
  EXPECT_EQ(sink->error()->code, base::ErrorCode::kCancelled);
  EXPECT_TRUE(sink->vectors().empty());
  may_go = true;
  loop_->wake();
  neighbour->wait_done();
  EXPECT_EQ(neighbour->vectors().size(), 2U);
  EXPECT_EQ(loop_->counts().cancelled, 1);
  EXPECT_EQ(loop_->counts().succeeded, 1);
}

}  // namespace
}  // namespace llorch::worker
