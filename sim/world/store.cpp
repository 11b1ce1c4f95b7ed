#include "sim/world/store.h"

#include <algorithm>

#include "orchestratord/store/sqlite/sqlite_core.h"
#include "sim/world/world.h"

namespace llorch::sim {

namespace store = orchestratord::store;
using store::testing::Crash;
using store::testing::Fault;

namespace {

// Changes of the disk that one commit, or the opening of the store, makes; a death strikes among them.
constexpr std::int64_t kChangesPerCommit = 40;
// Per mille of the commits that leave an admission in doubt, and of the starts, if there are deaths in commits at all.
constexpr int kCrashInDoubt = 300;
constexpr int kCrashInOpen = 100;

// Bug put in on purpose: what would overwrite a key does nothing.
class KeepsKeys final : public store::files::StateFile {
 public:
  explicit KeepsKeys(store::files::StateFilePtr real) : real_(std::move(real)) {}
  base::Result<std::uint64_t> size() override { return real_->size(); }
  base::Result<> read(std::uint64_t at, std::span<std::uint8_t> out) override { return real_->read(at, out); }
  base::Result<> write(std::uint64_t at, std::span<const std::uint8_t> bytes) override {
    std::vector<std::uint8_t> there(bytes.size());
    const bool held = TRY(real_->size()) >= at + there.size() && real_->read(at, there) &&
                      std::any_of(there.begin(), there.end(), [](std::uint8_t b) { return b != 0; });
    return held ? base::Result<>() : real_->write(at, bytes);
  }
  base::Result<> sync() override { return real_->sync(); }

