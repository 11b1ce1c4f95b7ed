#include "pool_managerd/provisioner/download/part_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <limits>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "pool_managerd/provisioner/testing/download_directory.h"

namespace {

std::atomic<off_t> g_reserved_bytes_max = -1;  // of the disk that ends there; below 0: there is no such disk
std::atomic<bool> g_is_full = false;           // the disk takes nothing more

}  // namespace

// Of this program alone. A disk may run full while it is asked for more, with some of it given already.
extern "C" int posix_fallocate(int fd, off_t offset, off_t bytes) {
  const off_t bytes_max = g_reserved_bytes_max.load();
  const bool ends = bytes_max >= 0 && bytes > bytes_max;
  const int result = ::fallocate(fd, 0, offset, ends ? bytes_max : bytes);
  if (result != 0) return errno;
  return ends ? ENOSPC : 0;
}

extern "C" ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  if (!g_is_full) return ::syscall(SYS_pwrite64, fd, data, bytes, offset);
  errno = ENOSPC;
  return -1;
}

namespace llorch::pool_managerd::provisioner {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;
using download::PartFile;

base::Result<> put(PartFile& file, std::string_view content, std::int64_t begin, std::int64_t end) {
  return file.write(begin, content.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
}

// ORCH-3435: whatever order parts come in, and wherever it stops, the whole is the file and its checksum.
TEST_F(DownloadDirectory, APartFileIsResumed) {
  const std::int64_t size = 3 * PartFile::kChunkBytes + 12'345;
  const std::string content = content_of(size);
  const PartFile::Identity identity{"tale", size};
  {
    PartFile file = PartFile::open(dir_ / "p", identity).value();
    const auto first = file.claim(PartFile::kChunkBytes), second = file.claim(2 * PartFile::kChunkBytes);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->end, PartFile::kChunkBytes);
    EXPECT_EQ(second->begin, first->end);
    EXPECT_TRUE(put(file, content, second->begin, second->begin + PartFile::kChunkBytes));  // one of its two chunks
    EXPECT_TRUE(put(file, content, second->begin + PartFile::kChunkBytes, second->end - 1));
    EXPECT_TRUE(file.hash_ready());
    EXPECT_EQ(file.bytes_done(), PartFile::kChunkBytes);
    EXPECT_EQ(PartFile::open(dir_ / "p", identity).error().code, ErrorCode::kConflict);  // it is taken
  }
  PartFile file = PartFile::open(dir_ / "p", identity).value();
  EXPECT_TRUE(file.has_resumed());
  EXPECT_EQ(file.bytes_done(), PartFile::kChunkBytes);
  while (const auto range = file.claim(size)) ASSERT_TRUE(put(file, content, range->begin, range->end));
  EXPECT_TRUE(file.is_complete());
  while (!file.is_hashed()) ASSERT_TRUE(file.hash_ready(true));
  EXPECT_EQ(file.sha256_hex(), base::to_hex(base::sha256(content)));
  EXPECT_EQ(base::read_file(file.data_path(), content.size()).value(), content);
  file.remove();
  EXPECT_TRUE(fs::is_empty(dir_));
}

// Threads with stacks that no address space holds cannot be made.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t now;
    pthread_attr_init(&now);
    pthread_attr_setstacksize(&now, std::size_t{1} << 60);
    EXPECT_EQ(pthread_setattr_default_np(&now), 0);
    pthread_attr_destroy(&now);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_F(DownloadDirectory, APartIsHashedWhereNoThreadCanBeMade) {
  const std::string content = content_of(PartFile::kChunkBytes);
  PartFile file = PartFile::open(dir_ / "p", {"one", PartFile::kChunkBytes}).value();
  ASSERT_TRUE(file.claim(PartFile::kChunkBytes));
  ASSERT_TRUE(file.write(0, content));
  const NoThreads none;
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  ASSERT_TRUE(file.hash_ready());
  EXPECT_TRUE(file.is_hashed());
  EXPECT_EQ(file.sha256_hex(), base::to_hex(base::sha256(content)));
}

TEST_F(DownloadDirectory, AnotherFileBeginsAnew) {
  const std::string content = content_of(PartFile::kChunkBytes);
  for (const char* identity : {"one", "other"}) {
    PartFile file = PartFile::open(dir_ / "p", {identity, PartFile::kChunkBytes}).value();
    EXPECT_FALSE(file.has_resumed());
    const auto range = file.claim(PartFile::kChunkBytes);
    ASSERT_TRUE(range);
    ASSERT_TRUE(file.write(0, content));
  }
  for (int round = 0; round < 2; ++round) {
    PartFile file = PartFile::open(dir_ / "p", {"", PartFile::kChunkBytes}).value();
    EXPECT_FALSE(file.has_resumed());
    ASSERT_TRUE(file.write(0, content));
  }
  std::ofstream(dir_ / "p.json") << "{";
  EXPECT_FALSE(PartFile::open(dir_ / "p", {"other", PartFile::kChunkBytes})->has_resumed());
}

// A process that was killed behind publishing left the part's name beside the model's, on the same bytes.
TEST_F(DownloadDirectory, APublishedFileIsNeverWrittenTo) {
  const std::string content = content_of(PartFile::kChunkBytes);
  const auto fetch = [&](const char* identity, std::int64_t size) {
    PartFile file = PartFile::open(dir_ / "p", {identity, size}).value();
    while (const auto range = file.claim(size)) {
      const auto bytes = static_cast<std::size_t>(range->end - range->begin);
      EXPECT_TRUE(file.write(range->begin, content.substr(0, bytes)));
    }
    return file.has_resumed();
  };
  EXPECT_FALSE(fetch("one", PartFile::kChunkBytes));
  fs::create_hard_link(dir_ / "p.part", dir_ / "published");
  EXPECT_TRUE(fetch("one", PartFile::kChunkBytes));  // the same bytes are not fetched again
  EXPECT_EQ(base::read_file(dir_ / "published", content.size()).value(), content);
  EXPECT_FALSE(fetch("other", 100));
  EXPECT_EQ(base::read_file(dir_ / "published", content.size()).value(), content);
  EXPECT_EQ(fs::file_size(dir_ / "p.part"), 100u);
  EXPECT_EQ(fs::hard_link_count(dir_ / "p.part"), 1u);

  // Also where less has come than the map's file says.
  fs::create_hard_link(dir_ / "p.part", dir_ / "short");
  std::ofstream(dir_ / "p.map", std::ios::trunc).flush();
  EXPECT_FALSE(fetch("other", 100));
  EXPECT_EQ(base::read_file(dir_ / "short", 100).value(), content.substr(0, 100));
  EXPECT_EQ(fs::hard_link_count(dir_ / "short"), 1u);
}

TEST_F(DownloadDirectory, AFileThatNoDiskHolds) {
  for (const std::int64_t size_bytes : {std::int64_t{1} << 55, std::numeric_limits<std::int64_t>::max()}) {
    const auto file = PartFile::open(dir_ / "p", {"huge", size_bytes});
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, ErrorCode::kInsufficientDisk);
    EXPECT_NE(file.error().message.find("the disk of " + dir_.string() + " has"), std::string::npos)
        << file.error().message;
    EXPECT_NE(file.error().message.find("llorch gc"), std::string::npos) << file.error().message;
  }
  const PartFile::Identity engine{"huge", std::int64_t{1} << 55, kRoomForEngines};
  EXPECT_NE(PartFile::open(dir_ / "p", engine).error().message.find("llorch engine remove"), std::string::npos);
}

