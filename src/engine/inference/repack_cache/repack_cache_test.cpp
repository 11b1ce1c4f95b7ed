#include "engine/inference/repack_cache/repack_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "engine/inference/repack_cache/repacked_file.h"

namespace llorch::engine::inference::repack_cache {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;
using Weights = std::vector<std::vector<std::byte>>;
constexpr std::size_t kPieceBytes = plan::PackedSource::kPieceBytes;

std::string digest(char digit) { return std::string(64, digit); }

struct RepackCacheTest : ::testing::Test {
  RepackCacheTest() {
    char name[] = "/tmp/llorch-repack-XXXXXX";
    directory = mkdtemp(name);
    for (const std::size_t size : {std::size_t{64}, kPieceBytes + 4096, std::size_t{8}, 2 * kPieceBytes}) {
      weights.emplace_back(size);
      for (std::size_t i = 0; i < size; ++i) weights.back()[i] = static_cast<std::byte>(i * 31 + size + i / 251);
    }
  }
  ~RepackCacheTest() override { fs::remove_all(directory); }

  RepackCache cache(std::uint64_t bytes_max = 1ULL << 40, std::uint64_t free_bytes_min = 0) const {
    return RepackCache({.directory = directory / "packed", .bytes_max = bytes_max, .free_bytes_min = free_bytes_min});
  }
  RepackKey key(char model = 'a') const {
    RepackKey key{.model_digest = digest(model), .build = "0.1+abc", .layout = "r16-2", .tensors = {}};
    for (const auto& weight : weights)
      key.tensors.push_back({.name = "w" + std::to_string(key.tensors.size()),
                             .view = {.dtype = plan::DType::kF32, .rank = 1, .shape = {2}},
                             .packed_bytes = weight.size()});
    return key;
  }
  base::Result<Kept> keep(const RepackCache& into, const RepackKey& of, const std::stop_token& stop = {}) const {
    const std::vector<std::span<const std::byte>> spans(weights.begin(), weights.end());
    return into.keep(of, spans, stop);
  }
  // What reading all pieces of all tensors gives; the first error ends it.
  static base::Result<Weights> read_all(const plan::PackedSource& source, const RepackKey& of) {
    Weights out;
    for (std::size_t t = 0; t < of.tensors.size(); ++t) {
      out.emplace_back(of.tensors[t].packed_bytes);
      for (std::size_t begin = 0; begin < out[t].size(); begin += kPieceBytes) {
        const std::size_t size = std::min(kPieceBytes, out[t].size() - begin);
        TRY(source.read(t, begin / kPieceBytes, std::span(out[t]).subspan(begin, size)));
      }
    }
    return out;
  }
  // Nothing found, an error, or the bytes.
  static std::string outcome(const RepackCache& of, const RepackKey& wanted, const Weights& expected) {
    const auto found = of.find(wanted);
    if (!found) return std::string(found.error().name());
    if (*found == nullptr) return "none";
    const auto read = read_all(**found, wanted);
    if (!read) return std::string(read.error().name());
    return *read == expected ? "same" : "different";
  }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(directory / "packed")) count += entry.path().filename() != "lock";
    return count;
  }

  fs::path directory;
  Weights weights;
};

TEST_F(RepackCacheTest, TheFileThatWasUsedLast) {
  const RepackCache kept = cache();
  EXPECT_EQ(kept.last_used_of(digest('a')), std::nullopt) << "no directory yet";
  RepackKey other = key();
  other.build = "0.2+abc";
  ASSERT_TRUE(keep(kept, key()));
  ASSERT_TRUE(keep(kept, other));
  fs::last_write_time(kept.path_of(key()), fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(kept.last_used_of(digest('a')), kept.path_of(other));
  ASSERT_TRUE(kept.find(key()));
  fs::last_write_time(kept.path_of(other), fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_EQ(kept.last_used_of(digest('a')), kept.path_of(key()));
  EXPECT_EQ(kept.last_used_of(digest('b')), std::nullopt);
}

TEST_F(RepackCacheTest, WhatIsKeptComesBackByteForByte) {
  const RepackCache kept = cache();
  EXPECT_EQ(outcome(kept, key(), weights), "none");
  const auto first = keep(kept, key());
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->bytes, file_bytes(key()));
  EXPECT_EQ(kept.used_bytes(), first->bytes);
  EXPECT_TRUE(keep(kept, key())->already);
  EXPECT_EQ(outcome(kept, key(), weights), "same");
}

TEST_F(RepackCacheTest, AnythingElseInTheKeyIsAnotherFile) {
  const RepackCache kept = cache();
  ASSERT_TRUE(keep(kept, key()));
  RepackKey other = key('b');
  EXPECT_EQ(outcome(kept, other, weights), "none");
  other = key(), other.build += "d";
  EXPECT_EQ(outcome(kept, other, weights), "none");
  other = key(), other.layout = "r8-1";
  EXPECT_EQ(outcome(kept, other, weights), "none");
  other = key(), other.ranks = 2;
  EXPECT_EQ(outcome(kept, other, weights), "none");
  other = key(), std::swap(other.tensors[0].name, other.tensors[1].name);
  EXPECT_EQ(outcome(kept, other, weights), "none");
  // Also where a file has the name of another key.
  fs::copy_file(kept.path_of(key()), kept.path_of(other));
  EXPECT_EQ(outcome(kept, other, weights), "CORRUPT_FILE");
}

TEST_F(RepackCacheTest, OneChangedBitAnywhereIsFound) {
  const RepackCache kept = cache();
  ASSERT_TRUE(keep(kept, key()));
  const fs::path path = kept.path_of(key());
  const std::uint64_t size = fs::file_size(path);
  for (std::uint64_t n = 0; n < 400; ++n) {
    const std::uint64_t at = n < 200 ? n * 3 : size - 1 - (n - 200) * (size / 250);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char before = static_cast<char>(file.get());
    const auto put = [&](char c) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(c).flush();
    };
    put(static_cast<char>(before ^ (1 << n % 8)));
    EXPECT_EQ(outcome(kept, key(), weights), "CORRUPT_FILE") << "byte " << at;
    put(before);
  }
  EXPECT_EQ(outcome(kept, key(), weights), "same");
}

