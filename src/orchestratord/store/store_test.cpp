#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "base/error_detail.h"
#include "orchestratord/store/postgres/connection.h"
#include "orchestratord/store/rows/job_row.h"
#include "orchestratord/store/sqlite/database.h"
#include "orchestratord/store/testing/store_bed.h"
#include "wire/json.h"

namespace llorch::orchestratord::store {
namespace {

using base::ErrorCode;
using wire::JobStatus;

class StoreTest : public EveryStore {};
INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest, ::testing::Values(StoreKind::kSqlite, StoreKind::kPostgresql), name_of);

// SYS-6.1.2, SYS-6.1.3: a job survives the process with everything its view and its replay need.
TEST_P(StoreTest, RestoresWhatWasAdmitted) {
  const StoreBed bed(GetParam());
  Admission a = admission("job-1", "the payload");
  a.job.priority = wire::Priority::kBatch;
  a.job.session_id = "session-1";
  a.job.timeout_ms = 5000;
  a.job.on_disconnect = wire::OnDisconnect::kResume;
  {
    auto store = bed.open();
    ASSERT_TRUE(admit(*store, a));
    ASSERT_TRUE(apply(*store, moved_to("job-1", JobStatus::kDispatched)));
  }
  auto store = bed.open();
  const auto jobs = live_jobs(*store);
  ASSERT_EQ(jobs.size(), 1u);
  const JobRecord& job = jobs[0].job;
  EXPECT_EQ(jobs[0].payload, "the payload");
  EXPECT_EQ(job.job_id.value, "job-1");
  EXPECT_EQ(job.priority, wire::Priority::kBatch);
  EXPECT_EQ(job.session_id, "session-1");
  EXPECT_EQ(job.correlation_id.value, "c-job-1");
  EXPECT_EQ(job.request_sha256, a.job.request_sha256);
  EXPECT_EQ(job.facts.context_length, 512);
  EXPECT_EQ(job.seed, 0xffff'ffff'ffff'fff0u);
  EXPECT_EQ(job.timeout_ms, 5000);
  EXPECT_EQ(job.deadline_ms, std::nullopt);
  EXPECT_EQ(job.on_disconnect, wire::OnDisconnect::kResume);
  EXPECT_EQ(job.params, a.job.params);
  EXPECT_EQ(job.progress.status, JobStatus::kDispatched);
  EXPECT_EQ(job.progress.attempts, 1);
}

// What a node may say of a model has bounds; a job of before them is no reason to refuse the start.
TEST_P(StoreTest, RestoresJobsWhoseModelsWereToldInLongTexts) {
  const StoreBed bed(GetParam());
  Admission a = admission("job-1", "the payload");
  a.job.facts.architecture.assign(1000, 'a');
  a.job.facts.vocab_size = -1;
  {
    auto store = bed.open();
    ASSERT_TRUE(admit(*store, a));
  }
  auto store = bed.open();
  const auto jobs = live_jobs(*store);
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(wire::encode(jobs[0].job.facts), wire::encode(a.job.facts));
}

// SYS-9.3.2: what a tenant has used today is what its jobs have that ended today; prompts of jobs that never ran are free.
TEST_P(StoreTest, TenantsGoOnAfterARestart) {
  const StoreBed bed(GetParam());
  const std::int64_t now_ms = kClock.now().unix_ms;
  const auto of = [](const std::string& job_id, const std::string& tenant) {
    Admission a = admission(job_id);
    a.job.tenant_id = tenant;
    return a;
  };
  {
    auto store = bed.open();
    for (const auto& [id, tenant] : std::map<std::string, std::string>{
             {"j1", "a"}, {"j2", "a"}, {"j3", "a"}, {"j4", "a"}, {"j5", "b"}, {"j6", ""}}) {
      ASSERT_TRUE(admit(*store, of(id, tenant)));
    }
    ASSERT_TRUE(apply(*store, finished("j1", now_ms)));                   // 3 + 5 tokens
    ASSERT_TRUE(apply(*store, finished("j2", now_ms - 2 * 86'400'000)));  // not today
    Transition dropped = cancelled("j3");                                 // it never ran
    dropped.progress.attempts = 0;
    dropped.progress.finished_unix_ms = now_ms;
    ASSERT_TRUE(apply(*store, dropped));
    ASSERT_TRUE(apply(*store, finished("j5", now_ms)));
    Admission stands = of("j7", "a");  // for a job that was charged
    stands.job.params = LLORCH_CHARGED_PARAMS + stands.job.params.substr(1);
    ASSERT_TRUE(admit(*store, stands));
    ASSERT_TRUE(apply(*store, finished("j7", now_ms)));
  }
  const auto state = bed.open()->restore().value();
  std::map<std::string, std::int64_t> used;
  for (const auto& use : state.tenants) used[use.tenant_id] = use.tokens;
  EXPECT_EQ(used, (std::map<std::string, std::int64_t>{{"a", 8}, {"b", 8}}));
  ASSERT_EQ(state.jobs.size(), 2U);
  EXPECT_EQ(state.jobs[0].job.tenant_id, "a");
}

// OC-CORE-1031: which version of a worker last began a job is kept, so that it is run again on one like that.
TEST_P(StoreTest, KeepsTheVersionOfTheWorker) {
  const StoreBed bed(GetParam());
  {
    auto store = bed.open();
    ASSERT_TRUE(admit(*store, admission("j1")));
    Transition running = moved_to("j1", JobStatus::kRunning);
    running.progress.worker_version = "cpu-x86 build-1 cpu-1 sampler-1";
    ASSERT_TRUE(apply(*store, running));
    ASSERT_TRUE(apply(*store, moved_to("j1", JobStatus::kQueued)));
  }
  EXPECT_EQ(live_jobs(*bed.open()).at(0).job.progress.worker_version, "cpu-x86 build-1 cpu-1 sampler-1");
}

// SYS-6.1.3, ORCH-3004: what waits comes back in the order it came.
TEST_P(StoreTest, RestoresInOrderOfArrivalAndOnlyWhatIsNotFinished) {
  const StoreBed bed(GetParam());
  {
    auto store = bed.open();
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(admit(*store, admission("job-" + std::to_string(99 - i))));
    ASSERT_TRUE(apply(*store, finished("job-98")));
    ASSERT_TRUE(apply(*store, cancelled("job-97")));
  }
  auto store = bed.open();
  const auto jobs = live_jobs(*store);
  ASSERT_EQ(jobs.size(), 28u);
  EXPECT_EQ(jobs[0].job.job_id.value, "job-99");
  EXPECT_EQ(jobs[1].job.job_id.value, "job-96");
  EXPECT_EQ(jobs[27].job.job_id.value, "job-70");
}

TEST_P(StoreTest, AFinishedJobKeepsItsOutcome) {
  const StoreBed bed(GetParam());
  auto store = bed.open();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  Transition running = moved_to("job-1", JobStatus::kRunning);
  running.progress.worker_id = "worker-1";
  running.progress.started_unix_ms = 42;
  ASSERT_TRUE(apply(*store, running));
  ASSERT_TRUE(apply(*store, finished("job-1")));
  const JobRecord job = find(*store, "job-1").value().value();
  EXPECT_EQ(job.progress.status, JobStatus::kCompleted);
  EXPECT_EQ(job.progress.worker_id, "worker-1") << "absent fields must keep their column";
  EXPECT_EQ(job.progress.started_unix_ms, 42);
  EXPECT_EQ(job.progress.end->decode_time_ms, 7);
  EXPECT_EQ(job.progress.last_event_id, "7-0123456789abcdef");
  ASSERT_TRUE(admit(*store, admission("job-2")));
  ASSERT_TRUE(apply(*store, cancelled("job-2")));
  EXPECT_EQ(find(*store, "job-2").value()->progress.error->code, "CANCELLED");
  EXPECT_EQ(find(*store, "job-3").value(), std::nullopt);
}

// ORCH-3099: a restart refills no budget: what a session has used is what its jobs have, each of them once.
TEST_P(StoreTest, SessionsComeBackWithWhatTheirJobsUsed) {
  const StoreBed bed(GetParam());
  {
    auto store = bed.open();
    for (const char* id : {"job-1", "job-2", "job-3", "job-4"}) ASSERT_TRUE(admit(*store, in_session(id, 7)));
    ASSERT_TRUE(admit(*store, in_session("job-5", 8)));  // the id again, after the first session was over
    ASSERT_TRUE(admit(*store, admission("job-6")));
    Transition end = finished("job-1", 1'700'000'009'000);
    end.progress.decode_time_ms = 11;
    end.progress.tokens_in = 2;  // as its engine counted
    ASSERT_TRUE(apply(*store, end));
    Transition lost = cancelled("job-2");  // while it waited
    lost.progress.attempts = 0;
    ASSERT_TRUE(apply(*store, lost));
    Transition cut = cancelled("job-3");  // while it ran
    cut.progress.tokens_out = 2;
    cut.progress.decode_time_ms = 5;
    ASSERT_TRUE(apply(*store, cut));
    ASSERT_TRUE(apply(*store, moved_to("job-4", JobStatus::kRunning)));
  }
  auto store = bed.open();
  const RestoredState state = store->restore().value();
  ASSERT_EQ(state.sessions.size(), 2u);
  const auto& [session, use, last_activity_unix_ms] = state.sessions[0];
  EXPECT_EQ(session.key, 7);
  EXPECT_EQ(session.session_id.value, "session-1");
  EXPECT_EQ(session.token_budget, 1000);
  EXPECT_EQ(session.time_budget_ms, std::nullopt);
  EXPECT_EQ(session.cost_budget_nano, 5'000'000);
  EXPECT_EQ(session.output_token_cost_nano, 2000);
  EXPECT_EQ(use.turns, 4);
  EXPECT_EQ(use.tokens_in, 5);
  EXPECT_EQ(use.tokens_out, 7);
  EXPECT_EQ(use.decode_time_ms, 16);
  EXPECT_EQ(last_activity_unix_ms, 1'700'000'009'000);
  EXPECT_EQ(state.sessions[1].use.turns, 1);
  ASSERT_EQ(state.jobs.size(), 3u);
  EXPECT_EQ(state.jobs[0].job.session_key, 7);
  EXPECT_EQ(state.jobs[2].job.session_key, std::nullopt);
}

// A session without a job is a row as well; it can be touched and forgotten, and its jobs stay.
TEST_P(StoreTest, SessionsAreRememberedAndForgotten) {
  const StoreBed bed(GetParam());
  {
    auto store = bed.open();
    const auto remember = [&](core::sessions::SessionRecord row) {
      std::promise<base::Result<>> done;
      store->remember_session(std::move(row), [&](base::Result<> r) { done.set_value(std::move(r)); });
      return done.get_future().get();
    };
    ASSERT_TRUE(remember(session_row(7)));
    ASSERT_TRUE(remember(session_row(7, 1'700'000'005'000)));
    ASSERT_TRUE(remember(session_row(8)));
    ASSERT_TRUE(admit(*store, in_session("job-1", 8)));
    store->forget_session(8);
  }
  auto store = bed.open();
  const RestoredState state = store->restore().value();
  ASSERT_EQ(state.sessions.size(), 1u);
  EXPECT_EQ(state.sessions[0].session.key, 7);
  EXPECT_EQ(state.sessions[0].last_activity_unix_ms, 1'700'000'005'000);
  EXPECT_EQ(state.jobs.size(), 1u);
}

// A job has exactly one terminal state.
TEST_P(StoreTest, RefusesASecondTerminalStateAndTakenIds) {
  const StoreBed bed(GetParam());
  auto store = bed.open();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  EXPECT_EQ(admit(*store, admission("job-1")).error().code, ErrorCode::kConflict);
  Admission same_task = admission("job-2");
  same_task.job.task_id = "job-1";
  EXPECT_EQ(admit(*store, same_task).error().code, ErrorCode::kConflict);
  Admission named = admission("job-3");
  named.job.task_id = "task-3";
  ASSERT_TRUE(admit(*store, named));
  EXPECT_EQ(admit(*store, admission("task-3")).error().code, ErrorCode::kConflict);
  ASSERT_TRUE(apply(*store, finished("job-1")));
  EXPECT_EQ(apply(*store, cancelled("job-1")).error().code, ErrorCode::kConflict);
  EXPECT_EQ(apply(*store, cancelled("job-9")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(find(*store, "job-1").value()->progress.status, JobStatus::kCompleted);
}

// A job's id and a task's name are looked for in one place: neither may stand for another job as well.
TEST_P(StoreTest, ATaskIsNotNamedAfterAnotherJob) {
  const StoreBed bed(GetParam());
  auto store = bed.open();
  Admission named = admission("job-1");
  named.job.task_id = "task-1";
  ASSERT_TRUE(admit(*store, named));
  Admission after_its_id = admission("job-2");
  after_its_id.job.task_id = "job-1";
  EXPECT_EQ(admit(*store, after_its_id).error().code, ErrorCode::kConflict);
  Admission with_its_name = admission("task-1");
  with_its_name.job.task_id = "task-2";
  EXPECT_EQ(admit(*store, with_its_name).error().code, ErrorCode::kConflict);
  EXPECT_TRUE(admit(*store, admission("job-2")));
  for (const char* id : {"job-1", "task-1"}) {
    std::promise<base::Result<std::optional<JobRecord>>> found;
    store->find_task(id, [&](auto r) { found.set_value(std::move(r)); });
    EXPECT_EQ(found.get_future().get().value()->job_id.value, "job-1");
  }
}

TEST_P(StoreTest, OneBadAdmissionDoesNotTouchItsBatch) {
  const StoreBed bed(GetParam());
  auto store = bed.open();
  std::vector<std::future<base::Result<>>> results;
  for (const char* id : {"job-1", "job-2", "job-1", "job-3"}) {
    auto done = std::make_shared<std::promise<base::Result<>>>();
    results.push_back(done->get_future());
    store->admit(admission(id), [done](base::Result<> r) { done->set_value(std::move(r)); });
  }
  EXPECT_TRUE(results[0].get());
  EXPECT_TRUE(results[1].get());
  EXPECT_EQ(results[2].get().error().code, ErrorCode::kConflict);
  EXPECT_TRUE(results[3].get());
  EXPECT_EQ(live_jobs(*store).size(), 3u);
}

// A job is found by its task_id, and the list behind `llorch ps` begins with the newest.
TEST_P(StoreTest, FindsByTaskAndListsTheNewestFirst) {
  const StoreBed bed(GetParam());
  auto store = bed.open();
  for (int i = 0; i < 5; ++i) {
    Admission a = admission("job-" + std::to_string(i));
    a.job.task_id = "task-" + std::to_string(i);
    ASSERT_TRUE(admit(*store, a));
  }
  std::promise<base::Result<std::optional<JobRecord>>> by_task;
  store->find_task("task-3", [&](auto r) { by_task.set_value(std::move(r)); });
  EXPECT_EQ(by_task.get_future().get().value()->job_id.value, "job-3");
  std::promise<base::Result<std::vector<JobRecord>>> list;
  store->list({.count_max = 2}, [&](auto r) { list.set_value(std::move(r)); });
  const auto jobs = list.get_future().get().value();
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].job_id.value, "job-4");
}

// What has ended is not read for it, however much that is: SQLite refuses the statement where it is not found by the index of live jobs.
TEST_P(StoreTest, ListsLiveJobsAlone) {
  const StoreBed bed(GetParam());
  auto store = bed.open();
  for (const char* id : {"job-0", "job-1", "job-2", "job-3"}) {
    Admission a = admission(id);
    a.job.task_id = id;
    ASSERT_TRUE(admit(*store, a));
  }
  for (const char* id : {"job-4", "job-5", "job-6"}) {
    Admission a = admission(id);
    a.job.task_id = std::string("alice:") + id;
    a.job.tenant_id = "alice";
    ASSERT_TRUE(admit(*store, a));
  }
  for (const char* id : {"job-1", "job-3", "job-5"}) ASSERT_TRUE(apply(*store, finished(id)));
  const auto listed = [&](Listing listing) {
    std::promise<base::Result<std::vector<JobRecord>>> list;
    store->list(std::move(listing), [&](auto r) { list.set_value(std::move(r)); });
    const auto found = list.get_future().get();
    std::string out;
    if (!found) return found.error().message;
    for (const JobRecord& job : *found) out += job.job_id.value.back();
    return out;
  };
  EXPECT_EQ(listed({.count_max = 10}), "6543210");
  EXPECT_EQ(listed({.count_max = 10, .only_live = true}), "6420");
  EXPECT_EQ(listed({.count_max = 2, .only_live = true}), "64");
  EXPECT_EQ(listed({.count_max = 10, .tenant_id = "alice", .only_live = true}), "64");
  EXPECT_EQ(listed({.count_max = 10, .tenant_id = "bob", .only_live = true}), "");
  const std::int64_t arrival = find(*store, "job-4").value()->arrival;
  EXPECT_EQ(listed({.count_max = 10, .before = arrival, .only_live = true}), "20");
  EXPECT_EQ(listed({.count_max = 10, .tenant_id = "alice", .before = arrival, .only_live = true}), "");
}

// SYS-9.2.3: the payload's text is on no disk at any time, and after the terminal event nor is what opens it.
TEST_P(StoreTest, KeepsNoPayloadTextAndDestroysTheKey) {
  const StoreBed bed(GetParam());
  const std::string needle = "Once upon a time a needle lay in a haystack";
  std::string keys_while_live;
  {
    auto store = bed.open();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(admit(*store, admission("job-" + std::to_string(i), needle)));
    EXPECT_FALSE(bed.holds(needle));
    keys_while_live = key_file_bytes(bed.dir);
    ASSERT_GE(keys_while_live.size(), 3 * payload::kKeyBytes);
    ASSERT_TRUE(apply(*store, finished("job-0")));
    ASSERT_TRUE(apply(*store, cancelled("job-2")));
    // The overwrite follows the commit on the store's thread, ahead of the next answer.
    ASSERT_TRUE(find(*store, "job-1"));
    EXPECT_FALSE(bed.holds(needle));
    EXPECT_FALSE(bed.holds(keys_while_live.substr(0, payload::kKeyBytes)));
    EXPECT_TRUE(bed.holds(keys_while_live.substr(payload::kKeyBytes, payload::kKeyBytes)));
    EXPECT_FALSE(bed.holds(keys_while_live.substr(2 * payload::kKeyBytes, payload::kKeyBytes)));
  }
  EXPECT_FALSE(bed.holds(needle));
  auto store = bed.open();
  EXPECT_EQ(live_jobs(*store).at(0).payload, needle);
}

// Without the key, or without a spooled payload, the job is still known and can be ended as PAYLOAD_LOST.
TEST_P(StoreTest, AJobWhosePayloadIsLostIsStillRestored) {
  const StoreBed bed(GetParam());
  {
    auto store = bed.open();
    ASSERT_TRUE(admit(*store, admission("job-1", "text")));
    ASSERT_TRUE(admit(*store, admission("job-2", std::nullopt)));
  }
  std::filesystem::remove(bed.dir.path() / "payload.keys");
  auto store = bed.open();
  const auto jobs = live_jobs(*store);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].payload, std::nullopt);
  EXPECT_EQ(jobs[1].payload, std::nullopt);
  // The slots of the lost keys are taken until their jobs have ended.
  EXPECT_TRUE(admit(*store, admission("job-3")));
  EXPECT_TRUE(apply(*store, cancelled("job-1")));
}

