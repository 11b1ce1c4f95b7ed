// The store on a disk that fills up, refuses to sync, or turns read-only: never a false success, and it recovers.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>

#include "orchestratord/state_store/fault_vfs.h"
#include "orchestratord/state_store/store_test_support.h"

namespace llorch::orchestratord::state_store {
namespace {

using base::ErrorCode;

class StoreFaultTest : public testing::Test {
 protected:
  void SetUp() override { disk_faults().heal(); }
  void TearDown() override { disk_faults().heal(); }
  std::unique_ptr<Store> open() {
    SqliteStoreOptions options = options_in(dir_);
    options.sqlite_vfs = "faulty";
    return open_sqlite_store(std::move(options)).value();
  }
  // What a new process would find.
  std::vector<std::string> jobs_after_restart(std::unique_ptr<Store> store) {
    store.reset();
    std::vector<std::string> ids;
    for (const auto& job : live_jobs(*open_in(dir_))) ids.push_back(job.job.job_id.value);
    return ids;
  }
  TempDir dir_;
};

// DECISIONS §7 STORE_UNAVAILABLE: a full disk is never a false 202, and the service recovers by itself.
TEST_F(StoreFaultTest, AFullDiskRefusesAndRecovers) {
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("before")));
  disk_faults().full = 1;
  const auto refused = admit(*store, admission("during"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kStoreUnavailable);
  EXPECT_NE(refused.error().message.find("free space"), std::string::npos) << refused.error().message;
  EXPECT_EQ(apply(*store, finished("before")).error().code, ErrorCode::kStoreUnavailable);
  disk_faults().heal();
  EXPECT_TRUE(admit(*store, admission("after")));
  EXPECT_TRUE(apply(*store, finished("before")));
  EXPECT_EQ(jobs_after_restart(std::move(store)), std::vector<std::string>{"after"});
}

// A sync that fails may still have left the commit in the log, where a restart would find it. So the client is told neither
// yes nor no until the disk has decided; what comes meanwhile was never written and is refused at once.
TEST_F(StoreFaultTest, AnAdmissionInDoubtIsAnsweredWhenTheDiskHasDecided) {
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("before")));
  disk_faults().sync_error = 1;
  std::promise<base::Result<>> answer;
  auto answered = answer.get_future();
  store->admit(admission("in-doubt"), [&](base::Result<> r) { answer.set_value(std::move(r)); });
  EXPECT_EQ(find(*store, "in-doubt").value(), std::nullopt) << "nobody may see it meanwhile";
  EXPECT_EQ(admit(*store, admission("refused")).error().code, ErrorCode::kStoreUnavailable);
  EXPECT_EQ(answered.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  disk_faults().heal();
  EXPECT_TRUE(answered.get());
  EXPECT_NE(find(*store, "in-doubt").value(), std::nullopt);
  EXPECT_EQ(jobs_after_restart(std::move(store)), (std::vector<std::string>{"before", "in-doubt"}));
  EXPECT_EQ(live_jobs(*open_in(dir_)).at(1).payload, "payload");
}

TEST_F(StoreFaultTest, ATerminalTransitionIsRepeatedUntilItIsDurable) {
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  disk_faults().sync_error = 1;
  EXPECT_EQ(apply(*store, finished("job-1")).error().code, ErrorCode::kStoreUnavailable);
  disk_faults().heal();
  EXPECT_TRUE(apply(*store, finished("job-1")));
  EXPECT_EQ(apply(*store, finished("job-1")).error().code, ErrorCode::kConflict) << "settled now";
  const std::string keys = key_file_bytes(dir_);
  EXPECT_TRUE(std::all_of(keys.begin(), keys.end(), [](char c) { return c == 0; })) << "the key outlived its job";
  EXPECT_EQ(jobs_after_restart(std::move(store)), std::vector<std::string>{});
}

// The key file's own faults, with the database healthy.
class FaultyKeys final : public files::StateFile {
 public:
  using Switch = std::shared_ptr<std::atomic<bool>>;
  FaultyKeys(files::StateFilePtr real, Switch broken) : real_(std::move(real)), broken_(std::move(broken)) {}
  base::Result<std::uint64_t> size() override { return real_->size(); }
  base::Result<> read(std::uint64_t at, std::span<std::uint8_t> out) override { return real_->read(at, out); }
  base::Result<> write(std::uint64_t at, std::span<const std::uint8_t> bytes) override {
    if (*broken_) return base::fail(ErrorCode::kStoreUnavailable, "no space left");
    return real_->write(at, bytes);
  }
  base::Result<> sync() override {
    if (*broken_) return base::fail(ErrorCode::kStoreUnavailable, "input/output error");
    return real_->sync();
  }

 private:
  files::StateFilePtr real_;
  Switch broken_;
};

TEST_F(StoreFaultTest, AKeyThatCannotBeWrittenIsARefusal) {
  const auto broken = std::make_shared<std::atomic<bool>>(false);
  SqliteStoreOptions options = options_in(dir_);
  options.open_file = [broken](const std::filesystem::path& path) -> base::Result<files::StateFilePtr> {
    if (path.filename() != "payload.keys") return files::open_state_file(path);
    return files::StateFilePtr(std::make_unique<FaultyKeys>(TRY(files::open_state_file(path)), broken));
  };
  {
    auto store = open_sqlite_store(options).value();
    ASSERT_TRUE(admit(*store, admission("job-1")));
    *broken = true;
    EXPECT_EQ(admit(*store, admission("job-2")).error().code, ErrorCode::kStoreUnavailable);
    EXPECT_TRUE(admit(*store, admission("job-3", std::nullopt))) << "needs no key";
    EXPECT_TRUE(apply(*store, finished("job-1"))) << "the row does not wait for its key's end";
    EXPECT_NE(key_file_bytes(dir_).find_first_not_of('\0'), std::string::npos);
    *broken = false;
    EXPECT_TRUE(admit(*store, admission("job-4")));
    const std::string keys = key_file_bytes(dir_);
    EXPECT_EQ(keys.find_first_not_of('\0', payload::kKeyBytes) == std::string::npos,
              keys.find_first_not_of('\0') < payload::kKeyBytes)
        << "more than one key is left";
  }
  *broken = true;
  EXPECT_EQ(open_sqlite_store(options).error().code, ErrorCode::kStoreUnavailable) << "orphan slots not overwritten";
}

TEST_F(StoreFaultTest, AnUnwritableDirectoryIsAClearError) {
  if (::geteuid() == 0) {
    const auto missing = dir_.path() / "no" / "such";
    SqliteStoreOptions options = options_in(dir_);
    options.directory = missing;
    EXPECT_EQ(open_sqlite_store(std::move(options)).error().code, ErrorCode::kStoreUnavailable);
    return;
  }
  ::chmod(dir_.path().c_str(), 0500);
  EXPECT_EQ(open_sqlite_store(options_in(dir_)).error().code, ErrorCode::kStoreUnavailable);
  ::chmod(dir_.path().c_str(), 0700);
}

}  // namespace
}  // namespace llorch::orchestratord::state_store
