#include "orchestratord/store/store_thread.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <type_traits>

namespace llorch::orchestratord::store {
namespace {

// A core with nothing due is looked at again after this.
constexpr std::int64_t kIdleMs = 60'000;
// A progress that comes while the core is due this soon wakes nobody: it goes with what is due, or with a write before that.
constexpr std::int64_t kProgressWaitMs = 10;
// While several callers wait for each commit, commits begin this far apart: a commit costs the same CPU for one caller and
// for many, and so do the threads that it wakes. A caller that is alone waits for nobody.
constexpr std::chrono::microseconds kCommitSpacing{1500};

bool is_progress(const Operation& operation) {
  const auto* move = std::get_if<Move>(&operation);
  return move != nullptr && !wire::is_terminal(move->transition.progress.status);
}

void refuse(const Operation& operation, const base::Error& error) {
  std::visit(
      [&](const auto& op) {
        if constexpr (requires { op.done; }) op.done(base::fail(error));
      },
      operation);
}

class ThreadedStore final : public Store {
 public:
  ThreadedStore(std::unique_ptr<StoreCore> core, const base::Clock& clock)
      : core_(std::move(core)), clock_(clock), thread_([this] { run(); }) {}
  ~ThreadedStore() override { stop(); }

  void admit(Admission admission, Done done) override { post(Admit{std::move(admission), std::move(done)}); }
  void transition(Transition transition, Done done) override { post(Move{std::move(transition), std::move(done)}); }
  void checkpoint(std::vector<Checkpoint> checkpoints) override;
  void remember_session(core::sessions::SessionRecord session, Done done) override {
    post(RememberSession{std::move(session), std::move(done)});
  }
  void forget_session(std::int64_t session_key) override { post(ForgetSession{session_key}); }
  void remember_pool(KnownPool pool) override { post(RememberPool{std::move(pool)}); }
  void set_desired_state(KnownPool pool, Done done) override {
    post(SetDesiredState{std::move(pool), std::move(done)});
  }
  void forget_pool(base::PoolId pool_id, Done done) override { post(ForgetPool{std::move(pool_id), std::move(done)}); }
  void find(base::JobId job_id, Found done) override { post(Find{std::move(job_id), std::move(done)}); }
  void find_task(std::string id, Found done) override { post(FindTask{std::move(id), std::move(done)}); }
  void list(Listing listing, Listed done) override { post(List{std::move(listing), std::move(done)}); }
  void backup(BackupOrder order) override { post(std::move(order)); }
  base::Result<RestoredState> restore() override;
  void stop() override;

 private:
  void post(Operation operation);
  // Whether the thread has to be woken for an operation that was put into the mailbox. REQUIRES: the lock.
  bool calls_for(bool progress);
  void run();
  // What waits; empty when the core is due or the store stops. Sets `last` when nothing will come any more.
  std::vector<Operation> wait(bool& last);
  void wait_for_company(std::unique_lock<std::mutex>& lock);
  void wait_for_work(std::unique_lock<std::mutex>& lock);

  const std::unique_ptr<StoreCore> core_;
  const base::Clock& clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Operation> mailbox_;  // guarded by mutex_
  bool checkpoints_wait_ = false;   // guarded by mutex_: in the mailbox
  bool stopping_ = false;           // guarded by mutex_
  bool asleep_ = false;             // guarded by mutex_: until somebody calls or wakes_mono_ms_ comes
  std::int64_t wakes_mono_ms_ = 0;  // guarded by mutex_
  // Of the thread alone: the last group, and how many waited for it.
  std::chrono::steady_clock::time_point group_begin_;
  std::int64_t group_callers_ = 0;
  std::thread thread_;  // last: it uses the others
};

void ThreadedStore::post(Operation operation) {
  const bool progress = is_progress(operation);
  bool taken = false;
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      mailbox_.push_back(std::move(operation));
      if (!calls_for(progress)) return;
      taken = true;
    }
  }
  if (taken) return wake_.notify_one();
  refuse(operation,
         {base::ErrorCode::kShuttingDown, "the job store is stopping; try again when the daemon is back", {}});
}

bool ThreadedStore::calls_for(bool progress) {
  if (!asleep_) return false;  // it looks into the mailbox before it sleeps
  if (progress && wakes_mono_ms_ <= clock_.now().mono_ms + kProgressWaitMs) return false;
  asleep_ = false;
  return true;
}

// They come by the clock, so that while the disk stalls nothing else bounds them; what is missed comes again with the next.
void ThreadedStore::checkpoint(std::vector<Checkpoint> checkpoints) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || checkpoints_wait_) return;
    checkpoints_wait_ = true;
    mailbox_.emplace_back(SaveCheckpoints{std::move(checkpoints)});
    if (!calls_for(false)) return;
  }
  wake_.notify_one();
}

base::Result<RestoredState> ThreadedStore::restore() {
  std::promise<base::Result<RestoredState>> promise;
  post(Restore{[&promise](base::Result<RestoredState> state) { promise.set_value(std::move(state)); }});
  return promise.get_future().get();
}

void ThreadedStore::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void ThreadedStore::run() {
  for (bool last = false; !last;) core_->run(wait(last));
  core_->close();
}

std::vector<Operation> ThreadedStore::wait(bool& last) {
  std::unique_lock lock(mutex_);
  if (group_callers_ > 1) wait_for_company(lock);
  if (mailbox_.empty() && !stopping_) wait_for_work(lock);
  last = stopping_;
  checkpoints_wait_ = false;
  group_begin_ = std::chrono::steady_clock::now();
  group_callers_ = std::ranges::count_if(mailbox_, [](const Operation& operation) { return !is_progress(operation); });
  return std::exchange(mailbox_, {});
}

void ThreadedStore::wait_for_company(std::unique_lock<std::mutex>& lock) {
  wake_.wait_until(lock, group_begin_ + kCommitSpacing, [this] { return stopping_; });
}

void ThreadedStore::wait_for_work(std::unique_lock<std::mutex>& lock) {
  const std::int64_t now = clock_.now().mono_ms, due_ms = core_->due_mono_ms();
  const std::int64_t delay_ms =
      due_ms == StoreCore::kNever ? kIdleMs : std::clamp<std::int64_t>(due_ms - now, 0, kIdleMs);
  wakes_mono_ms_ = now + delay_ms;
  asleep_ = true;
  wake_.wait_for(lock, std::chrono::milliseconds(delay_ms), [this] { return stopping_ || !asleep_; });
  asleep_ = false;
}

}  // namespace

std::unique_ptr<Store> start_store_thread(std::unique_ptr<StoreCore> core, const base::Clock& clock) {
  return std::make_unique<ThreadedStore>(std::move(core), clock);
}

}  // namespace llorch::orchestratord::store
