#include "pool_managerd/staging/staging.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace {

// A piece of `bytes` is locked when `opens` is kept: its disk does not answer until then. 0: no piece is held.
struct HeldLock {
  std::atomic<std::size_t> bytes = 0;
  std::promise<void> begun, opens;
  std::shared_future<void> opened = opens.get_future().share();
};
std::array<HeldLock, 2> held_locks;  // each is one test's

}  // namespace

// In the place of the system library's.
extern "C" int mlock(const void* data, std::size_t bytes) noexcept {
  for (HeldLock& held : held_locks) {
    if (bytes == 0 || bytes != held.bytes) continue;
    held.begun.set_value();
    held.opened.wait();
  }
  return static_cast<int>(::syscall(SYS_mlock, data, bytes));
}

namespace llorch::pool_managerd::staging {
namespace {

namespace fs = std::filesystem;

struct StagingTest : testing::Test {
  void SetUp() override { fs::create_directory(directory); }
  void TearDown() override { fs::remove_all(directory); }
  fs::path file(const std::string& name, std::size_t bytes) const {
    fs::path path = directory / name;
    std::ofstream(path) << std::string(bytes, 'x');
    return path;
  }
  static wire::StagedModel staged(const Staging& staging, const std::string& ref) {
    for (const wire::StagedModel& model : staging.list()) {
      if (model.model_ref == ref) return model;
    }
    return {};
  }
  // Waits until the thread has read what it was asked for.
  static void wait(const Staging& staging, const std::string& ref) {
    while (true) {
      const auto model = staged(staging, ref);
      if (model.model_ref.empty() || model.bytes == model.bytes_total) return;
      std::this_thread::yield();
    }
  }
  const fs::path directory = fs::temp_directory_path() / ("llorch-staging-" + std::to_string(::getpid()));
  std::mutex mutex;
  std::vector<std::function<void()>> timers;
  const std::shared_ptr<base::FileReads> reads =
      std::make_shared<base::FileReads>(base::FileReads::Options{.after =
                                                                     [this](std::int64_t, std::function<void()> fn) {
                                                                       const std::lock_guard lock(mutex);
                                                                       timers.push_back(std::move(fn));
                                                                     },
                                                                 .reason = "MODEL_BEING_READ"});
};

// POOL-2030, POOL-2031: the files of a model are in memory until it is let go of, in no more memory than is allowed.
TEST_F(StagingTest, HoldsFilesWithinItsBound) {
  Staging staging({.bytes_max = 100'000, .on_change = nullptr, .reads = reads});
  const auto one = file("one", 40'000), two = file("two", 30'000), large = file("large", 40'000);
  ASSERT_TRUE(staging.stage("file:/a", {{one}, {two}}));
  wait(staging, "file:/a");
  EXPECT_EQ(staged(staging, "file:/a").bytes, 70'000);
  const auto again = staging.stage("file:/a", {{one}, {two}});
  ASSERT_TRUE(again);
  EXPECT_EQ(staging.list().size(), 1u);
  const auto refused = staging.stage("file:/b", {{large}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kConflict);
  EXPECT_TRUE(staging.unstage("file:/a"));
  EXPECT_FALSE(staging.unstage("file:/a"));
  ASSERT_TRUE(staging.stage("file:/b", {{large}}));
  wait(staging, "file:/b");
  EXPECT_EQ(staged(staging, "file:/b").bytes, 40'000);
  EXPECT_FALSE(staging.stage("file:/c", {{directory / "none"}}));
  ASSERT_TRUE(staging.stage("file:/d", {{file("empty", 0)}}));
}

// What a start reads changes when its weights have been packed: other parts take the place of those that are held, also where
// both together would be too much.
TEST_F(StagingTest, OtherPartsTakeThePlace) {
  Staging staging({.bytes_max = 100'000, .on_change = nullptr, .reads = reads});
  const auto model = file("model", 80'000), packed = file("packed", 90'000), large = file("large", 100'001);
  ASSERT_TRUE(staging.stage("file:/a", {{model}}));
  wait(staging, "file:/a");
  const auto other = staging.stage("file:/a", {{packed}, {.path = model, .bytes_max = 4096}});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->bytes_total, 94'096);
  wait(staging, "file:/a");
  EXPECT_EQ(staged(staging, "file:/a").bytes, 94'096);
  ASSERT_FALSE(staging.stage("file:/a", {{large}}));
  EXPECT_EQ(staged(staging, "file:/a").bytes, 94'096) << "a refusal takes nothing away";
  EXPECT_EQ(staging.list().size(), 1u);
}

// A file that is cut while it is held ends no process, and its model is not called staged.
TEST_F(StagingTest, AFileThatIsCut) {
  Staging staging({.bytes_max = 1 << 30, .on_change = nullptr, .reads = reads});
  const auto path = file("model", 40 << 20);
  const auto other = file("other", 64 << 20);
  ASSERT_TRUE(staging.stage("file:/other", {{other}}));  // is read first
  ASSERT_TRUE(staging.stage("file:/model", {{path}}));
  fs::resize_file(path, 4096);
  wait(staging, "file:/model");
  SUCCEED();
}

// Whoever unstages a model need not wait for its disk, which an earlier order still looks at.
TEST_F(StagingTest, AnOrderIsDroppedByWhatUnstages) {
  Staging staging({.bytes_max = 100'000, .on_change = nullptr, .reads = reads});
  const auto one = file("one", 40'000);
  const auto order = staging.order("file:/a"), another = staging.order("file:/a"), other = staging.order("file:/b");
  EXPECT_FALSE(staging.unstage("file:/a"));
  for (const auto& dropped : {order, another}) {
    const auto staged = staging.stage("file:/a", {{one}}, dropped);
    ASSERT_FALSE(staged);
    EXPECT_EQ(staged.error().code, base::ErrorCode::kCancelled);
  }
  EXPECT_TRUE(staging.stage("file:/b", {{one}}, other));
  EXPECT_TRUE(staging.stage("file:/a", {{one}}, staging.order("file:/a")));
}

// A removal of files knows where they lie, and not every model whose order is under way.
TEST_F(StagingTest, OrdersAndModelsOfADirectoryAreDropped) {
  Staging staging({.bytes_max = 100'000, .on_change = nullptr, .reads = reads});
  const auto one = file("one", 40'000);
  ASSERT_TRUE(staging.stage("file:/cache/a/x", {{one}}));
  const auto inside = staging.order("file:/cache/a/y"), outside = staging.order("file:/cache/b/y");
  staging.unstage_all("file:/cache/a");
  EXPECT_TRUE(staging.list().empty());
  EXPECT_FALSE(staging.stage("file:/cache/a/y", {{one}}, inside));
  EXPECT_TRUE(staging.stage("file:/cache/b/y", {{one}}, outside));
}

TEST_F(StagingTest, StopsWhileItReads) {
  std::atomic<int> changes = 0;
  Staging staging({.bytes_max = 1 << 30, .on_change = [&] { ++changes; }, .reads = reads});
  ASSERT_TRUE(staging.stage("file:/a", {{file("a", 70 << 20)}}));
  staging.unstage("file:/a");
  staging.stop();
  reads->stop();
  EXPECT_TRUE(staging.list().empty());
}

// Of a mount that hangs: others are staged meanwhile, and the end waits for no page of it.
TEST_F(StagingTest, AFileThatDoesNotAnswerHoldsItsOwnModelAlone) {
  HeldLock& held_lock = held_locks[0];
  const auto hung = file("hung", 40'001), other = file("other", 30'000);
  std::atomic<int> changes = 0;
  auto used = std::make_shared<int>();
  const std::weak_ptr<int> in_use = used;
  std::optional<Staging> staging(
      std::in_place,
      StagingOptions{
          .bytes_max = 1 << 20, .on_change = [&changes, used = std::move(used)] { ++changes; }, .reads = reads});
  held_lock.bytes = 40'001;
  ASSERT_TRUE(staging->stage("file:/hung", {{hung}}));
  held_lock.begun.get_future().wait();
  held_lock.bytes = 0;
  ASSERT_TRUE(staging->stage("file:/other", {{other}}));
  EXPECT_EQ(staged(*staging, "file:/other").bytes, 0) << "one at a time, until that one is slow";
  std::vector<std::function<void()>> due;
  {
    const std::lock_guard lock(mutex);
    due = std::exchange(timers, {});
  }
  for (const auto& timer : due) timer();
  wait(*staging, "file:/other");
  EXPECT_EQ(staged(*staging, "file:/other").bytes, 30'000);
  EXPECT_EQ(staged(*staging, "file:/hung").bytes, 0);
  EXPECT_TRUE(staging->unstage("file:/hung"));
  ASSERT_TRUE(staging->stage("file:/hung", {{other}}));  // waits behind the first read
  while (changes == 0) std::this_thread::yield();
  staging.reset();
  reads->stop();
  const int before = changes;
  held_lock.opens.set_value();
  while (!in_use.expired()) std::this_thread::yield();
  EXPECT_EQ(changes, before) << "nobody hears of it any more";
}

// Memory that such a read locks is nobody else's before it ends, though its model is staged no more.
TEST_F(StagingTest, WhatAHungReadHoldsCountsUntilItEnds) {
  HeldLock& held_lock = held_locks[1];
  const auto hung = file("hung", 50'003), other = file("other", 60'000);
  Staging staging({.bytes_max = 100'000, .on_change = nullptr, .reads = reads});
  held_lock.bytes = 50'003;
  ASSERT_TRUE(staging.stage("file:/hung", {{hung}}));
  held_lock.begun.get_future().wait();
  held_lock.bytes = 0;
  ASSERT_TRUE(staging.unstage("file:/hung"));
  const auto refused = staging.stage("file:/other", {{other}});
  EXPECT_FALSE(refused);
  if (!refused) {
    EXPECT_EQ(refused.error().code, base::ErrorCode::kConflict);
    EXPECT_EQ(refused.error().details.back().second, base::DetailValue(std::int64_t{49'997}));
  }
  EXPECT_TRUE(staging.stage("file:/hung", {{other}})) << "is read when that read has ended";
  staging.unstage("file:/hung");
  held_lock.opens.set_value();
  while (!staging.stage("file:/other", {{other}})) std::this_thread::yield();
  wait(staging, "file:/other");
}

// Of a disk that answers nothing any more there are as many as there may be: what cannot be read is not called staged.
TEST_F(StagingTest, WhatIsRefusedIsNotStaged) {
  const auto full = std::make_shared<base::FileReads>(base::FileReads::Options{
      .files_max = 1,
      .after = [](std::int64_t, std::function<void()> fn) { std::thread(std::move(fn)).detach(); },
      .reason = ""});
  std::promise<void> gate_of_other;
  full->read<int>(
      "other",
      [held = std::make_shared<std::future<void>>(gate_of_other.get_future())]() -> base::Result<int> {
        held->wait();
        return 0;
      },
      [](const base::Result<int>&) {});
  Staging staging({.bytes_max = 100'000, .on_change = nullptr, .reads = full});
  const auto one = file("one", 40'000);
  ASSERT_TRUE(staging.stage("file:/a", {{one}}));
  while (!staging.list().empty()) std::this_thread::yield();
  gate_of_other.set_value();
  full->stop();
}

}  // namespace
}  // namespace llorch::pool_managerd::staging
