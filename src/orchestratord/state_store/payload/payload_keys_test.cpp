#include "orchestratord/state_store/payload/payload_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace llorch::orchestratord::state_store::payload {
namespace {

// A key file in memory whose n-th operation, and every later one until it heals, fails.
class MemoryKeyFile final : public files::StateFile {
 public:
  struct Disk {
    std::vector<std::uint8_t> bytes;
    int operations = 0;
    int fail_at = -1;
  };
  explicit MemoryKeyFile(Disk& disk) : disk_(disk) {}

  base::Result<std::uint64_t> size() override {
    TRY(operation());
    return disk_.bytes.size();
  }
  base::Result<> read(std::uint64_t offset, std::span<std::uint8_t> out) override {
    TRY(operation());
    if (offset + out.size() > disk_.bytes.size()) return base::fail(base::ErrorCode::kStoreUnavailable, "short");
    std::memcpy(out.data(), disk_.bytes.data() + offset, out.size());
    return {};
  }
  base::Result<> write(std::uint64_t offset, std::span<const std::uint8_t> bytes) override {
    disk_.bytes.resize(std::max<std::size_t>(disk_.bytes.size(), offset + bytes.size()));
    if (auto ok = operation(); !ok) {  // a torn write
      std::memcpy(disk_.bytes.data() + offset, bytes.data(), bytes.size() / 2);
      return ok;
    }
    std::memcpy(disk_.bytes.data() + offset, bytes.data(), bytes.size());
    return {};
  }
  base::Result<> sync() override { return operation(); }

 private:
  base::Result<> operation() {
    if (disk_.fail_at >= 0 && disk_.operations++ >= disk_.fail_at) {
      return base::fail(base::ErrorCode::kStoreUnavailable, "injected");
    }
    return {};
  }
  Disk& disk_;
};

bool holds(const std::vector<std::uint8_t>& bytes, const Key& key) {
  return std::search(bytes.begin(), bytes.end(), key.bytes.begin(), key.bytes.begin() + kKeyBytes / 2) != bytes.end();
}

TEST(PayloadKeys, ErasedKeysAreGoneAndTheirSlotsAreUsedAgain) {
  MemoryKeyFile::Disk disk;
  base::SeededEntropy entropy(7);
  PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
  ASSERT_TRUE(keys.adopt({}));
  const auto first = keys.create().value();
  const auto second = keys.create().value();
  EXPECT_TRUE(holds(disk.bytes, first.second));
  EXPECT_EQ(keys.read(second.first)->bytes, second.second.bytes);
  keys.erase(first.first);
  EXPECT_TRUE(keys.erasure_pending());
  EXPECT_TRUE(keys.sync());
  EXPECT_FALSE(keys.erasure_pending());
  EXPECT_FALSE(holds(disk.bytes, first.second));
  EXPECT_EQ(keys.read(first.first).error().code, base::ErrorCode::kCorruptFile);
  EXPECT_EQ(keys.create()->first, first.first);
  EXPECT_EQ(disk.bytes.size(), 2 * kKeyBytes);
}

// C-51: a start overwrites every slot no live job owns.
TEST(PayloadKeys, AdoptKeepsLiveSlotsOnly) {
  MemoryKeyFile::Disk disk;
  base::SeededEntropy entropy(8);
  PayloadKeys before(std::make_unique<MemoryKeyFile>(disk), entropy);
  ASSERT_TRUE(before.adopt({}));
  const auto orphan = before.create().value();
  const auto live = before.create().value();
  PayloadKeys after(std::make_unique<MemoryKeyFile>(disk), entropy);
  ASSERT_TRUE(after.adopt({live.first}));
  EXPECT_FALSE(holds(disk.bytes, orphan.second));
  EXPECT_EQ(after.read(live.first)->bytes, live.second.bytes);
}

// A sync that failed may have dropped what it was to write (files/state_file.h): the next one writes it again.
TEST(PayloadKeys, AnErasureWhoseSyncFailedIsWrittenAgain) {
  MemoryKeyFile::Disk disk;
  base::SeededEntropy entropy(9);
  PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
  ASSERT_TRUE(keys.adopt({}));
  const auto key = keys.create().value();
  ASSERT_TRUE(keys.sync());
  const std::vector<std::uint8_t> durable = disk.bytes;
  keys.erase(key.first);
  disk.fail_at = disk.operations = 0;
  ASSERT_FALSE(keys.sync());
  EXPECT_TRUE(keys.erasure_pending());
  disk.bytes = durable;
  disk.fail_at = -1;
  ASSERT_TRUE(keys.sync());
  EXPECT_FALSE(holds(disk.bytes, key.second));
}

// Fail the n-th operation for every n: once the disk heals, a sync leaves no byte of a key that was given up.
TEST(PayloadKeys, EveryFailureIsRepairedBySync) {
  for (int n = 0; n < 8; ++n) {
    MemoryKeyFile::Disk disk;
    base::SeededEntropy entropy(static_cast<std::uint64_t>(n));
    PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
    ASSERT_TRUE(keys.adopt({}));
    disk.fail_at = n;
    std::vector<std::pair<Slot, Key>> made;
    for (int i = 0; i < 4; ++i) {
      if (auto key = keys.create()) made.push_back(std::move(*key));
    }
    (void)keys.sync();
    for (const auto& [slot, key] : made) keys.erase(slot);
    disk.fail_at = -1;
    ASSERT_TRUE(keys.sync()) << n;
    EXPECT_TRUE(std::all_of(disk.bytes.begin(), disk.bytes.end(), [](std::uint8_t b) { return b == 0; })) << n;
    EXPECT_EQ(keys.create()->first, Slot{0}) << n;
  }
}

}  // namespace
}  // namespace llorch::orchestratord::state_store::payload