TEST_F(RepackCacheTest, AFileCutShortOrLongerIsFound) {
  const RepackCache kept = cache();
  ASSERT_TRUE(keep(kept, key()));
  const fs::path path = kept.path_of(key());
  const std::uint64_t size = fs::file_size(path);
  for (const std::uint64_t cut : {size + 1, size - 1, size / 2, std::uint64_t{1}, std::uint64_t{0}}) {
    fs::resize_file(path, cut);
    EXPECT_EQ(outcome(kept, key(), weights), "CORRUPT_FILE") << cut;
  }
  kept.discard(key());
  EXPECT_EQ(outcome(kept, key(), weights), "none");
}

TEST_F(RepackCacheTest, TheLeastRecentlyUsedMakesRoom) {
  const std::uint64_t each = file_bytes(key());
  const RepackCache kept = cache(2 * each + each / 2);
  ASSERT_TRUE(keep(kept, key('a')));
  ASSERT_TRUE(keep(kept, key('b')));
  const auto age = [&](char model, int hours) {
    fs::last_write_time(kept.path_of(key(model)), fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  age('a', 3), age('b', 2);
  EXPECT_EQ(outcome(kept, key('a'), weights), "same");  // used now
  ASSERT_TRUE(keep(kept, key('c')));
  EXPECT_EQ(outcome(kept, key('b'), weights), "none");
  EXPECT_EQ(outcome(kept, key('a'), weights), "same");
  EXPECT_EQ(kept.used_bytes(), 2 * each);
  age('a', 3);
  EXPECT_EQ(kept.free_up(1), each);
  EXPECT_EQ(outcome(kept, key('a'), weights), "none");
  kept.forget_model(digest('c'));
  EXPECT_EQ(files(), 0u);
}

TEST_F(RepackCacheTest, WhereThereIsNoRoomNothingStays) {
  const std::uint64_t each = file_bytes(key());
  const auto small = keep(cache(each - 1), key());
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, ErrorCode::kInsufficientDisk);
  const auto full = keep(cache(each, 1ULL << 60), key());
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kInsufficientDisk);
  EXPECT_NE(full.error().message.find("would have less than"), std::string::npos) << full.error().message;
  EXPECT_EQ(files(), 0u);
  EXPECT_TRUE(keep(cache(each), key()));
}

// A disk that is full in the middle: the limit of a file's size plays it.
TEST_F(RepackCacheTest, AWriteThatFailsLeavesNothing) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = kPieceBytes;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto failed = keep(cache(), key());
  ::setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(failed);
  EXPECT_EQ(files(), 0u);
}

TEST_F(RepackCacheTest, AWriterThatIsStoppedLeavesNothing) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(keep(cache(), key(), stop.get_token()).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(files(), 0u);
}

TEST_F(RepackCacheTest, OneWritesAtATimeAndWhatAKilledOneLeftGoes) {
  const RepackCache kept = cache();
  ASSERT_TRUE(keep(kept, key('a')));
  std::ofstream(directory / "packed" / "x.partial") << "half";
  const int other = ::open((directory / "packed" / "lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  EXPECT_EQ(keep(kept, key('b')).error().code, ErrorCode::kServerBusy);
  kept.tidy();
  EXPECT_EQ(files(), 2u);  // the other one's half is in work
  ::close(other);
  kept.tidy();
  EXPECT_EQ(files(), 1u);
  EXPECT_TRUE(keep(kept, key('b')));
}

TEST_F(RepackCacheTest, TheDirectoryIsOurs) {
  ASSERT_TRUE(keep(cache(), key()));
  EXPECT_EQ(fs::status(directory / "packed").permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(cache().path_of(key())).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

}  // namespace
}  // namespace llorch::engine::inference::repack_cache
