// How much a store keeps, and that nobody waits while it forgets or is read at length.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/settled_clock.h"
#include "orchestratord/store/files/state_file.h"
#include "orchestratord/store/group_core.h"
#include "orchestratord/store/testing/store_bed.h"
#include "wire/json.h"

namespace llorch::orchestratord::store {
namespace {

class StoreRetentionTest : public EveryStore {};
INSTANTIATE_TEST_SUITE_P(Kinds, StoreRetentionTest, ::testing::Values(StoreKind::kSqlite, StoreKind::kPostgresql),
                         name_of);

Admission of_tenant(const std::string& tenant_id, const std::string& job_id) {
  Admission a = admission(job_id, std::nullopt);
  a.job.tenant_id = tenant_id;
  return a;
}

// A budget that a removed row refills is no budget.
TEST_P(StoreRetentionTest, WhatAJobUsedOutlivesItsRow) {
  const StoreBed bed(GetParam());
  const std::int64_t now = kClock.now().unix_ms;
  const auto use_of = [](const RestoredState& state) {
    const core::sessions::RestoredSession& session = state.sessions.at(0);
    std::string text = fmt::format("{} turns, {} in, {} out, {} ms, last {};", session.use.turns, session.use.tokens_in,
                                   session.use.tokens_out, session.use.decode_time_ms, session.last_activity_unix_ms);
    for (const auto& tenant : state.tenants) text += fmt::format(" {}: {}", tenant.tenant_id, tenant.tokens);
    return text;
  };
  std::string before;
  {
    auto store = bed.open();
    for (const char* id : {"job-1", "job-2", "job-3"}) {
      Admission in = in_session(id, 7);
      in.job.tenant_id = "ada";
      ASSERT_TRUE(admit(*store, in));
    }
    Transition charged = finished("job-1", now);
    charged.progress.decode_time_ms = 7;
    ASSERT_TRUE(apply(*store, charged));
    ASSERT_TRUE(apply(*store, finished("job-2", now)));
    ASSERT_TRUE(admit(*store, of_tenant("bob", "job-4")));
    ASSERT_TRUE(apply(*store, finished("job-4", now)));
    before = use_of(store->restore().value());
  }
  EXPECT_NE(before.find("3 turns, 6 in, 10 out, 7 ms"), std::string::npos) << before;
  EXPECT_NE(before.find("ada: 16 bob: 8"), std::string::npos) << before;
  auto store = bed.open({.ms = StoreBed::kKeepAll, .count_max = 0});
  EXPECT_FALSE(find(*store, "job-1").value());
  EXPECT_FALSE(find(*store, "job-2").value());
  EXPECT_FALSE(find(*store, "job-4").value());
  EXPECT_TRUE(find(*store, "job-3").value());
  EXPECT_EQ(use_of(store->restore().value()), before);
}

// With it in the store the old ones are old by what the store wrote itself, and not only by the clock.
Admission young_admission(const std::string& job_id) {
  Admission a = admission(job_id, std::nullopt);
  a.job.submitted_unix_ms = kClock.now().unix_ms;
  return a;
}

// Finished jobs stay for the retention time, unfinished ones as long as they live.
TEST_P(StoreRetentionTest, RemovesFinishedJobsPastTheirRetention) {
  const StoreBed bed(GetParam());
  const std::int64_t now = kClock.now().unix_ms;
  {
    auto store = bed.open();
    for (const char* id : {"old", "young"}) ASSERT_TRUE(admit(*store, admission(id)));
    ASSERT_TRUE(admit(*store, young_admission("live")));
    ASSERT_TRUE(apply(*store, finished("old", now - 8LL * 24 * 3600 * 1000)));
    ASSERT_TRUE(apply(*store, finished("young", now - 6LL * 24 * 3600 * 1000)));
  }
  auto store = bed.open({.ms = 7LL * 24 * 3600 * 1000});
  EXPECT_EQ(find(*store, "old").value(), std::nullopt);
  EXPECT_NE(find(*store, "young").value(), std::nullopt);
  EXPECT_NE(find(*store, "live").value(), std::nullopt);
}

// A clock that is wrong at a start, or that is set forward later, makes nothing old at once.
TEST_P(StoreRetentionTest, AJumpOfTheWallClockRemovesNothing) {
  StoreBed bed(GetParam());
  base::ManualClock clock;
  bed.clock = &clock;
  constexpr RetentionLimits kWeek{.ms = 7LL * kDayMs};
  const auto jump_days = [&](std::int64_t days) {
    clock.set({clock.now().mono_ms, clock.now().unix_ms + days * kDayMs});
  };
  const auto turn = [&](Store& store, const std::string& id) { return admit(store, admission(id)).has_value(); };
  {
    auto store = bed.open(kWeek);
    ASSERT_TRUE(turn(*store, "kept"));
    ASSERT_TRUE(apply(*store, finished("kept", clock.now().unix_ms)));
    jump_days(365);
    clock.advance_ms(120'000);  // retention looks once a minute
    ASSERT_TRUE(turn(*store, "live-1"));
    EXPECT_NE(find(*store, "kept").value(), std::nullopt);
    jump_days(-365);
  }
  jump_days(365);
  clock.set({0, clock.now().unix_ms});
  auto store = bed.open(kWeek);
  EXPECT_NE(find(*store, "kept").value(), std::nullopt);
  clock.advance_ms(base::SettledClock::kSettleMs + 60'000);
  for (int i = 0; find(*store, "kept").value(); ++i) ASSERT_TRUE(turn(*store, "live-2-" + std::to_string(i)));
}

// A restart tells of the time as it was last written down, until the wall clock has stood for a while.
TEST_P(StoreRetentionTest, ARestartBehindAJumpOfTheWallClockTellsTheSettledTime) {
  StoreBed bed(GetParam());
  base::ManualClock clock;
  bed.clock = &clock;
  const Admission live = admission("live");
  clock.set({0, live.job.submitted_unix_ms});
  ASSERT_TRUE(admit(*bed.open(), live));
  clock.set({0, live.job.submitted_unix_ms + 10'000});
  EXPECT_EQ(bed.open()->restore().value().settled_unix_ms, clock.now().unix_ms);
  clock.set({0, live.job.submitted_unix_ms + kDayMs});
  EXPECT_EQ(bed.open()->restore().value().settled_unix_ms, live.job.submitted_unix_ms);
}

// What a tenant used today is not forgotten because a clock said for a while that it was tomorrow.
TEST_P(StoreRetentionTest, AJumpOfTheWallClockKeepsWhatATenantUsed) {
  StoreBed bed(GetParam());
  base::ManualClock clock;
  bed.clock = &clock;
  const base::Time noon{0, 20'000 * kDayMs + kDayMs / 2};
  clock.set(noon);
  {
    auto store = bed.open();
    for (const char* id : {"job-1", "job-2"}) {
      Admission in = admission(id);
      in.job.tenant_id = "ada";
      ASSERT_TRUE(admit(*store, in));
      ASSERT_TRUE(apply(*store, finished(id, clock.now().unix_ms)));
    }
    clock.advance_ms(1'000);
  }
  const std::int64_t used = bed.open()->restore().value().tenants.at(0).tokens;
  clock.set({noon.mono_ms + 2'000, noon.unix_ms + kDayMs});
  bed.open({.ms = StoreBed::kKeepAll, .count_max = 0});
  clock.set({noon.mono_ms + 3'000, noon.unix_ms + 3'000});
  auto store = bed.open();
  EXPECT_FALSE(find(*store, "job-1").value());
  const auto tenants = store->restore().value().tenants;
  ASSERT_EQ(tenants.size(), 1U);
  EXPECT_EQ(tenants[0].tokens, used);
}

std::map<std::string, std::int64_t> kept_by_tenant(Store& store) {
  std::promise<base::Result<std::vector<JobRecord>>> list;
  store.list({.count_max = 10'000}, [&](auto r) { list.set_value(std::move(r)); });
  const std::vector<JobRecord> jobs = list.get_future().get().value();
  std::map<std::string, std::int64_t> counts;
  for (const JobRecord& job : jobs) ++counts[job.tenant_id];
  return counts;
}
std::int64_t kept_count(Store& store) {
  std::int64_t count = 0;
  for (const auto& [tenant_id, kept] : kept_by_tenant(store)) count += kept;
  return count;
}

// Finished jobs are bounded by their count: the oldest go first, live ones never.
TEST_P(StoreRetentionTest, KeepsNoMoreFinishedJobsThanItsLimit) {
  const StoreBed bed(GetParam());
  auto store = bed.open({.ms = StoreBed::kKeepAll, .count_max = 3});
  ASSERT_TRUE(admit(*store, admission("live")));
  for (int i = 0; i < 10; ++i) {
    const std::string id = "job-" + std::to_string(i);
    ASSERT_TRUE(admit(*store, admission(id)));
    ASSERT_TRUE(apply(*store, finished(id, 1'700'000'001'000 + i)));
  }
  while (kept_count(*store) > 4) std::this_thread::yield();
  for (const char* id : {"job-7", "job-8", "job-9", "live"}) EXPECT_TRUE(find(*store, id).value()) << id;
  EXPECT_EQ(live_jobs(*store).at(0).payload, "payload");
}

// Whoever submits and cancels without end takes the place of its own records, of nobody else's.
TEST_P(StoreRetentionTest, ATenantThatEndsManyJobsTakesNobodyElsesRecords) {
  const StoreBed bed(GetParam());
  constexpr std::int64_t kMost = 20;
  auto store = bed.open({.ms = StoreBed::kKeepAll, .count_max = kMost});
  for (int i = 0; i < 5; ++i) {
    const std::string id = "quiet-" + std::to_string(i);
    ASSERT_TRUE(admit(*store, of_tenant("quiet", id)));
    ASSERT_TRUE(apply(*store, finished(id)));
  }
  for (int i = 0; i < 200; ++i) {
    const std::string id = "loud-" + std::to_string(i);
    ASSERT_TRUE(admit(*store, of_tenant("loud", id)));
    Transition end = cancelled(id);
    end.progress.finished_unix_ms = 1'700'000'002'000 + i;
    ASSERT_TRUE(apply(*store, end));
  }
  while (kept_count(*store) > kMost) std::this_thread::yield();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(find(*store, "quiet-" + std::to_string(i)).value()) << i;
  EXPECT_TRUE(find(*store, "loud-199").value());
  EXPECT_FALSE(find(*store, "loud-0").value());
}

// Those that hold more than their share come down to it together.
TEST_P(StoreRetentionTest, TenantsShareWhatIsKept) {
  const StoreBed bed(GetParam());
  constexpr std::int64_t kMost = 30;
  {
    auto store = bed.open();
    for (const auto& [tenant_id, count] : {std::pair("ada", 40), std::pair("bob", 5), std::pair("eve", 30)}) {
      for (int i = 0; i < count; ++i) {
        const std::string id = tenant_id + std::to_string(i);
        ASSERT_TRUE(admit(*store, of_tenant(tenant_id, id)));
        ASSERT_TRUE(apply(*store, finished(id)));
      }
    }
  }
  auto store = bed.open({.ms = StoreBed::kKeepAll, .count_max = kMost});
  while (kept_count(*store) > kMost) std::this_thread::yield();
  auto kept = kept_by_tenant(*store);
  EXPECT_EQ(kept["bob"], 5);
  EXPECT_NEAR(static_cast<double>(kept["ada"]), static_cast<double>(kept["eve"]), 1);
  EXPECT_GE(kept["ada"], 10);
}

// Takes whatever it is given, and cannot say how much it holds.
class UncountedBackend final : public Backend {
 public:
  explicit UncountedBackend(int& asked) : asked_(asked) {}
  Ended commit(Changes) override { return {}; }
  base::Result<FinishedJobs> finished_jobs() override { return FinishedJobs{.records = {{"", {.count = 1}}}}; }
  base::Result<std::int64_t> record_bytes(std::int64_t, std::int64_t) override {
    ++asked_;
    return base::fail(base::ErrorCode::kStoreUnavailable, "for the test");
  }
  base::Result<bool> give_back_space() override { return false; }
  base::Result<std::optional<JobRecord>> find(const base::JobId&) override { return std::nullopt; }
  base::Result<std::optional<JobRecord>> find_task(const std::string&) override { return std::nullopt; }
  base::Result<std::vector<JobRecord>> newest(const Listing&) override { return std::vector<JobRecord>(); }
  base::Result<std::vector<LiveJob>> live_jobs() override { return std::vector<LiveJob>(); }
  base::Result<std::vector<KnownPool>> pools() override { return std::vector<KnownPool>(); }
  base::Result<std::vector<core::sessions::RestoredSession>> sessions() override {
    return std::vector<core::sessions::RestoredSession>();
  }
  base::Result<std::vector<core::sessions::TenantUse>> tenants(std::int64_t) override {
    return std::vector<core::sessions::TenantUse>();
  }
  base::Result<std::unique_ptr<DatabaseCopy>> copy_into(const std::string&) override {
    return base::fail(base::ErrorCode::kInvalidParams, "for the test");
  }

 private:
  int& asked_;
};

// All rows may be read for that: whoever cannot answer is not asked with every job that ends.
TEST(StoreCounts, WhatCannotBeCountedIsCountedOnceInAPeriod) {
  const TempDir dir;
  base::ManualClock clock;
  int asked = 0;
  const auto core = open_group_core({.backend = std::make_unique<UncountedBackend>(asked),
                                     .keys = files::open_state_file(dir.path() / "keys").value(),
                                     .retention = {.ms = StoreBed::kKeepAll},
                                     .clock = &clock,
                                     .entropy = &g_entropy})
                        .value();
  for (int i = 0; i < 5; ++i) {
    std::vector<Operation> group;
    group.push_back(Move{finished("job-" + std::to_string(i)), [](const base::Result<>& r) { EXPECT_TRUE(r); }});
    core->run(std::move(group));
  }
  EXPECT_EQ(asked, 1);
  clock.advance_ms(60'000);
  core->run({});
  EXPECT_EQ(asked, 2);
}

// A record of 16 kB that no database makes smaller.
Admission large(const std::string& job_id) {
  Admission a = admission(job_id, std::nullopt);
  a.job.params = "{\"x\":\"";
  for (int i = 0; i < 256; ++i) a.job.params += base::to_hex(base::sha256(job_id + std::to_string(i)));
  a.job.params += "\"}";
  return a;
}

// What a record is counted as when it comes is what it is counted as when it goes, however small the database makes it.
TEST_P(StoreRetentionTest, CountsARecordAlikeWhenItComesAndWhenItGoes) {
  if (GetParam() == StoreKind::kSqlite) GTEST_SKIP() << "it counts pages";
  const StoreBed bed(GetParam());
  auto store = bed.open({.ms = StoreBed::kKeepAll, .bytes_max = 500'000});
  for (int i = 0; i < 60; ++i) {
    const std::string id = "job-" + std::to_string(i);
    ASSERT_TRUE(admit(*store, admission(id, std::nullopt)));
    Transition end = cancelled(id);
    end.progress.error->message = std::string(40'000, 'x');
    end.progress.finished_unix_ms = 1'700'000'001'000 + i;
    ASSERT_TRUE(apply(*store, end));
  }
  while (kept_count(*store) > 6) std::this_thread::yield();
  for (const char* id : {"job-57", "job-58", "job-59"}) EXPECT_TRUE(find(*store, id).value()) << id;
}

// Where bytes are what is short, they are shared: few large records do not take the place of many small ones.
TEST_P(StoreRetentionTest, TenantsShareBytesWhereTheseAreShort) {
  const StoreBed bed(GetParam());
  constexpr int kSmall = 300, kLarge = 200;
  {
    auto store = bed.open();
    std::atomic<int> answers{0};
    const auto count = [&](const base::Result<>& r) { answers += r.has_value(); };
    const auto keep = [&](Admission job, const std::string& id) {
      store->admit(std::move(job), count);
      store->transition(finished(id), count);
    };
    for (int i = 0; i < kSmall; ++i)
      keep(of_tenant("small", "small-" + std::to_string(i)), "small-" + std::to_string(i));
    for (int i = 0; i < kLarge; ++i) {
      Admission job = large("large-" + std::to_string(i));
      job.job.tenant_id = "large";
      keep(std::move(job), "large-" + std::to_string(i));
    }
    store->stop();
    ASSERT_EQ(answers, 2 * (kSmall + kLarge));
  }
  auto store = bed.open({.ms = StoreBed::kKeepAll, .bytes_max = 2 << 20});
  while (kept_by_tenant(*store)["large"] > (2 << 20) / 16'384) std::this_thread::yield();
  EXPECT_EQ(kept_by_tenant(*store)["small"], kSmall);
}

// ... and by their bytes, and the space of those that went is given back.
TEST_P(StoreRetentionTest, KeepsNoMoreBytesThanItsLimit) {
  const StoreBed bed(GetParam());
  constexpr int kJobs = 800;
  {
    auto store = bed.open();
    std::atomic<int> answers{0};
    const auto count = [&](const base::Result<>& r) { answers += r.has_value(); };
    store->admit(large("live"), count);
    for (int i = 0; i < kJobs; ++i) {
      const std::string id = "job-" + std::to_string(i);
      store->admit(large(id), count);
      store->transition(finished(id, 1'700'000'001'000 + i), count);
    }
    store->stop();
    ASSERT_EQ(answers, 2 * kJobs + 1);
  }
  const auto file = bed.dir.path() / "orchestrator.db";
  const bool sqlite = GetParam() == StoreKind::kSqlite;
  if (sqlite) {
    ASSERT_GT(std::filesystem::file_size(file), 12u << 20);
  }
  constexpr std::int64_t kBytesMax = 2 << 20, kSpareBytes = 4 << 20;
  const auto limits = RetentionLimits{.ms = StoreBed::kKeepAll, .count_max = kJobs, .bytes_max = kBytesMax};
  {
    auto store = bed.open(limits);
    while (kept_count(*store) > kBytesMax / 16'384) std::this_thread::yield();
    EXPECT_GT(kept_count(*store), 50) << "more than needed went";
    EXPECT_TRUE(find(*store, "live").value());
    EXPECT_TRUE(find(*store, "job-799").value());
    EXPECT_FALSE(find(*store, "job-600").value());
  }
  if (!sqlite) return;
  // The rest of the space goes in the pauses of the store.
  while (std::filesystem::file_size(file) > kBytesMax + kSpareBytes) {
    auto store = bed.open(limits);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(admit(*store, admission(base::uuid_v4(g_entropy), std::nullopt)));
  }
}

// What a job leaves on disk: 583 bytes by dbstat, of which 66 are indexes, and some 20 for the index by tenant.
TEST(StoreSize, ARecordIsSmall) {
  const TempDir dir;
  constexpr std::uintmax_t kJobs = 2000, kBytesPerJobMax = 700, kEmptyBytesMax = 256 << 10;
  {
    auto store = open_in(dir);
    std::atomic<std::uintmax_t> answers{0};
    const auto count = [&](const base::Result<>& r) { answers += r.has_value(); };
    for (std::uintmax_t i = 0; i < kJobs; ++i) {
      const std::string id = base::uuid_v4(g_entropy);
      Admission a = admission(id, std::nullopt);
      a.job.facts.digest = "sha256:" + base::to_hex(base::sha256("model"));
      a.job.correlation_id = base::CorrelationId(base::uuid_v4(g_entropy));
      a.job.prompt_sha256 = base::to_hex(base::sha256("prompt" + id));
      Transition end = finished(id);
      end.progress.worker_id = "w-0b5dbe0e9c7d";
      end.progress.pool_id = "pool-1";
      end.progress.end->receipt = wire::Receipt{.model_digest = a.job.facts.digest,
                                                .engine_build = std::string(40, 'b'),
                                                .numerics = "cpu-1",
                                                .device_class = "cpu-x86",
                                                .sampler = "sampler-1",
                                                .kv_dtype = "f16",
                                                .seed = a.job.seed,
                                                .prompt_sha256 = a.job.prompt_sha256,
                                                .output_sha256 = base::to_hex(base::sha256("output" + id)),
                                                .tokens_out = 5,
                                                .parameters_sha256 = base::to_hex(base::sha256("parameters"))};
      store->admit(std::move(a), count);
      store->transition(std::move(end), count);
    }
    store->stop();
    ASSERT_EQ(answers, 2 * kJobs);
  }
  EXPECT_LT(std::filesystem::file_size(dir.path() / "orchestrator.db"), kJobs * kBytesPerJobMax + kEmptyBytesMax);
}

// A backlog leaves in slices, one behind each group of commits: an admission waits for one of them, not for all.
TEST_P(StoreRetentionTest, RemovesABacklogBehindAdmissions) {
  const StoreBed bed(GetParam());
  constexpr int kBacklog = 3 * static_cast<int>(kRetentionSliceJobs);
  {
    auto store = bed.open();
    std::atomic<int> answers{0};
    const auto count = [&](const base::Result<>& r) { answers += r.has_value(); };
    EXPECT_TRUE(admit(*store, young_admission("young")));
    for (int i = 0; i < kBacklog; ++i) {
      store->admit(admission("old-" + std::to_string(i), std::nullopt), count);
      store->transition(finished("old-" + std::to_string(i)), count);
    }
    store->stop();
    ASSERT_EQ(answers, 2 * kBacklog);
  }
  auto store = bed.open({.ms = 1000});
  const auto backlog = [&] {
    std::promise<base::Result<std::vector<JobRecord>>> list;
    store->list({.count_max = 2 * kBacklog}, [&](auto r) { list.set_value(std::move(r)); });
    return list.get_future().get().value().size();
  };
  ASSERT_TRUE(admit(*store, admission("new")));
  while (backlog() > 2) std::this_thread::yield();
  EXPECT_EQ(live_jobs(*store).size(), 2u);
}

TEST(StoreCore, ABacklogLeavesInSlices) {
  const TempDir dir;
  SqliteStoreOptions options = options_in(dir);
  constexpr std::size_t kSlice = kRetentionSliceJobs, kBacklog = 3 * kSlice, kStep = 10;
  {
    const auto core = open_sqlite_core(options).value();
    std::vector<Operation> group;
    group.push_back(Admit{young_admission("young"), [](auto r) { EXPECT_TRUE(r); }});
    for (std::size_t i = 0; i < kBacklog; ++i) {
      group.push_back(Admit{admission("old-" + std::to_string(i), std::nullopt), [](auto r) { EXPECT_TRUE(r); }});
      group.push_back(Move{finished("old-" + std::to_string(i)), [](auto r) { EXPECT_TRUE(r); }});
    }
    core->run(std::move(group));
    core->close();
  }
  options.retention.ms = 1000;
  const auto core = open_sqlite_core(options).value();
  std::size_t before = kBacklog;
  for (int groups = 1; before > 1; ++groups) {
    ASSERT_LE(groups, 5);
    bool admitted = groups != 1;
    std::vector<Operation> group;
    if (!admitted) group.push_back(Admit{admission("new"), [&](auto r) { admitted = r.has_value(); }});
    // One of ten is asked for: a group finds no more jobs than these.
    std::size_t left = 1;
    const auto count = [&](const auto& found) { left += found.value().has_value() ? kStep : 0; };
    for (std::size_t i = 0; i < kBacklog; i += kStep)
      group.push_back(Find{base::JobId("old-" + std::to_string(i)), count});
    core->run(std::move(group));
    EXPECT_TRUE(admitted);
    EXPECT_GE(left + kSlice + kRemovedPerCommitJobs + kStep, before) << "more than a slice at once";
    EXPECT_GT(left, groups == 1 ? kSlice : 0u) << "the first group waited for all of them";
    before = left;
  }
}

// The clock moves on between two looks at it.
bool is_due(const StoreCore& core) {
  const std::int64_t due_ms = core.due_mono_ms();
  return due_ms <= kClock.now().mono_ms;
}

// A store at its limit writes little more than one that keeps all, and never a commit of its own for each job.
TEST(StoreCore, ASteadyLoadRemovesWithItsCommits) {
  constexpr int kJobs = 800;
  const auto log_bytes = [](std::int64_t count_max) {
    const TempDir dir;
    SqliteStoreOptions options = options_in(dir);
    options.retention.count_max = count_max;
    options.checkpoint_pages = 1'000'000;  // the log keeps all that was written
    const auto core = open_sqlite_core(std::move(options)).value();
    for (int i = 0; i < kJobs; ++i) {
      std::vector<Operation> group;
      group.push_back(Admit{admission("job-" + std::to_string(i)), [](auto r) { EXPECT_TRUE(r); }});
      group.push_back(Move{finished("job-" + std::to_string(i)), [](auto r) { EXPECT_TRUE(r); }});
      core->run(std::move(group));
    }
    return std::filesystem::file_size(dir.path() / "orchestrator.db-wal");
  };
  EXPECT_LT(log_bytes(256), log_bytes(kJobs) * 3 / 2);
}

// A long list holds nobody up: what comes while it is read is answered before it is whole.
TEST(StoreCore, ACommitGoesBetweenTheSlicesOfAList) {
  const TempDir dir;
  const auto core = open_sqlite_core(options_in(dir)).value();
  constexpr std::int64_t kJobs = 3 * kListSliceJobs;
  std::vector<Operation> group;
  for (std::int64_t i = 0; i < kJobs; ++i) {
    group.push_back(Admit{admission("job-" + std::to_string(i)), [](auto r) { EXPECT_TRUE(r); }});
  }
  core->run(std::move(group));
  std::optional<std::vector<JobRecord>> listed;
  group.clear();
  group.push_back(List{{.count_max = 1000}, [&](auto r) { listed = std::move(r).value(); }});
  core->run(std::move(group));
  EXPECT_FALSE(listed);
  bool admitted = false;
  group.clear();
  group.push_back(Admit{admission("new"), [&](auto r) { admitted = r.has_value(); }});
  core->run(std::move(group));
  EXPECT_TRUE(admitted);
  EXPECT_FALSE(listed) << "the commit waited for the list";
  for (int i = 0; i < 5 && !listed; ++i) {
    EXPECT_TRUE(is_due(*core));
    core->run({});
  }
  ASSERT_TRUE(listed);
  ASSERT_EQ(listed->size(), static_cast<std::size_t>(kJobs));
  for (std::int64_t i = 0; i < kJobs; ++i) {
    EXPECT_EQ((*listed)[static_cast<std::size_t>(i)].job_id.value, "job-" + std::to_string(kJobs - 1 - i));
  }
}

// However many jobs are looked up, a commit waits for a slice of them.
TEST(StoreCore, ACommitGoesBetweenTheSlicesOfManyFinds) {
  const TempDir dir;
  const auto core = open_sqlite_core(options_in(dir)).value();
  std::vector<Operation> group;
  group.push_back(Admit{admission("job-0"), [](auto r) { EXPECT_TRUE(r); }});
  core->run(std::move(group));
  constexpr std::size_t kFinds = 3 * kFindsPerGroup;
  std::size_t found = 0, tasks = 0;
  group.clear();
  for (std::size_t i = 0; i < kFinds; ++i) {
    group.push_back(Find{base::JobId("job-0"), [&](auto r) { found += r && r->has_value() ? 1 : 0; }});
  }
  core->run(std::move(group));
  EXPECT_EQ(found, kFindsPerGroup);
  bool admitted = false;
  group.clear();
  group.push_back(Admit{admission("new"), [&](auto r) { admitted = r.has_value(); }});
  group.push_back(FindTask{"nobody's", [&](auto r) { tasks += r ? 1 : 0; }});
  core->run(std::move(group));
  EXPECT_TRUE(admitted);
  EXPECT_EQ(tasks, 1u) << "who submits waits for no reader";
  EXPECT_EQ(found, 2 * kFindsPerGroup);
  EXPECT_TRUE(is_due(*core));
  group.clear();
  core->run(std::move(group));
  EXPECT_EQ(found, kFinds);
  group.clear();
  for (std::size_t i = 0; i < kFinds; ++i) {
    group.push_back(Find{base::JobId("job-0"), [&](auto r) { found += r && r->has_value() ? 1 : 0; }});
  }
  core->run(std::move(group));
  core->close();
  EXPECT_EQ(found, 2 * kFinds) << "an end answers all of them";
}

// The pages of a list are one list, whatever comes meanwhile.
TEST_P(StoreRetentionTest, AListGoesOnBeforeAJob) {
  const StoreBed bed(GetParam());
  auto store = bed.open();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(admit(*store, admission("job-" + std::to_string(i))));
  const auto page = [&](std::optional<std::int64_t> before) {
    std::promise<base::Result<std::vector<JobRecord>>> list;
    store->list({.count_max = 2, .before = before}, [&](auto r) { list.set_value(std::move(r)); });
    return list.get_future().get().value();
  };
  std::string ids;
  std::optional<std::int64_t> before;
  for (auto jobs = page(before); !jobs.empty(); jobs = page(before)) {
    for (const JobRecord& job : jobs) ids += job.job_id.value + " ";
    before = jobs.back().arrival;
    ASSERT_TRUE(admit(*store, admission("new-" + std::to_string(*before))));
  }
  EXPECT_EQ(ids, "job-4 job-3 job-2 job-1 job-0 ");
}

}  // namespace
}  // namespace llorch::orchestratord::store
