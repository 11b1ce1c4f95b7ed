// What the shell does with an answer that comes late.
#include "orchestratord/daemon/shell.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error_detail.h"
#include "net/testing/held_transport.h"
#include "orchestratord/daemon/testing/daemon_fixture.h"
#include "orchestratord/store/sqlite_store.h"
#include "orchestratord/store/testing/store_test_support.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace llorch::orchestratord::daemon::testing {
namespace {

const base::PoolId kPool("pool-a");
const std::string kEndpoint = "http://127.0.0.1:9";
constexpr std::int64_t kAskedMs = 1234;

class ShellTest : public ::testing::Test {
 protected:
  ShellTest() {
    EXPECT_TRUE(base::ensure_private_directory(directory_));
    open();
    restore();
  }
  ~ShellTest() override {
    close();
    std::filesystem::remove_all(directory_);
  }
  void open() {
    access_ = pool_access::PoolAccess::open(directory_ / pool_access::kFileName, entropy_).value();
    store_ = store::open_sqlite_store(
                 {.directory = directory_, .retention = {.ms = 1000}, .clock = &clock_, .entropy = &entropy_})
                 .value();
    shell_ = std::make_unique<Shell>(Shell::Options{.config = &config_,
                                                    .clock = &clock_,
                                                    .entropy = &entropy_,
                                                    .metrics = &metrics_,
                                                    .store = store_.get(),
                                                    .client = &client_,
                                                    .access = access_.get(),
                                                    .request_executor = &executor_,
                                                    .aside = &executor_,
                                                    .post = [this](core::Event e) { keep(std::move(e)); },
                                                    .on_drained = {},
                                                    .roots = {},
                                                    .names = names_.get(),
                                                    .known_models = &known_models_,
                                                    .state_directory = directory_});
  }
  void keep(core::Event event) {
    if (std::holds_alternative<core::Committed>(event)) return;  // from the store's thread
    events_.push_back(std::move(event));
  }
  void close() {
    if (store_) store_->stop();
    shell_.reset();
    store_.reset();
    access_.reset();
  }
  core::Restored restore(store::RestoredState state) {
    LiveRequests requests = read_live_jobs(state).value();
    return shell_->restore(std::move(state), std::move(requests));
  }
  std::vector<std::string> restore() { return restore(store_->restore().value()).pool_endpoints; }
  // The endpoints that the next process knows.
  std::vector<std::string> restart() {
    close();
    open();
    return restore();
  }
  void pair() { credential_ = access_->pair(kPool).value(); }
  void announce() {
    EXPECT_TRUE(access_->announce(access_->caller_of(base::sha256(credential_->node_token())).value(), kEndpoint));
  }
  void ask() {
    shell_->execute(core::AskPoolState{kEndpoint, kAskedMs});
    ASSERT_EQ(client_.requests.size(), 1U);
    EXPECT_EQ(client_.requests[0].first.bearer, credential_->control_token());
  }
  void answer() {
    wire::PoolState state;
    state.pool_id = kPool.value;
    state.endpoint = kEndpoint;
    state.boot_id = "boot-1";
    client_.answer(net::Response{.status = 200, .headers = {}, .body = wire::encode(state)});
  }
  bool is_seen() const { return events_.size() == 1 && std::holds_alternative<core::PoolSeen>(events_[0]); }