// What is told is what the file needs yet, not the piece that just came.
TEST_F(DownloadDirectory, ADiskThatRunsFullLacksWhatIsLeft) {
  const std::int64_t size = 6 * PartFile::kChunkBytes;
  const std::string content = content_of(PartFile::kChunkBytes);
  PartFile file = PartFile::open(dir_ / "p", {"tale", size}).value();
  ASSERT_TRUE(file.write(0, content));
  g_is_full = true;
  const auto refused = file.write(PartFile::kChunkBytes, content);
  g_is_full = false;
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInsufficientDisk);
  EXPECT_EQ(lacking_bytes(refused.error()), 5 * PartFile::kChunkBytes);
  EXPECT_NE(refused.error().message.find("what is left of the file takes"), std::string::npos)
      << refused.error().message;
}

TEST_F(DownloadDirectory, RoomIsGivenBackBetweenWhatHasCome) {
  const std::int64_t size = 6 * PartFile::kChunkBytes - 5;
  const std::string content = content_of(size);
  const PartFile::Identity identity{"tale", size};
  {
    PartFile file = PartFile::open(dir_ / "p", identity).value();
    ASSERT_TRUE(put(file, content, 0, PartFile::kChunkBytes));
    ASSERT_TRUE(put(file, content, 3 * PartFile::kChunkBytes, 4 * PartFile::kChunkBytes));
    file.give_back_room();
  }
  EXPECT_EQ(fs::file_size(dir_ / "p.part"), static_cast<std::uintmax_t>(4 * PartFile::kChunkBytes));
  EXPECT_LE(taken_bytes(dir_ / "p.part"), 3 * PartFile::kChunkBytes);
  PartFile file = PartFile::open(dir_ / "p", identity).value();
  EXPECT_EQ(file.bytes_done(), 2 * PartFile::kChunkBytes);
  while (const auto range = file.claim(size)) ASSERT_TRUE(put(file, content, range->begin, range->end));
  file.give_back_room();  // all of it has come
  EXPECT_EQ(base::read_file(file.data_path(), content.size()).value(), content);
}

TEST_F(DownloadDirectory, RoomThatIsTooLittleIsGivenBack) {
  const std::int64_t size = 6 * PartFile::kChunkBytes;
  const std::string content = content_of(PartFile::kChunkBytes);
  const auto refused = [&](const PartFile::Identity& identity) {
    g_reserved_bytes_max = 4 * PartFile::kChunkBytes;
    const auto file = PartFile::open(dir_ / "p", identity);
    g_reserved_bytes_max = -1;
    return !file && file.error().code == ErrorCode::kInsufficientDisk;
  };
  EXPECT_TRUE(refused({"tale", size}));
  EXPECT_EQ(taken_bytes(dir_ / "p.part"), 0);
  {
    PartFile file = PartFile::open(dir_ / "p", {"tale", size}).value();
    ASSERT_TRUE(file.write(0, content));
    file.give_back_room();
  }
  EXPECT_TRUE(refused({"tale", size}));
  EXPECT_LE(taken_bytes(dir_ / "p.part"), 2 * PartFile::kChunkBytes);
  EXPECT_EQ(PartFile::open(dir_ / "p", {"tale", size})->bytes_done(), PartFile::kChunkBytes);  // what had come stays
}

}  // namespace
}  // namespace llorch::pool_managerd::provisioner
