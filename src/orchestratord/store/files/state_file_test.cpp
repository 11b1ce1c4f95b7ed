#include "orchestratord/store/files/state_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

namespace llorch::orchestratord::store::files {
namespace {

TEST(StateFile, IsPrivateAndSaysWhatIsWrong) {
  constexpr std::size_t kBytes = 32;
  const auto dir = std::filesystem::temp_directory_path() / ("llorch-file-" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  const auto path = dir / "state";
  {
    auto file = open_state_file(path).value();
    const std::array<std::uint8_t, kBytes> bytes{1, 2, 3};
    EXPECT_TRUE(file->write(kBytes, bytes));
    EXPECT_TRUE(file->sync());
    EXPECT_EQ(file->size().value(), 2 * kBytes);
    std::array<std::uint8_t, kBytes> back{};
    EXPECT_TRUE(file->read(kBytes, back));
    EXPECT_EQ(back, bytes);
    EXPECT_EQ(file->read(2 * kBytes, back).error().code, base::ErrorCode::kStoreUnavailable);
  }
  struct stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_EQ(open_state_file(dir / "no" / "file").error().code, base::ErrorCode::kStoreUnavailable);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace llorch::orchestratord::store::files