// A damaged row is its job's matter, whichever column it is in. Rows with a receipt are put together by the database.
TEST_P(StoreTest, ARowThatCannotBeReadKeepsNoOtherFromBeingRead) {
  const StoreBed bed(GetParam());
  const std::vector<std::string> ids{"good", "no-facts", "negative", "far-slot", "ended", "with-receipt"};
  {
    auto store = bed.open();
    for (const std::string& id : ids) {
      Admission a = admission(id, "text of " + id);
      a.job.model = id;  // rows of SQLite that say alike share one of its model
      ASSERT_TRUE(admit(*store, std::move(a)));
    }
    ASSERT_TRUE(apply(*store, cancelled("ended")));
    Transition end = finished("with-receipt");
    end.progress.end->receipt = wire::Receipt{.model_digest = "sha256:1", .tokens_out = end.progress.end->tokens_out};
    ASSERT_TRUE(apply(*store, end));
  }
  const std::string damage =
      "UPDATE jobs SET max_tokens = -5, attempts = -1 WHERE job_id = 'negative';"
      "UPDATE jobs SET terminal_event = substr(terminal_event, 2) WHERE completed_at IS NOT NULL;";
  if (GetParam() == StoreKind::kSqlite) {
    auto database = sqlite::Database::open({.path = (bed.dir.path() / "orchestrator.db").string()}).value();
    ASSERT_TRUE(database.execute(damage + "UPDATE models SET model_facts = '[' WHERE model = 'no-facts';"
                                          "UPDATE job_payloads SET key_slot = 4294967295 WHERE arrival = "
                                          "(SELECT arrival FROM jobs WHERE job_id = 'far-slot')"));
  } else {
    auto connection = postgres::Connection::open({bed.conninfo}).value();
    ASSERT_TRUE(connection.execute("SET search_path = llorch;" + damage +
                                   "UPDATE jobs SET model_facts = '[' WHERE job_id = 'no-facts';"
                                   "UPDATE job_payloads SET key_slot = 4294967295 WHERE job_id = 'far-slot'"));
  }
  auto store = bed.open();
  std::map<std::string, std::string> unreadable;
  for (const RestoredJob& live : live_jobs(*store)) {
    const bool is_good = !live.job.unreadable && live.payload;
    unreadable[live.job.job_id.value] = is_good ? "" : live.job.unreadable.value_or(base::Error{}).message;
    EXPECT_FALSE(wire::is_terminal(live.job.progress.status));
    EXPECT_GE(live.job.max_tokens, 0);
  }
  const std::string words = "a row of the job store holds an impossible value in column ";
  EXPECT_EQ(unreadable, (std::map<std::string, std::string>{{"good", ""},
                                                            {"no-facts", words + "model_facts"},
                                                            {"negative", words + "max_tokens"},
                                                            {"far-slot", words + "key_slot"}}));
  for (const char* id : {"ended", "with-receipt"}) {
    const JobRecord record = find(*store, id).value().value();
    EXPECT_FALSE(record.progress.end);
    EXPECT_EQ(record.progress.error.value().code, "CORRUPT_FILE");
  }
  std::promise<base::Result<std::vector<JobRecord>>> listed;
  store->list({.count_max = 10}, [&](auto r) { listed.set_value(std::move(r)); });
  EXPECT_EQ(listed.get_future().get().value().size(), ids.size());
  for (const char* id : {"no-facts", "negative", "far-slot"}) EXPECT_TRUE(apply(*store, cancelled(id))) << id;
  EXPECT_LT(std::filesystem::file_size(bed.dir.path() / "payload.keys"), 1U << 20) << "room for slots that are none";
  EXPECT_EQ(live_jobs(*store).at(0).payload, "text of good");
}