  const std::filesystem::path directory_ = fresh_directory();
  base::SystemEntropy entropy_;
  base::SystemClock clock_;
  config::Config config_;
  http::Metrics metrics_{{.engine_version = "test", .algorithm = "test"}};
  std::vector<wire::KnownModel> known_models_;
  std::unique_ptr<models::ModelNames> names_ =
      models::ModelNames::open({.file = {}, .configured = {}, .roots = {}, .clock = &clock_}).value();
  net::testing::HeldTransport client_;
  net::testing::InlineExecutor executor_;
  std::vector<core::Event> events_;
  std::optional<config::PoolCredential> credential_;
  std::unique_ptr<pool_access::PoolAccess> access_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<Shell> shell_;
};

TEST_F(ShellTest, AnEndpointIsKnownToTheNextProcess) {
  pair();
  announce();
  shell_->execute(core::RememberPool{kPool, kEndpoint});
  EXPECT_EQ(restart(), std::vector{kEndpoint});
  ask();
  answer();
  EXPECT_TRUE(is_seen());
  EXPECT_EQ(std::get<core::PoolSeen>(events_.at(0)).asked_ms, kAskedMs);
  shell_->execute(core::RememberPool{kPool, kEndpoint});
  EXPECT_EQ(restart(), std::vector{kEndpoint}) << "nothing announced it to that process";
}

// A request that was still being read at the stop asks a core that is gone.
TEST_F(ShellTest, WhoAsksBehindTheStopIsDroppedWhileTheHubLives) {
  struct Probe {
    std::weak_ptr<streams::Stream> stream;
    bool& hub_lived;
    ~Probe() { hub_lived = !stream.expired(); }
  };
  bool hub_lived = false;
  const http::Context& context = shell_->context();
  std::weak_ptr<streams::Stream> stream = context.hub->open(base::JobId("job-1"), wire::OnDisconnect::kCancel);
  shell_->end_stop();
  context.core->ask<core::AnswerQueryJob>(
      core::QueryJob{.request = {}, .job_id = base::JobId("job-1")},
      [probe = std::shared_ptr<Probe>(new Probe{stream, hub_lived})](const core::AnswerQueryJob&) {});
  close();
  EXPECT_TRUE(hub_lived) << "a stream that it held would report to a hub that is gone";
}

// What the store says of the time that has passed is what deadlines go by.
TEST_F(ShellTest, ARestartTellsTheSettledTime) {
  store::RestoredState state;
  state.settled_unix_ms = 1'700'000'000'000;
  EXPECT_EQ(restore(std::move(state)).settled_unix_ms, 1'700'000'000'000);
}

// Tokens that were told before a restart are in a job's record and its tenant's use, also where it ends before they are told again.
TEST_F(ShellTest, WhatWasToldBeforeARestartCountsAtACancel) {
  const base::JobId id("job-1");
  ASSERT_TRUE(store::admit(*store_, store::admission(id.value, std::nullopt)));
  ASSERT_TRUE(store::apply(*store_, store::moved_to(id.value, wire::JobStatus::kRunning)));
  store_->checkpoint({{id, streams::kFirstTokenSeq + 6, "token", "0123456789abcdef", 1}});
  ASSERT_TRUE(store::find(*store_, id.value).value());
  restart();
  core::jobs::JobRecord record{.job_id = id, .status = wire::JobStatus::kCancelled, .attempts = 1};
  record.finished_unix_ms = clock_.now().unix_ms;
  record.tokens_out = 0;
  record.error = base::Error{base::ErrorCode::kCancelled, "The job was cancelled.", {}};
  shell_->execute(core::CommitTransition{core::CommitId{1}, std::move(record)});
  ASSERT_EQ(events_.size(), 1U);
  EXPECT_EQ(std::get<core::StreamCounted>(events_[0]).tokens_out, 7);
  EXPECT_EQ(store::find(*store_, id.value).value().value().progress.tokens_out, 7);
}

// What an older program would leave out, a step of sampling or a pool that is to be avoided, is no reason to run the job without it. What
// no program can read ends alone; ahead of a migration a sealed payload is at least as an older one wrote it.
TEST(LiveJobs, WhatANewerProgramAcceptedIsNeitherChangedNorEnded) {
  wire::ExecuteRequest execution;
  execution.job_id = "job-1";
  execution.prompt = "x";
  const std::string request = wire::encode(execution);
  const std::string with_newer = request.substr(0, request.size() - 1) + R"(,"newer_field":1})";
  store::RestoredState state;
  state.jobs.resize(2);
  for (store::RestoredJob& job : state.jobs) {
    job.job.job_id = base::JobId("job-1");
    job.job.params = R"({"temperature":0.7,"newer_word_for_operators":1,"placement":{"mode":"auto"}})";
    job.payload = request;
  }
  store::RestoredJob& job = state.jobs[0];
  const store::RestoredJob good = state.jobs[1];
  struct Case {
    std::string params, payload;
    bool refuses_the_start = false, refuses_the_migration = false;
  };
  const Case cases[] = {{good.job.params, with_newer, true, true},
                        {R"({"placement":{"newer_field":1}})", request, true, true},
                        {good.job.params, "{}", false, true},
                        {good.job.params, request.substr(1), false, true},
                        {good.job.params, request + " ", false, false},
                        {R"({"placement":{"mode":"newer"}})", request, false, false},
                        {R"(["temperature":0.7})", request, false, false}};
  for (const Case& unreadable : cases) {
    SCOPED_TRACE(unreadable.params + unreadable.payload);
    job.job.params = unreadable.params;
    job.payload = unreadable.payload;
    const auto read = read_live_jobs(state);
    EXPECT_EQ(!read, unreadable.refuses_the_start);
    if (read) {
      EXPECT_FALSE(read->at(0));
      EXPECT_TRUE(read->at(1)) << "another job";
    } else {
      EXPECT_EQ(read.error().code, base::ErrorCode::kUnsupportedFormatVersion);
      EXPECT_TRUE(base::has_detail(read.error(), "job_id", "job-1"));
    }
    const auto before_migration = check_live_job({job.job.job_id, job.job.params, job.payload});
    EXPECT_EQ(!before_migration, unreadable.refuses_the_migration);
    if (!before_migration) {
      EXPECT_EQ(before_migration.error().code, base::ErrorCode::kUnsupportedFormatVersion);
    }
  }
  job = good;
  job.job.unreadable = base::Error{base::ErrorCode::kCorruptFile, "for the test", {}};
  EXPECT_FALSE(read_live_jobs(state).value().at(0));
  job = good;
  const LiveRequests read = read_live_jobs(state).value();
  ASSERT_TRUE(read.at(0) && *read[0]);
  EXPECT_EQ((*read[0])->parameters_sha256, wire::parameters_sha256(execution));
  job.payload.reset();
  EXPECT_FALSE(read_live_jobs(state).value().at(0).value()) << "its key is lost, which is another matter";
}

TEST_F(ShellTest, WorkOfATenantThatWasRemovedIsTold) {
  config_.orchestratord.tenants = {{.id = "stays", .token_file = {}, .throttle = {}, .quotas = {}}};
  store::RestoredState state;
  for (const char* account : {"gone", "stays", "localhost"}) {
    store::RestoredJob job;
    job.job.job_id = base::JobId(std::string("job-of-") + account);
    job.job.tenant_id = account;
    job.job.params = "{}";
    state.jobs.push_back(std::move(job));
  }
  std::string log;
  base::capture_log_lines([&](std::string_view line) { log += line; });
  EXPECT_EQ(restore(std::move(state)).jobs.size(), 3U);
  base::capture_log_lines({});
  EXPECT_NE(log.find("tenants.removed"), std::string::npos) << log;
  EXPECT_NE(log.find("\"jobs\":1"), std::string::npos) << log;
}

TEST_F(ShellTest, AnEndpointThatAnotherPoolTookIsNotKnownToTheNextProcess) {
  pair();
  announce();
  shell_->execute(core::RememberPool{kPool, kEndpoint});
  shell_->execute(core::RememberPool{kPool, ""});
  EXPECT_EQ(access_->endpoint_of(kPool), std::nullopt);
  EXPECT_TRUE(restart().empty());
}

// A question that hung fails after the next one was answered: models are looked at there as before, and the core hears of which it was.
TEST_F(ShellTest, AFailureThatAnAnswerOvertookLeavesThePoolInTheCatalog) {
  pair();
  announce();
  shell_->execute(core::RememberPool{kPool, kEndpoint});
  const auto is_in_catalog = [&] {
    const std::size_t before = client_.requests.size();
    shell_->context().catalog->find({.model_ref = "file:/" + std::to_string(before) + ".gguf"}, [](const auto&) {});
    return client_.requests.size() > before;
  };
  shell_->execute(core::AskPoolState{kEndpoint, kAskedMs});
  shell_->execute(core::AskPoolState{kEndpoint, kAskedMs + 1});
  ASSERT_EQ(client_.requests.size(), 2U);
  auto overtaken = std::move(client_.requests.front().second);
  answer();
  ASSERT_TRUE(is_seen());
  overtaken(base::fail(base::ErrorCode::kTimeout, "it hung"));
  ASSERT_EQ(events_.size(), 2U);
  EXPECT_EQ(std::get<core::PoolUnreachable>(events_[1]).asked_ms, kAskedMs);
  EXPECT_TRUE(is_in_catalog());
  shell_->execute(core::AskPoolState{kEndpoint, kAskedMs + 1});
  client_.answer(base::fail(base::ErrorCode::kTimeout, "it hangs"));
  EXPECT_FALSE(is_in_catalog());
}

// A node that holds its answer until its pool is paired anew does not have the next process send it the new token.
// A store in PostgreSQL comes over without the state directory: whoever waits for its jobs is told why they wait.
TEST_F(ShellTest, PoolsOfWhichNoCredentialCameAlongAreTold) {
  pair();
  announce();
  shell_->execute(core::RememberPool{kPool, kEndpoint});
  close();
  std::filesystem::remove(directory_ / pool_access::kFileName);
  std::string log;
  base::capture_log_lines([&](std::string_view line) { log += line; });
  open();
  EXPECT_TRUE(restore().empty());
  base::capture_log_lines({});
  EXPECT_EQ(shell_->context().unpaired_pools, std::vector{kPool});
  EXPECT_NE(log.find("pools.not_paired"), std::string::npos) << log;
  EXPECT_NE(log.find("pool-a"), std::string::npos) << log;
}

TEST_F(ShellTest, AnAnswerToTheLastCredentialSaysNothing) {
  pair();
  announce();
  shell_->execute(core::RememberPool{kPool, kEndpoint});
  ask();
  pair();
  shell_->execute(core::ForgetPool{core::CommitId{1}, kPool});
  answer();
  EXPECT_FALSE(is_seen());

  // Also where the core has taken the answer before.
  shell_->execute(core::RememberPool{kPool, kEndpoint});
  EXPECT_TRUE(restart().empty());

  // The pool is there again before the answer: it stays.
  announce();
  shell_->execute(core::RememberPool{kPool, kEndpoint});
  ask();
  pair();
  announce();
  shell_->execute(core::RememberPool{kPool, kEndpoint});
  events_.clear();
  answer();
  EXPECT_TRUE(events_.empty());
}

}  // namespace
}  // namespace llorch::orchestratord::daemon::testing
