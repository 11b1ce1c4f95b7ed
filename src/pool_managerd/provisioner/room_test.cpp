#include "pool_managerd/provisioner/room.h"

#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <limits>
#include <vector>

namespace llorch::pool_managerd::provisioner {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

TEST(Room, KeepsAReserveOfTheDisk) {
  struct statvfs disk {};
  disk.f_frsize = 4096;
  disk.f_bavail = (100 << 20) / 4096;
  EXPECT_EQ(usable_bytes(disk), 36 << 20);
  disk.f_bavail = (10 << 20) / 4096;
  EXPECT_EQ(usable_bytes(disk), 0);
  const auto none = check_room({fs::temp_directory_path(), "a model"}, std::numeric_limits<std::int64_t>::max());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInsufficientDisk);
  EXPECT_GT(lacking_bytes(none.error()), 0);
}

TEST(Room, WhereItLacksSaysWhichDiskHowMuchAndWhatToDo) {
  const base::Error models = too_little_room({"/srv/cache", "the model"}, std::int64_t{5} << 30, std::int64_t{3} << 19);
  EXPECT_EQ(models.message,
            "the disk of /srv/cache has room for 1.5 MiB, and the model takes 5.0 GiB; free some (llorch gc "
            "--unused-days 30, llorch rm MODEL), or name a directory of another disk in models.cache_dir");
  EXPECT_EQ(lacking_bytes(models), (std::int64_t{5} << 30) - (std::int64_t{3} << 19));
  const base::Error engine = too_little_room({"/srv/engines", "the engine", kRoomForEngines}, 2, 1);
  EXPECT_NE(engine.message.find("llorch engine remove NAME"), std::string::npos) << engine.message;
  EXPECT_NE(engine.message.find("pool-managerd.provisioning.cache_dir"), std::string::npos) << engine.message;
}

TEST(Room, IsMadeOnceAndOnlyWhereTheDiskLacksIt) {
  const auto full = [](std::int64_t available) {
    return base::Error{ErrorCode::kInsufficientDisk, "full", {}}
        .with("required_bytes", std::int64_t{100})
        .with("available_bytes", available);
  };
  std::vector<std::int64_t> asked;
  int tries = 0;
  const auto room = [&](bool gives) {
    return MakeRoom([&asked, gives](std::int64_t bytes) {
      asked.push_back(bytes);
      return gives;
    });
  };
  const auto fails_once = [&](base::Error error) {
    return [&tries, error]() -> base::Result<int> {
      if (tries++ == 0) return base::fail(error);
      return 7;
    };
  };
  EXPECT_EQ(with_room(room(true), fails_once(full(40))).value(), 7);
  EXPECT_EQ(asked, std::vector<std::int64_t>{60});
  tries = 0;
  EXPECT_FALSE(with_room(room(false), fails_once(full(40))));
  EXPECT_EQ(tries, 1);
  tries = 0, asked.clear();
  EXPECT_FALSE(with_room(room(true), fails_once({ErrorCode::kIoError, "broken", {}})));
  EXPECT_FALSE(with_room(MakeRoom{}, [&]() -> base::Result<int> { return base::fail(full(40)); }));
  EXPECT_TRUE(asked.empty());
}

}  // namespace
}  // namespace llorch::pool_managerd::provisioner