// What a row leaves out or has as bytes comes back as it was written.
TEST_P(StoreTest, RecordsComeBackAsTheyWereWritten) {
  const StoreBed bed(GetParam());
  const std::string digest = base::to_hex(base::sha256("x"));
  auto store = bed.open();
  Admission a = admission("job-1");
  a.job.request_sha256 = digest;
  a.job.prompt_sha256 = "no digest";
  Admission b = admission("job-2");
  b.job.task_id = "task-2";
  ASSERT_TRUE(admit(*store, a));
  ASSERT_TRUE(admit(*store, b));
  Transition end = finished("job-1");
  end.progress.end->receipt = wire::Receipt{.model_digest = "sha256:1",
                                            .engine_build = "b",
                                            .numerics = "cpu-1",
                                            .device_class = "cpu-x86",
                                            .sampler = "s",
                                            .kv_dtype = "f16",
                                            .seed = a.job.seed,
                                            .prompt_sha256 = a.job.prompt_sha256,
                                            .output_sha256 = digest,
                                            .tokens_out = 5,
                                            .parameters_sha256 = digest};
  Transition other = end;  // says another seed and prompt than its job
  other.job_id = base::JobId("job-2");
  other.progress.end->job_id = "job-2";
  other.progress.end->receipt->seed = 1;
  other.progress.end->receipt->prompt_sha256 = digest;
  ASSERT_TRUE(apply(*store, end));
  ASSERT_TRUE(apply(*store, other));
  const JobRecord first = *find(*store, "job-1").value(), second = *find(*store, "job-2").value();
  EXPECT_EQ(first.request_sha256, digest);
  EXPECT_EQ(first.prompt_sha256, "no digest");
  EXPECT_EQ(first.task_id, "job-1");
  EXPECT_EQ(second.task_id, "task-2");
  EXPECT_EQ(wire::encode(first.facts), wire::encode(a.job.facts));
  EXPECT_EQ(wire::encode(*first.progress.end), wire::encode(*end.progress.end));
  EXPECT_EQ(wire::encode(*second.progress.end), wire::encode(*other.progress.end));
}

