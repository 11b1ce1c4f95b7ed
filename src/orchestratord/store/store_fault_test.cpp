// The store on a disk that fills up, refuses to write, sync or read, and dies: never a false answer, and it recovers. The
// core is stepped directly.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/log.h"
#include "base/testing/full_disk.h"
#include "orchestratord/store/testing/faulty_disk.h"
#include "orchestratord/store/testing/store_test_support.h"

namespace llorch::orchestratord::store {
namespace {

using base::ErrorCode;
using testing::Crash;
using testing::Fault;
using testing::FaultyDisk;

// What was said to one call so far.
template <class T>
using Said = std::shared_ptr<std::optional<base::Result<T>>>;

class StoreFaultTest : public ::testing::Test {
 protected:
  StoreFaultTest() {
    base::capture_log_lines([](std::string_view) {});
  }
  ~StoreFaultTest() override {
    core_.reset();
    base::capture_log_lines({});
  }

  base::Result<> open() {
    SqliteStoreOptions options;
    options.directory = "state";
    options.clock = &clock_;
    options.entropy = &entropy_;
    options.retention.ms = 100LL * 365 * 24 * 3600 * 1000;
    options.sqlite_vfs = disk_.sqlite_vfs();
    options.open_file = disk_.door();
    core_ = TRY(open_sqlite_core(std::move(options)));
    return {};
  }
  void crash_and_open(Crash crash) {
    disk_.die();
    core_.reset();
    disk_.restart(crash);
    disk_.heal();
    ASSERT_TRUE(open());
  }

  Said<void> admit(const std::string& job_id) {
    const auto said = std::make_shared<std::optional<base::Result<>>>();
    run(Admit{admission(job_id, "payload of " + job_id), [said](base::Result<> r) { *said = std::move(r); }});
    return said;
  }
  Said<void> move(Transition transition) {
    const auto said = std::make_shared<std::optional<base::Result<>>>();
    run(Move{std::move(transition), [said](base::Result<> r) { *said = std::move(r); }});
    return said;
  }
  std::vector<std::string> live() {
    std::vector<std::string> ids;
    run(Restore{[&](base::Result<RestoredState> state) {
      for (const RestoredJob& job : state.value().jobs) {
        EXPECT_EQ(job.payload, "payload of " + job.job.job_id.value);
        ids.push_back(job.job.job_id.value);
      }
    }});
    return ids;
  }
  void run(Operation operation) {
    std::vector<Operation> group;
    group.push_back(std::move(operation));
    core_->run(std::move(group));
  }
  std::string key_file() const { return disk_.content("state/payload.keys"); }
  static bool refused(const Said<void>& said) { return *said && !**said; }
  static bool done(const Said<void>& said) { return *said && **said; }

