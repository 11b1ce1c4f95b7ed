#include "pool_managerd/provisioner/download/download.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>

#include "base/file.h"
#include "pool_managerd/provisioner/testing/download_directory.h"
#include "pool_managerd/provisioner/testing/fake_server.h"

namespace llorch::pool_managerd::provisioner {
namespace {

namespace fs = std::filesystem;
using download::PartFile;

base::Result<PartFile> downloaded(const FakeServer& server, const fs::path& stem, const std::string& sha256) {
  web::Web web(kOnlyHere);
  const StopFlag stop;
  return download::download(web, {.request = {.url = server.url() + "/m.gguf"}, .stem = stem, .sha256 = sha256}, stop,
                            [](std::int64_t, std::int64_t) {});
}

TEST_F(DownloadDirectory, WhatIsWholeIsNotFetchedAgainFromAServerWithoutRanges) {
  const std::string content = content_of(2 * PartFile::kChunkBytes + 5), digest = sha256_of(content);
  {
    PartFile file = PartFile::open(dir_ / "p", {"sha256:" + digest, static_cast<std::int64_t>(content.size())}).value();
    ASSERT_TRUE(file.write(0, content));
  }
  const FakeServer server([&](const std::string&, const std::string&) { return FakeServer::Answer{.body = content}; });
  const auto file = downloaded(server, dir_ / "p", digest);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->sha256_hex(), digest);
  EXPECT_EQ(server.requests(), 1);  // the probe, which reads one byte
}

// Somebody may never come back for a pull that has failed or was cancelled.
TEST_F(DownloadDirectory, WhatHasNotComeTakesNoRoom) {
  const std::string content = content_of(32 * PartFile::kChunkBytes), digest = sha256_of(content);
  const auto answers = [&](bool is_whole) {
    return [&content, is_whole](const std::string&, const std::string& range) -> FakeServer::Answer {
      const std::int64_t begin = std::stoll(range);
      if (!is_whole && begin != 0 && begin != 16 * PartFile::kChunkBytes) return {.status = 404};
      return FakeServer::part_of(content, range);
    };
  };
  {
    const FakeServer server(answers(false));
    ASSERT_FALSE(downloaded(server, dir_ / "p", digest));
  }
  EXPECT_LE(taken_bytes(dir_ / "p.part"), 17 * PartFile::kChunkBytes);  // two ranges of eight at most
  const FakeServer server(answers(true));
  const auto file = downloaded(server, dir_ / "p", digest);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->sha256_hex(), digest);
}

// Each attempt begins anew, so that only what no earlier one had got is progress.
TEST_F(DownloadDirectory, AServerWithoutRangesThatCutsHasNoMoreThanItsAttempts) {
  const std::string content = content_of(3 * PartFile::kChunkBytes);
  std::atomic<int> whole = 0;
  const FakeServer server([&](const std::string&, const std::string& range) -> FakeServer::Answer {
    if (!range.empty()) return {.body = content};
    const int n = whole++;
    if (n == 20) return {.status = 404};
    const auto chunks = static_cast<std::size_t>(n % 2 == 0 ? 2 : 1);
    return {.headers = "Retry-After: 0\r\n", .body = content, .sent_max = chunks * PartFile::kChunkBytes};
  });
  const auto file = downloaded(server, dir_ / "p", sha256_of(content));
  ASSERT_FALSE(file);
  EXPECT_EQ(whole, kOnlyHere.attempts_max);
}

// After a power cut nobody could tell which bytes of it the disk has.
TEST_F(DownloadDirectory, WithoutAChecksumNothingIsResumedAcrossARestartOfTheMachine) {
  const std::string content = content_of(PartFile::kChunkBytes + 5);
  const FakeServer server([&](const std::string&, const std::string& range) {
    return FakeServer::part_of(content, range, "ETag: \"one\"\r\n");
  });
  ASSERT_TRUE(downloaded(server, dir_ / "p", ""));
  int before = server.requests();
  ASSERT_TRUE(downloaded(server, dir_ / "p", ""));
  EXPECT_EQ(server.requests() - before, 1);  // the probe
  std::string boot_id = base::read_file("/proc/sys/kernel/random/boot_id", 100).value();
  boot_id.resize(36);
  std::string header = base::read_file(dir_ / "p.json", 1 << 16).value();
  const std::size_t at = header.find(boot_id);
  ASSERT_NE(at, std::string::npos) << header;
  header[at] = header[at] == '0' ? '1' : '0';
  std::ofstream(dir_ / "p.json", std::ios::trunc) << header;
  before = server.requests();
  ASSERT_TRUE(downloaded(server, dir_ / "p", ""));
  EXPECT_GT(server.requests() - before, 1);
}

}  // namespace
}  // namespace llorch::pool_managerd::provisioner