// Texts no database may choke on; a zero byte is the one that PostgreSQL cannot hold.
TEST_P(StoreTest, AnOddTextHarmsNobodyElse) {
  const StoreBed bed(GetParam());
  auto store = bed.open();
  Admission odd = admission("odd");
  odd.job.model = std::string("a\0b", 3);
  std::atomic<int> good{0};
  const auto count = [&](const base::Result<>& r) { good += r.has_value(); };
  store->admit(admission("job-1"), count);
  std::promise<base::Result<>> answer;
  store->admit(odd, [&](base::Result<> r) { answer.set_value(std::move(r)); });
  store->admit(admission("quote'; DROP TABLE jobs; --"), count);
  const auto odd_answer = answer.get_future().get();
  EXPECT_TRUE(odd_answer || odd_answer.error().code == ErrorCode::kInvalidParams) << odd_answer.error().message;
  Transition failed = cancelled("job-1");
  failed.progress.error->message = std::string("the worker said \0\xff", 18);
  EXPECT_TRUE(apply(*store, failed));
  EXPECT_EQ(good, 2);
  EXPECT_TRUE(find(*store, "quote'; DROP TABLE jobs; --").value());
  EXPECT_EQ(find(*store, std::string("\0", 1)).value(), std::nullopt);
}

std::vector<std::string> endpoints(const RestoredState& state) {
  std::vector<std::string> out;
  for (const auto& [pool_id, endpoint] : state.pool_endpoints) out.push_back(endpoint);
  return out;
}