  FaultyDisk disk_{7};
  base::ManualClock clock_;
  base::SeededEntropy entropy_{7};
  std::unique_ptr<StoreCore> core_;
};

using Ids = std::vector<std::string>;

// A full disk is never a false 202: the store refuses at once with STORE_UNAVAILABLE, and recovers by itself.
TEST_F(StoreFaultTest, AFullDiskRefusesAndRecovers) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(done(admit("before")));
  // Every write of the commit in turn is the one that finds no room.
  for (std::int64_t n = 0;; ++n) {
    disk_.fail({.fault = Fault::kFull, .after = n});
    const auto said = admit("during-" + std::to_string(n));
    const bool failed = disk_.failures() > 0;
    disk_.heal();
    ASSERT_TRUE(said->has_value()) << "a full disk leaves no doubt";
    if (!failed) {
      ASSERT_GT(n, 5);
      break;
    }
    ASSERT_TRUE(refused(said)) << n;
    EXPECT_EQ((**said).error().code, ErrorCode::kStoreUnavailable);
    if (n > 0) {
      crash_and_open(n % 2 == 0 ? Crash::kKill : Crash::kPowerFailure);
      ASSERT_EQ(live(), Ids{"before"}) << n;
    }
  }
  disk_.fail({.fault = Fault::kFull});
  EXPECT_TRUE(refused(move(finished("before"))));
  disk_.heal();
  EXPECT_TRUE(done(move(finished("before"))));
  EXPECT_TRUE(done(admit("after")));
}

// A sync that fails may still have left the commit in the log, where a restart finds it. So nobody is told yes or no until
// the disk has decided; what comes meanwhile was never written and is refused at once.
TEST_F(StoreFaultTest, AnAdmissionInDoubtIsAnsweredWhenTheDiskHasDecided) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(done(admit("before")));
  disk_.fail({.fault = Fault::kSync});
  const auto in_doubt = admit("in-doubt");
  EXPECT_FALSE(in_doubt->has_value());
  EXPECT_TRUE(refused(admit("refused")));
  EXPECT_TRUE(refused(move(finished("before"))));
  EXPECT_EQ(live(), Ids{"before"}) << "nobody may see it meanwhile";
  const std::int64_t due = core_->due_mono_ms();
  EXPECT_LE(due, clock_.now().mono_ms + 1'000) << "it is tried again without help";
  disk_.heal();
  clock_.advance_ms(1'000);
  core_->run({});
  EXPECT_TRUE(done(in_doubt));
  EXPECT_EQ(live(), (Ids{"before", "in-doubt"}));
  crash_and_open(Crash::kPowerFailure);
  EXPECT_EQ(live(), (Ids{"before", "in-doubt"}));
}

// The same, and the process is killed before the disk decides: the job may live, and its client has not been refused.
TEST_F(StoreFaultTest, ARestartFindsWhatTheFailedSyncLeft) {
  ASSERT_TRUE(open());
  disk_.fail({.fault = Fault::kSync, .after = 1});  // the first one is the keys'
  const auto in_doubt = admit("in-doubt");
  const auto refusal = admit("refused");
  EXPECT_FALSE(in_doubt->has_value());
  EXPECT_TRUE(refused(refusal));
  crash_and_open(Crash::kKill);
  EXPECT_EQ(live(), Ids{"in-doubt"}) << "the log held it: refusing it would have been a lie";
  EXPECT_TRUE(done(admit("next")));
  crash_and_open(Crash::kPowerFailure);
  EXPECT_EQ(live(), (Ids{"in-doubt", "next"}))
      << "what the failed sync left behind was not durable when it was built on";
}

// What is put back after a change in doubt is in the database as this connection sees it, so SQLite would write nothing and
// the change would be found by the next process (simulator, seed 6000014069).
TEST_F(StoreFaultTest, PuttingBackWhatAChangeInDoubtChangedIsWritten) {
  ASSERT_TRUE(open());
  const auto drain = [&](bool draining, const std::string& endpoint) {
    const auto said = std::make_shared<std::optional<base::Result<>>>();
    run(SetDesiredState{{.pool_id = base::PoolId("pool"), .endpoint = endpoint, .desired = {.draining = draining}},
                        [said](base::Result<> r) { *said = std::move(r); }});
    return said;
  };
  EXPECT_TRUE(done(drain(true, "http://pool")));
  disk_.fail({.fault = Fault::kSync});
  EXPECT_TRUE(refused(drain(false, "")));
  EXPECT_TRUE(refused(drain(true, ""))) << "the disk has not taken it";
  disk_.heal();
  EXPECT_TRUE(done(drain(true, "")));
  crash_and_open(Crash::kKill);
  std::optional<base::Result<RestoredState>> found;
  run(Restore{[&](base::Result<RestoredState> state) { found = std::move(state); }});
  ASSERT_TRUE(found && *found);
  EXPECT_TRUE((**found).desired_states.at(base::PoolId("pool")).draining);
}

// While a backup steps every few milliseconds, what is in doubt is still tried at its own pace, and at once when somebody
// wants to write.
TEST_F(StoreFaultTest, ABackupDoesNotHurryWhatIsInDoubt) {
  ASSERT_TRUE(open());
  for (int i = 0; i < 40; ++i) {
    run(Admit{admission("old-" + std::to_string(i), std::string(40'000, 'x')), [](const base::Result<>&) {}});
  }
  disk_.fail({.fault = Fault::kSync});
  const auto in_doubt = admit("in-doubt");
  ASSERT_FALSE(in_doubt->has_value());
  const TempDir directory;
  const std::string copy = (directory.path() / "copy").string();
  std::ofstream{copy};
  int steps = 0;
  bool made = false;
  run(BackupOrder{.database_file = copy,
                  .progress = [&](BackupProgress) { return ++steps > 0; },
                  .done = [&](const base::Result<std::string>& keys) { made = keys.has_value(); }});
  const std::int64_t begun_ms = clock_.now().mono_ms, failures = disk_.failures();
  while (!made) {
    clock_.advance_ms(std::max<std::int64_t>(0, core_->due_mono_ms() - clock_.now().mono_ms));
    core_->run({});
  }
  EXPECT_GT(steps, 10);
  EXPECT_LE(disk_.failures() - failures, (clock_.now().mono_ms - begun_ms) / 200 + 1);
  EXPECT_FALSE(in_doubt->has_value());
  disk_.heal();
  EXPECT_TRUE(done(admit("next"))) << "it does not wait for the next attempt";
  EXPECT_TRUE(done(in_doubt));
}

// The disk of the copy has no room: the backup ends with that and lets go of everything, and the next one goes through.
TEST_F(StoreFaultTest, ABackupOntoAFullDiskLeavesTheStoreAsItWas) {
  ASSERT_TRUE(open());
  for (int i = 0; i < 20; ++i) {
    run(Admit{admission("old-" + std::to_string(i), std::string(40'000, 'x')), [](const base::Result<>&) {}});
  }
  const TempDir directory;
  const std::string copy = (directory.path() / "copy").string();
  const auto back_up = [&] {
    std::ofstream{copy};
    std::optional<base::Result<std::string>> made;
    run(BackupOrder{.database_file = copy,
                    .progress = [](BackupProgress) { return true; },
                    .done = [&](base::Result<std::string> keys) { made = std::move(keys); }});
    while (!made) {
      EXPECT_TRUE(done(admit("during-" + std::to_string(clock_.now().mono_ms))));
      clock_.advance_ms(2);
      core_->run({});
    }
    return std::move(*made);
  };
  {
    // The store itself is in memory here; only the copy is a file.
    const base::testing::FileSizeLimit no_room(200'000);
    const auto full = back_up();
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().code, ErrorCode::kStoreUnavailable);
    EXPECT_NE(full.error().message.find("on a disk with room"), std::string::npos) << full.error().message;
  }
  EXPECT_FALSE(base::testing::is_open_here(copy));
  const auto next = back_up();
  EXPECT_TRUE(next) << next.error().message;
  EXPECT_FALSE(base::testing::is_open_here(copy));
}

TEST_F(StoreFaultTest, ClosingAnswersWhatIsInDoubt) {
  ASSERT_TRUE(open());
  disk_.fail({.fault = Fault::kSync, .after = 1});  // the first one is the keys'
  const auto in_doubt = admit("in-doubt");
  core_->close();
  ASSERT_TRUE(refused(in_doubt));
  EXPECT_EQ((**in_doubt).error().code, ErrorCode::kShuttingDown);
}

TEST_F(StoreFaultTest, ATerminalTransitionIsRepeatedUntilItIsDurable) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(done(admit("job-1")));
  const std::string key = key_file().substr(0, payload::kKeyBytes);
  const auto there = [&] { return key_file().find(key) != std::string::npos; };
  disk_.fail({.fault = Fault::kSync});
  EXPECT_TRUE(refused(move(finished("job-1"))));
  EXPECT_TRUE(there()) << "its end is not durable yet";
  disk_.heal();
  EXPECT_TRUE(done(move(finished("job-1"))));
  EXPECT_EQ((**move(finished("job-1"))).error().code, ErrorCode::kConflict) << "settled now";
  EXPECT_FALSE(there()) << "the key outlived its job";
  clock_.advance_ms(1'000);
  core_->run({});  // the overwriting is synced
  crash_and_open(Crash::kPowerFailure);
  EXPECT_FALSE(there());
  EXPECT_EQ(live(), Ids{});
}

TEST_F(StoreFaultTest, AKeyThatCannotBeWrittenIsARefusal) {
  ASSERT_TRUE(open());
  disk_.fail({.fault = Fault::kIo, .times = 1});  // keys come first
  EXPECT_TRUE(refused(admit("job-1")));
  EXPECT_TRUE(done(admit("job-2")));
  EXPECT_EQ(live(), Ids{"job-2"});
  core_.reset();
  disk_.fail({.fault = Fault::kIo, .after = 0});
  EXPECT_EQ(open().error().code, ErrorCode::kStoreUnavailable) << "orphan slots not overwritten";
}

// A stopped daemon leaves the keys of live jobs, and zeros.
TEST_F(StoreFaultTest, ClosingLeavesNoKeyThatNoJobHas) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(done(admit("job-1")));
  ASSERT_TRUE(done(admit("job-2")));
  ASSERT_TRUE(done(move(finished("job-1"))));
  const std::string key = key_file().substr(payload::kKeyBytes, payload::kKeyBytes);
  core_->close();
  std::string keys = key_file();
  EXPECT_EQ(keys.substr(payload::kKeyBytes, payload::kKeyBytes), key);
  keys.erase(payload::kKeyBytes, payload::kKeyBytes);
  EXPECT_EQ(keys.find_first_not_of('\0'), std::string::npos);
}

// A job's progress has no commit of its own: it shares one a little later, and the job's end takes its place.
TEST_F(StoreFaultTest, ProgressWaitsForCompany) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(done(admit("job-1")));
  ASSERT_TRUE(done(admit("job-2")));
  const auto running = [](const std::string& id) { return moved_to(id, wire::JobStatus::kRunning); };
  Transition first = running("job-1");
  first.progress.worker_id = "worker-1";
  const auto begun = move(first);
  const auto other = move(running("job-2"));
  EXPECT_FALSE(begun->has_value());
  EXPECT_FALSE(other->has_value());
  EXPECT_LE(core_->due_mono_ms(), clock_.now().mono_ms + 10) << "it is written without help";
  Transition end = finished("job-1");
  end.progress.worker_id.reset();
  EXPECT_TRUE(done(move(end)));
  EXPECT_TRUE(done(begun));
  EXPECT_FALSE(other->has_value()) << "its next step may take its place";
  clock_.advance_ms(5);
  EXPECT_TRUE(done(admit("job-3")));
  EXPECT_TRUE(done(other));
  run(Find{base::JobId("job-1"), [](const base::Result<std::optional<JobRecord>>& found) {
             ASSERT_TRUE(found.value());
             EXPECT_EQ((*found)->progress.status, wire::JobStatus::kCompleted);
             EXPECT_EQ((*found)->progress.worker_id, "worker-1") << "only the earlier one said so";
           }});
  const auto alone = move(running("job-2"));
  EXPECT_FALSE(alone->has_value());
  clock_.advance_ms(10);
  core_->run({});
  EXPECT_TRUE(done(alone));
  const auto last = move(running("job-2"));
  core_->close();
  EXPECT_TRUE(done(last));
}

// One life: some jobs, each step's answer kept; then the process dies by the n-th change. For every n, both deaths: what was
// answered is what the next life finds, and no key but those of live jobs is left.
TEST_F(StoreFaultTest, EveryPointOfDeathKeepsTheAnswersTrue) {
  for (const Crash crash : {Crash::kKill, Crash::kPowerFailure}) {
    for (std::int64_t n = 0;; ++n) {
      FaultyDisk disk(static_cast<std::uint64_t>(n));
      SqliteStoreOptions options;
      options.directory = "state";
      options.clock = &clock_;
      options.entropy = &entropy_;
      options.checkpoint_pages = 12;
      options.sqlite_vfs = disk.sqlite_vfs();
      options.open_file = disk.door();
      options.retention.ms = 100LL * 365 * 24 * 3600 * 1000;
      disk.forbid("payload of");
      disk.die_after(n);
      std::vector<Said<void>> admitted, ended;
      if (auto opened = open_sqlite_core(options)) {
        core_ = std::move(*opened);
        for (int i = 0; i < 4; ++i) admitted.push_back(admit("job-" + std::to_string(i)));
        for (int i = 0; i < 2; ++i) ended.push_back(move(finished("job-" + std::to_string(i))));
        core_->close();
        core_.reset();
      }
      const bool died = disk.dead();
      disk.restart(crash);
      core_ = open_sqlite_core(options).value();
      const Ids found = live();
      const auto is_live = [&](std::size_t i) {
        return std::find(found.begin(), found.end(), "job-" + std::to_string(i)) != found.end();
      };
      for (std::size_t i = 0; i < admitted.size(); ++i) {
        const bool over = i < ended.size() && done(ended[i]);
        if (done(admitted[i]) && i >= ended.size()) {
          EXPECT_TRUE(is_live(i)) << n;
        }
        if (over) {
          EXPECT_FALSE(is_live(i)) << n;
        }
        if (refused(admitted[i]) && (**admitted[i]).error().code == ErrorCode::kStoreUnavailable) {
          EXPECT_FALSE(is_live(i)) << n;
        }
      }
      const std::string keys = disk.content("state/payload.keys");
      std::size_t used = 0;
      for (std::size_t at = 0; at < keys.size(); at += payload::kKeyBytes) {
        used += keys.find_first_not_of('\0', at) < at + payload::kKeyBytes;
      }
      EXPECT_EQ(used, found.size()) << n;
      EXPECT_FALSE(disk.forbidden_seen());
      core_.reset();
      if (!died) {
        EXPECT_GT(n, 50);
        break;
      }
    }
  }
}

// The process that makes the store is killed by its n-th change; the next one accepts a job, and the power fails. What the disk
// then keeps of what was not synced is drawn: several draws each. Most of the first changes make the file, later ones its tables.
TEST_F(StoreFaultTest, WhatAKilledMakerLeftTakesNoAcceptedJobWithIt) {
  constexpr std::uint64_t kDraws = 8;
  bool made = false;
  std::uint64_t n = 0;
  for (; !made; n += n < 32 ? 1 : 16) {
    for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
      FaultyDisk disk(n * kDraws + draw);
      SqliteStoreOptions options;
      options.directory = "state";
      options.clock = &clock_;
      options.entropy = &entropy_;
      options.sqlite_vfs = disk.sqlite_vfs();
      options.open_file = disk.door();
      disk.die_after(static_cast<std::int64_t>(n));
      made = open_sqlite_core(options).has_value();
      disk.restart(Crash::kKill);
      core_ = open_sqlite_core(options).value();
      EXPECT_TRUE(done(admit("job-1")));
      disk.die();
      core_.reset();
      disk.restart(Crash::kPowerFailure);
      core_ = open_sqlite_core(options).value();
      EXPECT_EQ(live(), Ids{"job-1"}) << "killed by change " << n;
      core_.reset();
    }
  }
  EXPECT_GT(n, 32u);
}

TEST_F(StoreFaultTest, AFailedCheckpointLosesNothing) {
  ASSERT_TRUE(open());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(done(admit("job-" + std::to_string(i))));
  disk_.fail({.fault = Fault::kIo});
  core_->close();  // moves the log into the database
  crash_and_open(Crash::kPowerFailure);
  EXPECT_EQ(live(), (Ids{"job-0", "job-1", "job-2"}));
}

TEST_F(StoreFaultTest, ADiskThatCannotBeReadIsNoAnswer) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(done(admit("job-1")));
  disk_.die();
  core_.reset();
  disk_.restart(Crash::kKill);
  disk_.fail({.fault = Fault::kRead});
  EXPECT_EQ(open().error().code, ErrorCode::kStoreUnavailable);
  disk_.heal();
  ASSERT_TRUE(open());
  EXPECT_EQ(live(), Ids{"job-1"});
}

}  // namespace
}  // namespace llorch::orchestratord::store