 private:
  store::files::StateFilePtr real_;
};

// Bug put in on purpose: the log is taken as it is found.
class EmptyFile final : public store::files::StateFile {
 public:
  base::Result<std::uint64_t> size() override { return 0; }
  base::Result<> read(std::uint64_t, std::span<std::uint8_t>) override { return {}; }
  base::Result<> write(std::uint64_t, std::span<const std::uint8_t>) override { return {}; }
  base::Result<> sync() override { return {}; }
};

store::files::OpenFile door_of(World& world) {
  const InjectedBug bug = world.options.bug;
  if (bug != InjectedBug::kKeepKeys && bug != InjectedBug::kTrustTheLog) return world.device.door();
  return
      [bug, door = world.device.door()](const std::filesystem::path& path) -> base::Result<store::files::StateFilePtr> {
        auto file = TRY(door(path));
        if (bug == InjectedBug::kKeepKeys && path.filename() == "payload.keys") {
          return store::files::StateFilePtr(std::make_unique<KeepsKeys>(std::move(file)));
        }
        if (bug == InjectedBug::kTrustTheLog && path.filename() != "payload.keys") {
          return store::files::StateFilePtr(std::make_unique<EmptyFile>());
        }
        return file;
      };
}

}  // namespace

// ---- lives ----------------------------------------------------------------------------------------------------------

Store::Store(World& world) : world_(world), clock_(world.loop, world.orchestrator_process) {}

base::Result<store::RestoredState> Store::restore() {
  store::SqliteStoreOptions options;
  options.directory = kStateDirectory;
  options.clock = &clock_;
  options.retention.ms = world_.options.retention_ms / (world_.options.bug == InjectedBug::kRetireEarly ? 2 : 1);
  options.entropy = &world_.store_entropy;
  options.checkpoint_pages = world_.options.checkpoint_pages;
  options.sqlite_vfs = world_.device.sqlite_vfs();
  options.open_file = door_of(world_);
  world_.store_entropy.forget();
  arm_faults();
  world_.disk_check.time_is(clock_.now().unix_ms);
  if (world_.faults().crash_in_commit > 0 && world_.dice_store.chance(kCrashInOpen)) {
    world_.device.die_after(world_.dice_store.below(kChangesPerCommit / 4));
  }
  auto opened = store::open_sqlite_core(std::move(options));
  if (opened) core_ = std::move(*opened);
  world_.device.die_after(store::testing::FaultyDisk::kForever);
  if (!opened && opened.error().code != base::ErrorCode::kStoreUnavailable) {
    world_.oracle.violate("the store cannot be opened: " + opened.error().message);
  }
  if (world_.device.dead()) {
    world_.oracle.reached("crash while the store opens");
    return base::fail(base::ErrorCode::kStoreUnavailable, "killed");
  }
  base::Result<store::RestoredState> state;
  std::vector<Row> found;
  if (opened) {
    std::vector<Operation> look;
    bool listed = false;
    look.emplace_back(store::Restore{[&](auto result) { state = std::move(result); }});
    look.emplace_back(store::List{{.count_max = 1'000'000, .tenant_id = {}},
                                  [&](const base::Result<std::vector<store::JobRecord>>& records) {
                                    listed = true;
                                    if (!records) return void(state = base::fail(records.error()));
                                    for (const store::JobRecord& r : *records) found.push_back(row_of(world_, r));
                                  }});
    core_->run(std::move(look));
    while (!listed) core_->run({});
  }
  const bool cleaned = world_.device.failures() == 0;
  world_.device.heal();
  if (!opened || !state) {
    world_.oracle.reached("the store could not be opened");
    return opened ? std::move(state) : base::fail(opened.error());
  }
  std::reverse(found.begin(), found.end());
  world_.disk_check.opened({.state = *state, .rows = found, .cleaned = cleaned});
  arm_timer();
  if (world_.power_fails_next) {
    // What it found in the log may not be on the medium, and it builds on it.
    world_.loop.at(world_.loop.now_us() + world_.dice_store.between(50, 2'500) * kMs, [&world = world_] {
      if (!world.healed()) world.crash_orchestrator();
    });
  }
  return state;
}

void Store::crash() {
  auto& dice = world_.dice_store;
  if (core_ && !committing_.empty() && dice.chance(700)) {
    world_.device.die_after(dice.below(kChangesPerCommit));
    run(std::exchange(committing_, {}));
    for (const auto& [write, result] : answers_) {
      if (write->admission && result) world_.oracle.reached("crash between commit and 202");
    }
  } else if (busy_ || !waiting_.empty()) {
    world_.oracle.reached("crash before a commit");
  }
  if (!world_.device.dead()) {
    // What the core had refused is certain, told or not: an admission without a key is in no commit.
    for (const auto& [write, result] : answers_)
      if (write->admission && !result && std::erase(unanswered_, write) > 0) world_.disk_check.refused(*write);
  }
  for (const WritePtr& write : unanswered_) world_.disk_check.left_open(*write);
  drop();
  const bool power = std::exchange(world_.power_fails_next, false) || dice.chance(world_.options.power_failures);
  if (power) world_.oracle.reached("power failure");
  world_.device.restart(power ? Crash::kPowerFailure : Crash::kKill);
}

void Store::drop() {
  world_.device.die();
  core_.reset();
}

// ---- groups ---------------------------------------------------------------------------------------------------------

store::Operation Store::watched(const WritePtr& write, Operation operation) {
  const auto done = [this, write](base::Result<> result) { answers_.emplace_back(write, std::move(result)); };
  if (auto* admit = std::get_if<store::Admit>(&operation)) admit->done = done;
  if (auto* move = std::get_if<store::Move>(&operation)) move->done = done;
  if (auto* desired = std::get_if<store::SetDesiredState>(&operation)) desired->done = done;
  if (auto* pool = std::get_if<store::ForgetPool>(&operation)) pool->done = done;
  if (auto* session = std::get_if<store::RememberSession>(&operation)) session->done = done;
  return operation;
}

void Store::admit(store::Admission admission, Done done) {
  Write write{.done = std::move(done), .job = admission.job.job_id.value, .session = admission.session};
  write.admission = row_of(world_, admission.job);
  world_.disk_check.payload_given(write.job, admission.payload);
  post(std::move(write), store::Admit{std::move(admission), {}});
}

void Store::transition(store::Transition transition, Done done) {
  Write write{.done = std::move(done), .job = transition.job_id.value, .change = transition.progress};
  if (world_.options.bug == InjectedBug::kFinishTwice && wire::is_terminal(transition.progress.status)) {
    transition.progress = {.status = wire::JobStatus::kRunning, .attempts = transition.progress.attempts};
  }
  post(std::move(write), store::Move{std::move(transition), {}});
}

void Store::checkpoint(std::vector<store::Checkpoint> checkpoints) {
  note(store::SaveCheckpoints{std::move(checkpoints)});
}

void Store::remember_session(orchestratord::core::sessions::SessionRecord session, Done done) {
  Write write{.done = std::move(done), .session = session};
  post(std::move(write), store::RememberSession{std::move(session), {}});
}

void Store::forget_session(std::int64_t key) {
  world_.disk_check.session_forgotten(key);
  note(store::ForgetSession{key});
}

void Store::remember_pool(store::KnownPool pool) { note(store::RememberPool{std::move(pool)}); }

void Store::set_desired_state(store::KnownPool pool, Done done) {
  Write write{.done = std::move(done), .pool = pool};
  post(std::move(write), store::SetDesiredState{std::move(pool), {}});
}

void Store::forget_pool(base::PoolId pool_id, Done done) {
  Write write{.done = std::move(done), .pool_gone = pool_id};
  post(std::move(write), store::ForgetPool{std::move(pool_id), {}});
}

// What is found is told with the answers, after the writes that it saw.
Store::Found Store::watched(std::string job, Found done) {
  return [this, job = std::move(job), done = std::move(done)](base::Result<std::optional<store::JobRecord>> found) {
    findings_.push_back([this, job, done, found = std::move(found)] {
      if (found) {
        world_.disk_check.looked_up(job, *found ? std::optional(row_of(world_, **found)) : std::nullopt);
      }
      done(found);
    });
  };
}

void Store::find(base::JobId job_id, Found done) {
  Found told = watched(job_id.value, std::move(done));
  note(store::Find{std::move(job_id), std::move(told)});
}

void Store::find_task(std::string id, Found done) {
  Found told = watched(id, std::move(done));
  note(store::FindTask{std::move(id), std::move(told)});
}

void Store::list(store::Listing listing, Listed done) {
  note(store::List{std::move(listing),
                   [this, done = std::move(done)](base::Result<std::vector<store::JobRecord>> found) {
                     findings_.push_back([done, found = std::move(found)] { done(found); });
                   }});
}

void Store::backup(store::BackupOrder order) {
  order.done(base::fail(base::ErrorCode::kStoreUnavailable, "backups are not simulated"));
}

void Store::note(Operation operation) {
  waiting_.push_back(std::move(operation));
  if (!busy_) begin();
}

void Store::post(Write write, Operation operation) {
  const auto shared = std::make_shared<Write>(std::move(write));
  waiting_writes_.push_back(shared);
  note(watched(shared, std::move(operation)));
}

void Store::begin() {
  busy_ = true;
  const std::int64_t sync_us = world_.dice_store.chance(30) ? world_.dice_store.between(10 * kMs, 800 * kMs)
                                                            : world_.dice_store.between(50, 3 * kMs);
  // What comes while the disk is busy shares the next commit; what came in this moment shares this one.
  world_.loop.post(world_.orchestrator_process, 0, [this, sync_us] {
    committing_.swap(waiting_);
    const std::int64_t group = ++world_.store_groups;
    for (const WritePtr& write : waiting_writes_) write->group = group;
    committing_writes_.swap(waiting_writes_);
    world_.loop.post(world_.orchestrator_process, sync_us, [this] { end(); });
  });
}

void Store::end() {
  arm_faults();
  run(std::exchange(committing_, {}));
  busy_ = false;
  const bool admits = std::any_of(answers_.begin(), answers_.end(),
                                  [](const auto& answer) { return answer.first->admission && answer.second; });
  if (world_.device.dead() || world_.dice_store.chance(world_.faults().crash_in_commit)) {
    if (admits) world_.oracle.reached("crash between commit and 202");
    return world_.crash_orchestrator();
  }
  world_.device.die_after(store::testing::FaultyDisk::kForever);
  if (!waiting_.empty()) begin();
  deliver();
  arm_timer();
  const bool in_doubt =
      std::any_of(unanswered_.begin(), unanswered_.end(), [](const WritePtr& write) { return write->admission; });
  if (in_doubt && !world_.healed() && world_.dice_store.chance(kCrashInDoubt)) {
    world_.crash_orchestrator();
    world_.power_fails_next = world_.options.power_failures > 0;
  }
}

// Steps the core; its answers wait in `answers_`.
void Store::run(std::vector<Operation> group) {
  std::vector<std::string> admitted;
  for (const Operation& operation : group) {
    if (const auto* admit = std::get_if<store::Admit>(&operation))
      admitted.push_back(admit->admission.job.job_id.value);
  }
  for (WritePtr& write : std::exchange(committing_writes_, {})) unanswered_.push_back(std::move(write));
  core_->run(std::move(group));
  const std::vector<std::string> keys = world_.store_entropy.take_keys();
  for (std::size_t i = 0; i < keys.size(); ++i) world_.disk_check.key_made(admitted.at(i), keys[i]);
  if (world_.device.failures() > 0 || world_.disk_refuses()) world_.disk_check.trouble();
  world_.device.heal();
}

void Store::arm_faults() {
  auto& dice = world_.dice_store;
  if (world_.disk_refuses()) {
    world_.device.fail({.fault = world_.disk_fault});
  } else if (dice.chance(world_.faults().commit_fails)) {
    world_.device.fail(
        {.fault = static_cast<Fault>(dice.between(1, 5)), .after = dice.below(12), .times = dice.between(1, 4)});
  }
  if (dice.chance(world_.faults().crash_in_commit)) world_.device.die_after(dice.below(kChangesPerCommit));
}

void Store::arm_timer() {
  const std::int64_t due_ms = core_->due_mono_ms();
  if (due_ms == timer_due_ms_ || due_ms == store::StoreCore::kNever) return;
  timer_due_ms_ = due_ms;
  const std::int64_t delay_us = std::max<std::int64_t>(0, due_ms - world_.loop.now_ms()) * kMs;
  world_.loop.post(world_.orchestrator_process, delay_us, [this, due_ms] {
    if (due_ms != timer_due_ms_) return;
    timer_due_ms_ = store::StoreCore::kNever;
    if (!busy_) end();
  });
}

void Store::deliver() {
  bug();
  bool refuses = false;
  for (const auto& [write, result] : std::exchange(answers_, {})) {
    if (std::erase(unanswered_, write) == 0) continue;
    if (result) {
      world_.disk_check.committed(*write);
    } else if (result.error().code == base::ErrorCode::kStoreUnavailable) {
      refuses = true;
      if (write->admission) world_.oracle.reached("disk refused an admission");
      world_.disk_check.refused(*write);
    } else if (write->admission || world_.disk.rows.contains(write->job)) {  // else its admission was refused before it
      world_.oracle.violate("the store answers " + std::string(result.error().name()) + " for " + write->job);
    }
    write->done(result);
  }
  for (const auto& finding : std::exchange(findings_, {})) finding();
  world_.disk_check.time_is(clock_.now().unix_ms);
  world_.trace(refuses ? "store refuses" : "store answers", "", static_cast<std::int64_t>(unanswered_.size()));
  if (!unanswered_.empty()) world_.oracle.reached("admission in doubt");
}

// Bugs put in on purpose, between the core and who asked.
void Store::bug() {
  const auto refused = [](const auto& answer) { return !answer.second; };
  if (world_.options.bug == InjectedBug::kDropFromFailedGroup &&
      std::any_of(answers_.begin(), answers_.end(), refused)) {
    std::erase(unanswered_, answers_.back().first);
  }
  if (world_.options.bug == InjectedBug::kRefuseInDoubt) {
    for (const WritePtr& write : unanswered_) {
      const auto same = [&](const auto& answer) { return answer.first == write; };
      if (std::none_of(answers_.begin(), answers_.end(), same)) {
        answers_.emplace_back(write, base::fail(base::ErrorCode::kStoreUnavailable, "in doubt"));
      }
    }
  }
}

}  // namespace llorch::sim