TEST_P(StoreTest, RemembersPoolsAndCheckpoints) {
  const StoreBed bed(GetParam());
  {
    auto store = bed.open();
    ASSERT_TRUE(admit(*store, admission("job-1")));
    store->remember_pool({base::PoolId("pool-1"), "http://127.0.0.1:1"});
    store->remember_pool({base::PoolId("pool-1"), "http://127.0.0.1:2"});
    store->remember_pool({base::PoolId("pool-2"), "http://127.0.0.1:3"});
    std::promise<base::Result<>> forgotten;
    store->forget_pool(base::PoolId("pool-2"), [&](base::Result<> r) { forgotten.set_value(std::move(r)); });
    EXPECT_TRUE(forgotten.get_future().get());
    store->checkpoint(
        {{base::JobId("job-1"), 5, "token", "0123456789abcdef", 1}, {base::JobId("gone"), 5, "token", "", 1}});
    ASSERT_TRUE(find(*store, "job-1"));
    // A run that tells the first tokens again takes none back.
    store->checkpoint({{base::JobId("job-1"), 3, "token", "fedcba9876543210", 2}});
    ASSERT_TRUE(admit(*store, admission("job-2")));
  }
  auto store = bed.open();
  const auto jobs = live_jobs(*store);
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].job.progress.tokens_out, 4);
  EXPECT_EQ(jobs[1].job.progress.tokens_out, 0);
  EXPECT_EQ(endpoints(*store->restore()), std::vector<std::string>{"http://127.0.0.1:2"});
}

