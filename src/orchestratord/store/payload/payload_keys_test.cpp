#include "orchestratord/store/payload/payload_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace llorch::orchestratord::store::payload {
namespace {

// A key file in memory whose n-th operation, and every later one until it heals, fails.
class MemoryKeyFile final : public files::StateFile {
 public:
  struct Disk {
    std::vector<std::uint8_t> bytes, durable;
    std::size_t capacity_bytes = SIZE_MAX;
    std::uint64_t size_bytes = 0;  // what it says; 0: what it has
    int operations = 0;
    int fail_at = -1;
  };
  explicit MemoryKeyFile(Disk& disk) : disk_(disk) {}

  base::Result<std::uint64_t> size() override {
    TRY(operation());
    return disk_.size_bytes != 0 ? disk_.size_bytes : disk_.bytes.size();
  }
  base::Result<> read(std::uint64_t offset, std::span<std::uint8_t> out) override {
    TRY(operation());
    if (offset + out.size() > disk_.bytes.size()) return base::fail(base::ErrorCode::kStoreUnavailable, "short");
    std::memcpy(out.data(), disk_.bytes.data() + offset, out.size());
    return {};
  }
  base::Result<> write(std::uint64_t offset, std::span<const std::uint8_t> bytes) override {
    if (offset + bytes.size() > disk_.capacity_bytes) return base::fail(base::ErrorCode::kStoreUnavailable, "full");
    disk_.bytes.resize(std::max<std::size_t>(disk_.bytes.size(), offset + bytes.size()));
    if (auto ok = operation(); !ok) {  // a torn write
      std::memcpy(disk_.bytes.data() + offset, bytes.data(), bytes.size() / 2);
      return ok;
    }
    std::memcpy(disk_.bytes.data() + offset, bytes.data(), bytes.size());
    return {};
  }
  base::Result<> sync() override {
    TRY(operation());
    disk_.durable = disk_.bytes;
    return {};
  }

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

using Keys = std::vector<std::pair<Slot, Key>>;

Keys all_spare(PayloadKeys& keys) {
  Keys made;
  for (std::size_t i = 0; i < PayloadKeys::kSpareKeys; ++i) made.push_back(keys.create().value());
  return made;
}

TEST(PayloadKeys, AKeyIsOnTheDiskBeforeItIsHandedOut) {
  MemoryKeyFile::Disk disk;
  base::SeededEntropy entropy(7);
  PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
  ASSERT_TRUE(keys.adopt({}));
  ASSERT_TRUE(keys.create());
  disk.fail_at = disk.operations = 0;  // from here on the disk does nothing
  for (std::size_t i = 1; i < PayloadKeys::kSpareKeys; ++i) {
    const auto made = keys.create();
    ASSERT_TRUE(made) << "it had to ask the disk";
    EXPECT_TRUE(holds(disk.bytes, made->second));
  }
  EXPECT_FALSE(keys.create());
}

TEST(PayloadKeys, ACrowdNeedsOneSync) {
  MemoryKeyFile::Disk disk;
  base::SeededEntropy entropy(7);
  PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
  ASSERT_TRUE(keys.adopt({}));
  constexpr std::size_t kCrowd = 5 * PayloadKeys::kSpareKeys;
  ASSERT_TRUE(keys.create(kCrowd));
  disk.fail_at = disk.operations = 0;
  for (std::size_t left = kCrowd - 1; left > 0; --left) ASSERT_TRUE(keys.create(left)) << left;
  EXPECT_FALSE(keys.create());
}

TEST(PayloadKeys, ErasedKeysAreGoneAndTheirSlotsAreUsedAgain) {
  MemoryKeyFile::Disk disk;
  base::SeededEntropy entropy(7);
  PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
  ASSERT_TRUE(keys.adopt({}));
  const Keys made = all_spare(keys);
  EXPECT_EQ(keys.read(made[1].first)->bytes, made[1].second.bytes);
  keys.erase(made[0].first);
  EXPECT_FALSE(holds(disk.bytes, made[0].second));
  EXPECT_TRUE(keys.erasure_pending());
  EXPECT_TRUE(keys.sync());
  EXPECT_FALSE(keys.erasure_pending());
  const auto next = keys.create().value();
  EXPECT_EQ(next.first, made[0].first);
  EXPECT_NE(next.second.bytes, made[0].second.bytes);
  EXPECT_EQ(disk.bytes.size(), PayloadKeys::kSpareKeys * kKeyBytes);
}

// A start overwrites every slot no live job owns.
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
  EXPECT_EQ(after.read(orphan.first).error().code, base::ErrorCode::kCorruptFile);
  EXPECT_EQ(after.read(Slot{1000}).error().code, base::ErrorCode::kCorruptFile);
  EXPECT_EQ(disk.bytes.size() % kKeyBytes, 0u);
  std::size_t zeros = 0;
  for (std::size_t at = 0; at < disk.bytes.size(); at += kKeyBytes) {
    zeros += std::all_of(disk.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                         disk.bytes.begin() + static_cast<std::ptrdiff_t>(at + kKeyBytes),
                         [](std::uint8_t b) { return b == 0; });
  }
  EXPECT_EQ(zeros, PayloadKeys::kSpareKeys - 1);
}

// Rows that name slots far behind the keys cost nothing. Such a slot is nobody else's, until its job has ended.
TEST(PayloadKeys, SlotsPastTheEndAreLostAndNotFree) {
  MemoryKeyFile::Disk disk;
  base::SeededEntropy entropy(8);
  PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
  const Slot near{2}, far{kSlotsMax - 1};
  ASSERT_TRUE(keys.adopt({near, far}));
  EXPECT_EQ(disk.bytes.size(), 0u);
  const Keys made = all_spare(keys);
  EXPECT_EQ(disk.bytes.size(), (PayloadKeys::kSpareKeys + 1) * kKeyBytes);
  for (const auto& [slot, key] : made) EXPECT_NE(slot, near);
  for (const Slot lost : {near, far}) {
    EXPECT_EQ(keys.read(lost).error().code, base::ErrorCode::kCorruptFile);
    keys.erase(lost);
    EXPECT_FALSE(keys.erasure_pending());
  }
  EXPECT_EQ(keys.create().value().first, near);
  EXPECT_LT(disk.bytes.size(), 3 * PayloadKeys::kSpareKeys * kKeyBytes);
}

TEST(PayloadKeys, AFileThatIsTooLargeIsRefused) {
  MemoryKeyFile::Disk disk;
  disk.size_bytes = kKeysBytesMax + 1;
  base::SeededEntropy entropy(8);
  PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
  EXPECT_EQ(keys.adopt({}).error().code, base::ErrorCode::kCorruptFile);
}

// A sync that failed may have dropped what it was to write (files/state_file.h): the next one writes it again.
TEST(PayloadKeys, AnErasureWhoseSyncFailedIsWrittenAgain) {
  MemoryKeyFile::Disk disk;
  base::SeededEntropy entropy(9);
  PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
  ASSERT_TRUE(keys.adopt({}));
  const auto key = keys.create().value();
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

// Keys to come need room that the disk may lack; overwriting needs none, and does not wait for them.
TEST(PayloadKeys, AFullDiskKeepsNoKeyThatWasGivenUp) {
  MemoryKeyFile::Disk disk;
  base::SeededEntropy entropy(10);
  PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
  ASSERT_TRUE(keys.adopt({}));
  const Keys made = all_spare(keys);
  disk.capacity_bytes = disk.bytes.size();
  EXPECT_FALSE(keys.create());
  keys.erase(made[3].first);
  EXPECT_FALSE(holds(disk.bytes, made[3].second));
  EXPECT_FALSE(keys.sync());
  EXPECT_FALSE(holds(disk.durable, made[3].second));
  EXPECT_TRUE(holds(disk.durable, made[4].second));
  EXPECT_FALSE(keys.erasure_pending(made[3].first));
  EXPECT_TRUE(keys.erasure_pending()) << "of the keys to come";
  disk.capacity_bytes = SIZE_MAX;
  const auto next = keys.create();
  ASSERT_TRUE(next);
  EXPECT_TRUE(holds(disk.durable, next->second));
}

// Fail the n-th operation for every n: once the disk heals, a sync leaves no byte of a key that was given up, and a close
// no byte of any.
TEST(PayloadKeys, EveryFailureIsRepairedBySync) {
  for (int n = 0; n < static_cast<int>(PayloadKeys::kSpareKeys) + 16; ++n) {
    MemoryKeyFile::Disk disk;
    base::SeededEntropy entropy(static_cast<std::uint64_t>(n));
    PayloadKeys keys(std::make_unique<MemoryKeyFile>(disk), entropy);
    ASSERT_TRUE(keys.adopt({}));
    disk.fail_at = n;
    Keys made;
    for (int i = 0; i < 4; ++i) {
      if (auto key = keys.create()) made.push_back(std::move(*key));
    }
    for (const auto& [slot, key] : made) {
      keys.erase(slot);
      (void)keys.sync();
    }
    disk.fail_at = -1;
    ASSERT_TRUE(keys.sync()) << n;
    for (const auto& [slot, key] : made) EXPECT_FALSE(holds(disk.bytes, key)) << n;
    EXPECT_TRUE(keys.create()) << n;
    EXPECT_LE(disk.bytes.size(), (PayloadKeys::kSpareKeys + 4) * kKeyBytes) << n << ": a refused key cost a slot";
    ASSERT_TRUE(keys.close());
    const auto left = std::count_if(disk.bytes.begin(), disk.bytes.end(), [](std::uint8_t b) { return b != 0; });
    EXPECT_LE(left, static_cast<std::ptrdiff_t>(kKeyBytes)) << n << ": but for the one in use";
  }
}

}  // namespace
}  // namespace llorch::orchestratord::store::payload
