// A backup beside a daemon that serves, whose caller goes away or whose disk is full: nothing of it is left, nothing is held,
// and the next one goes through.
#include "orchestratord/store/backup/backup.h"
#include "base/testing/full_disk.h"
#include "net/test_socket.h"
#include "orchestratord/daemon/testing/daemon_fixture.h"
#include "orchestratord/store/testing/store_test_support.h"

namespace llorch::orchestratord::daemon::testing {
namespace {

namespace backup = store::backup;

class BackupTest : public DaemonTest {
 protected:
  // A daemon with a store of many pages. The jobs that filled it are over: nobody can read what they brought.
  void SetUp() override {
    std::filesystem::create_directories(options_.state_directory);
    {
      store::SqliteStoreOptions of_store;
      of_store.directory = options_.state_directory;
      of_store.clock = &store::kClock;
      of_store.entropy = &store::g_entropy;
      auto store = store::open_sqlite_store(std::move(of_store)).value();
      for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(admit(*store, store::admission("job-" + std::to_string(i), std::string(200'000, 'x'))));
      }
    }
    std::filesystem::remove(options_.state_directory / "payload.keys");
    start();
    wait_until([&] { return status_of("job-99") == "failed"; }, "the jobs to end");
  }
  backup::Paths paths() const { return {.directory = options_.state_directory, .file = directory_.path() / "jobs"}; }
  backup::Parts parts() const { return backup::parts_of(paths().file); }
  bool nothing_is_left() const { return std::filesystem::is_empty(directory_.path()); }
  // The daemon is asked as `llorch backup` asks it.
  net::TestSocket ask() const {
    const std::string bind = daemon_->bind();
    net::TestSocket socket(static_cast<std::uint16_t>(std::stoi(bind.substr(bind.rfind(':') + 1))));
    socket.send("POST /v2/store/backup HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    return socket;
  }
  void the_next_one_goes_through() {
    EXPECT_FALSE(base::testing::is_open_here(directory_.path()));
    {
      const backup::Online online = backup::Online::prepare(paths()).value();
      const std::string answer = ask().read_until("event: done");
      EXPECT_NE(answer.find("event: done"), std::string::npos) << answer;
      const auto made = online.finish();
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->jobs_count, 100);
    }
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1) << "the file and no part";
    EXPECT_EQ(client_->post("/v2/sessions", "{}").status, 201) << "the store goes on";
  }

  const store::TempDir directory_;
};

// In its midst; and before it began.
TEST_F(BackupTest, WhoseCallerGoesAway) {
  for (const bool in_its_midst : {true, false}) {
    const backup::Online online = backup::Online::prepare(paths()).value();
    net::TestSocket caller = ask();
    if (in_its_midst) {
      EXPECT_NE(caller.read_until("event: progress").find("event: progress"), std::string::npos);
    }
    caller.close();
    wait_until([&] { return nothing_is_left(); }, "the parts to go");
  }
  the_next_one_goes_through();
}

TEST_F(BackupTest, WhoseDiskIsFull) {
  {
    const backup::Online online = backup::Online::prepare(paths()).value();
    // The store's own file does not grow meanwhile.
    const base::testing::FileSizeLimit no_room(2'000'000);
    net::TestSocket caller = ask();
    const std::string answer = caller.read_until("STORE_UNAVAILABLE");
    EXPECT_NE(answer.find("event: error"), std::string::npos) << answer;
    EXPECT_TRUE(nothing_is_left()) << "a next one may have begun";
  }
  // The database fits, its keys do not.
  {
    const backup::Online online = backup::Online::prepare(paths()).value();
    std::filesystem::remove(parts().keys);
    net::TestSocket caller = ask();
    EXPECT_NE(caller.read_until("event: error").find("event: error"), std::string::npos);
    EXPECT_TRUE(nothing_is_left()) << "a next one may have begun";
  }
  the_next_one_goes_through();
}

}  // namespace
}  // namespace llorch::orchestratord::daemon::testing