// OC-CTRL-2002: an operator's drain outlives the process, and a pool that moves keeps it.
TEST_P(StoreTest, ADrainIsKept) {
  const StoreBed bed(GetParam());
  const auto set = [](Store& store, const std::string& pool, bool draining) {
    std::promise<base::Result<>> promise;
    store.set_desired_state(
        {base::PoolId(pool), "http://127.0.0.1:1", {.draining = draining, .reload = {}, .purged = {}}},
        [&](base::Result<> result) { promise.set_value(std::move(result)); });
    return promise.get_future().get();
  };
  {
    auto store = bed.open();
    store->remember_pool({base::PoolId("pool-1"), "http://127.0.0.1:1"});
    ASSERT_TRUE(set(*store, "pool-1", true));
    ASSERT_TRUE(set(*store, "pool-2", true));
    ASSERT_TRUE(set(*store, "pool-2", false));
    store->remember_pool({base::PoolId("pool-1"), "http://127.0.0.1:9"});
  }
  auto store = bed.open();
  const auto state = store->restore();
  ASSERT_EQ(state->desired_states.size(), 1u);
  EXPECT_TRUE(state->desired_states.at(base::PoolId("pool-1")).draining);
  EXPECT_EQ(endpoints(*state), (std::vector<std::string>{"http://127.0.0.1:9", "http://127.0.0.1:1"}));
}

// ORCH-3038: so do a reload, with what it came from and how it ended, and the workers that a purge sends away.
TEST_P(StoreTest, DesiredStatesAreKept) {
  const StoreBed bed(GetParam());
  const base::PoolId pool("pool-1");
  wire::PoolDesiredState desired;
  desired.reload = wire::DesiredReload{.state = wire::PoolOperationState::kRunning,
                                       .model = admission("x").job.facts,
                                       .before = {{.gpu_id = "0", .model = admission("x").job.facts}},
                                       .error = {}};
  desired.purged = {"worker-1", "worker-2"};
  const auto set = [&](Store& store) {
    std::promise<base::Result<>> promise;
    store.set_desired_state({pool, "http://127.0.0.1:1", desired},
                            [&](base::Result<> r) { promise.set_value(std::move(r)); });
    return promise.get_future().get();
  };
  const auto kept = [&](Store& store) { return wire::encode(store.restore()->desired_states.at(pool)); };
  {
    auto store = bed.open();
    ASSERT_TRUE(set(*store));
    store->remember_pool({pool, "http://127.0.0.1:9"});
  }
  {
    auto store = bed.open();
    EXPECT_EQ(kept(*store), wire::encode(desired));
    EXPECT_EQ(endpoints(*store->restore()), std::vector<std::string>{"http://127.0.0.1:9"});
    desired.reload->state = wire::PoolOperationState::kRolledBack;
    desired.reload->error = "CORRUPT_FILE: the file contradicts itself";
    ASSERT_TRUE(set(*store));
  }
  {
    auto store = bed.open();
    EXPECT_EQ(kept(*store), wire::encode(desired));
    desired = {};
    ASSERT_TRUE(set(*store));
  }
  EXPECT_TRUE(bed.open()->restore()->desired_states.empty());
}

// A row that says what nobody understands, as after a downgrade or a slip in the database, is that pool's alone; and it is
// kept as it is.
TEST_P(StoreTest, ADesiredStateThatCannotBeReadRefusesNoStart) {
  const StoreBed bed(GetParam());
  const base::PoolId pool("pool-1"), other("pool-2");
  const auto set = [&](Store& store, const base::PoolId& id, const wire::PoolDesiredState& desired) {
    std::promise<base::Result<>> promise;
    store.set_desired_state({id, "http://" + id.value, desired},
                            [&](base::Result<> r) { promise.set_value(std::move(r)); });
    return promise.get_future().get();
  };
  const std::string text = R"({"reload":{"state":"of a newer program"}})";
  {
    auto store = bed.open();
    ASSERT_TRUE(admit(*store, admission("job-1")));
    ASSERT_TRUE(set(*store, pool, {.draining = false, .reload = {}, .purged = {}, .unreadable = text}));
    ASSERT_TRUE(set(*store, other, {.draining = false, .reload = {}, .purged = {"worker-1"}}));
  }
  auto store = bed.open();
  auto state = store->restore();
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(state->jobs.size(), 1u);
  EXPECT_EQ(state->desired_states.at(other).purged.size(), 1u);
  wire::PoolDesiredState found = state->desired_states.at(pool);
  EXPECT_EQ(found.unreadable, text);
  EXPECT_FALSE(found.draining || found.reload || !found.purged.empty());
  found.draining = true;
  ASSERT_TRUE(set(*store, pool, found));
  store.reset();
  store = bed.open();
  found = store->restore()->desired_states.at(pool);
  EXPECT_TRUE(found.draining);
  EXPECT_EQ(found.unreadable, text);
  ASSERT_TRUE(set(*store, pool, {}));
  EXPECT_FALSE(store->restore()->desired_states.contains(pool));
}

// Whoever goes on with a job counts with what its row says.
TEST(Store, NumbersThatNoJobHasAreNotRead) {
  for (const char* change :
       {"tokens_in = -1", "attempts = -1", "max_tokens = 9223372036854775807", "timeout_ms = -5", "created_at = -1",
        "tokens_generated = -9223372036854775807", "decode_time_ms = 9223372036854775807", "status = 'running'"}) {
    const TempDir dir;
    {
      auto store = open_in(dir);
      for (const char* id : {"job-1", "job-2"}) {  // of one session, for whose sums they are read as well
        ASSERT_TRUE(admit(*store, in_session(id, 7)));
        ASSERT_TRUE(apply(*store, finished(id)));
      }
    }
    {
      auto database = sqlite::Database::open({.path = (dir.path() / "orchestrator.db").string()}).value();
      ASSERT_TRUE(database.execute(std::string("UPDATE jobs SET ") + change));
    }
    const JobRecord found = find(*open_in(dir), "job-1").value().value();
    EXPECT_TRUE(found.unreadable) << change;
  }
}

TEST(Store, AJobThatHasEndedIsNotLive) {
  const TempDir dir;
  {
    auto store = open_in(dir);
    ASSERT_TRUE(admit(*store, admission("job-1")));
    ASSERT_TRUE(apply(*store, finished("job-1")));
  }
  {
    auto database = sqlite::Database::open({.path = (dir.path() / "orchestrator.db").string()}).value();
    ASSERT_TRUE(database.execute("UPDATE jobs SET completed_at = NULL"));
  }
  if (const auto store = open_sqlite_store(options_in(dir))) {
    for (const RestoredJob& restored : live_jobs(**store)) {
      EXPECT_FALSE(wire::is_terminal(restored.job.progress.status));
    }
  }
}

TEST_P(StoreTest, StopAnswersEverything) {
  const StoreBed bed(GetParam());
  auto store = bed.open();
  std::atomic<int> answers{0};
  for (int i = 0; i < 20; ++i)
    store->admit(admission("job-" + std::to_string(i)), [&](base::Result<> r) { answers += r.has_value(); });
  store->stop();
  EXPECT_EQ(answers, 20);
  EXPECT_EQ(admit(*store, admission("late")).error().code, ErrorCode::kShuttingDown);
  EXPECT_EQ(store->restore().error().code, ErrorCode::kShuttingDown);
}

TEST(StateDirectory, IsLockedByOneProcessAndPrivate) {
  const TempDir dir;
  const auto state = dir.path() / "state";
  {
    auto lock = lock_state_directory(state);
    ASSERT_TRUE(lock);
    struct stat st {};
    ASSERT_EQ(::stat(state.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0700u);
    EXPECT_EQ(lock_state_directory(state).error().code, ErrorCode::kAlreadyRunning);
  }
  EXPECT_TRUE(lock_state_directory(state));
  EXPECT_EQ(lock_state_directory("/proc/llorch").error().code, ErrorCode::kStoreUnavailable);
}

}  // namespace
}  // namespace llorch::orchestratord::store
