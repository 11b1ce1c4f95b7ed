#include "engine/io/stored_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "engine/io/gguf.h"
#include "engine/io/gguf_writer.h"
#include "engine/io/huggingface/safetensors.h"
#include "engine/io/model_digest.h"
#include "engine/io/model_files.h"
#include "engine/io/model_layout.h"

namespace llorch::engine::io {
namespace {

using base::ErrorCode;
using plan::DType;
using ::testing::HasSubstr;

// A disk that does as the test says.
class Faulty final : public FileHandle {
 public:
  using ReadAt = std::function<ssize_t(std::uint64_t, std::span<std::byte>)>;
  explicit Faulty(ReadAt read_at) : read_at_(std::move(read_at)) {}
  ssize_t read_at(std::uint64_t offset, std::span<std::byte> out) const override { return read_at_(offset, out); }
  bool is_unchanged() const override { return is_unchanged_(); }
  std::function<bool()> is_unchanged_ = [] { return true; };

 private:
  ReadAt read_at_;
};

ssize_t copy_of(const std::vector<std::byte>& bytes, std::uint64_t offset, std::span<std::byte> out) {
  const std::size_t from = std::min<std::size_t>(offset, bytes.size()),
                    count = std::min(bytes.size() - from, out.size());
  if (count != 0) std::memcpy(out.data(), bytes.data() + from, count);
  return static_cast<ssize_t>(count);
}

std::unique_ptr<StoredFile> faulty(Faulty::ReadAt read_at, std::uint64_t size) {
  return std::make_unique<StoredFile>("the file", std::make_unique<Faulty>(std::move(read_at)), size);
}

std::vector<std::byte> counting_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

// One whose header takes several reads.
std::vector<std::byte> gguf_bytes(std::size_t tokens_count = 20'000) {
  GgufWriter writer;
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < tokens_count; ++i) tokens.push_back(fmt::format("token {}", i));
  writer.put_strings("tokens", tokens);
  writer.put("name", std::string_view("x"));
  const std::vector<float> weights(64, 1.5F);
  writer.add_tensor({.name = "w", .dtype = DType::kF32, .dims = {64}}, std::as_bytes(std::span(weights)));
  return writer.to_bytes().value();
}

std::vector<std::byte> safetensors_bytes() {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::vector<std::byte> out(8 + header.size() + 8);
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, sizeof length);
  std::memcpy(out.data() + 8, header.data(), header.size());
  return out;
}

TEST(StoredFile, ReadsOnAfterShortAndInterruptedReads) {
  const auto bytes = counting_bytes(1000);
  int calls = 0;
  const auto file = faulty(
      [&](std::uint64_t offset, std::span<std::byte> out) -> ssize_t {
        if (++calls % 3 == 0) {
          errno = EINTR;
          return -1;
        }
        return copy_of(bytes, offset, out.first(std::min<std::size_t>(out.size(), 7)));
      },
      bytes.size());
  std::vector<std::byte> read(700);
  ASSERT_TRUE(file->read(123, read));
  EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes.begin() + 123));
  EXPECT_GT(calls, 100);
  EXPECT_EQ(FileRange(*file, 900, 100).read_all().value(), std::vector(bytes.begin() + 900, bytes.end()));
}

TEST(StoredFile, SaysWhenTheDiskFailsAndWhenTheFileHasBecomeShorter) {
  std::vector<std::byte> read(10);
  const auto broken = faulty(
      [](std::uint64_t, std::span<std::byte>) -> ssize_t {
        errno = EIO;
        return -1;
      },
      100);
  const auto failed = broken->read(0, read);
  EXPECT_EQ(failed.error().code, ErrorCode::kIoError);
  EXPECT_THAT(failed.error().message, HasSubstr("cannot read the file: Input/output error"));
  const auto cut = faulty([bytes = counting_bytes(95)](
                              std::uint64_t offset, std::span<std::byte> out) { return copy_of(bytes, offset, out); },
                          100);
  ASSERT_TRUE(cut->read(85, read));
  const auto ended = cut->read(90, read);
  EXPECT_EQ(ended.error().code, ErrorCode::kIoError);
  EXPECT_THAT(ended.error().message, HasSubstr("the file ends at byte 95, it had 100 when it was opened"));
}

// Of a file that grows while it is read only what was there counts.
TEST(StoredFile, DoesNotWaitForAFileThatGrows) {
  const auto growing = [](std::uint64_t, std::span<std::byte> out) -> ssize_t {
    std::ranges::fill(out, std::byte{'a'});
    return static_cast<ssize_t>(out.size());
  };
  EXPECT_EQ(faulty(growing, 4)->read_text(10).value(), "aaaa");
  EXPECT_EQ(faulty(growing, 11)->read_text(10).error().code, ErrorCode::kIoError);
}

// Whichever read of a header fails: an error, and the n-th after the last one is none.
TEST(StoredFile, EveryReadOfAHeaderMayFail) {
  const auto fails_at = [](const std::vector<std::byte>& bytes, int n) {
    auto count = std::make_shared<int>(0);
    return faulty(
        [&bytes, n, count](std::uint64_t offset, std::span<std::byte> out) -> ssize_t {
          if (++*count == n) {
            errno = EIO;
            return -1;
          }
          return copy_of(bytes, offset, out.first(std::min<std::size_t>(out.size(), 50'000)));
        },
        bytes.size());
  };
  const auto gguf = gguf_bytes(), tensors = safetensors_bytes();
  int gguf_reads = 0, safetensors_reads = 0;
  for (;; ++gguf_reads) {
    const auto file = GgufFile::read(fails_at(gguf, gguf_reads + 1));
    if (file) break;
    ASSERT_EQ(file.error().code, ErrorCode::kIoError) << file.error().message;
  }
  for (;; ++safetensors_reads) {
    const auto file = SafetensorsFile::read(fails_at(tensors, safetensors_reads + 1));
    if (file) break;
    ASSERT_EQ(file.error().code, ErrorCode::kIoError) << file.error().message;
  }
  EXPECT_GE(gguf_reads, 8);  // 64 KiB, and then more of it
  EXPECT_EQ(safetensors_reads, 2);
}

// A writer beside the reader: every read sees other bytes, and ends anywhere.
TEST(StoredFile, AHeaderThatChangesWhileItIsReadIsAFileOrAnError) {
  const auto gguf = gguf_bytes(9'000), tensors = safetensors_bytes();
  std::mt19937 random(20'26);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 300; ++round) {
    const std::vector<std::byte>& bytes = round % 3 == 0 ? tensors : gguf;
    const auto changing = [&](std::uint64_t offset, std::span<std::byte> out) -> ssize_t {
      const ssize_t got = copy_of(bytes, offset, out);
      if (random() % 4 == 0) return got / 2;
      for (unsigned n = random() % 3; n > 0 && got > 0; --n)
        out[random() % static_cast<unsigned>(std::min<ssize_t>(got, 4096))] = static_cast<std::byte>(random());
      return got;
    };
    const auto count = [&](const auto& file) {
      ++(file ? accepted : refused);
      if (!file) return;
      for (const auto& tensor : file->tensors()) {
        const auto data = tensor.data.read_all();
        ASSERT_TRUE(data || data.error().code == ErrorCode::kIoError);
      }
    };
    if (round % 3 == 0) {
      count(SafetensorsFile::read(faulty(changing, bytes.size())));
    } else {
      count(GgufFile::read(faulty(changing, bytes.size())));
    }
  }
  EXPECT_GT(accepted, 20);
  EXPECT_GT(refused, 20);
}

TEST(StoredFile, AHeaderIsReadInPiecesAndNoFurtherThanItsLimit) {
  const auto bytes = gguf_bytes();
  ASSERT_GT(bytes.size(), 300'000U);
  std::uint64_t furthest = 0;
  const auto watched = [&](std::uint64_t size) {
    furthest = 0;
    return faulty(
        [&](std::uint64_t offset, std::span<std::byte> out) {
          furthest = std::max(furthest, offset + out.size());
          return copy_of(bytes, offset, out);
        },
        size);
  };
  const auto whole = GgufFile::read(watched(bytes.size()));
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->string_array("tokens").value().back(), "token 19999");
  const auto refused = GgufFile::read(watched(bytes.size()), {.header_bytes_max = 100'000});
  EXPECT_EQ(refused.error().code, ErrorCode::kCorruptFile);
  EXPECT_THAT(refused.error().message, HasSubstr("more than 100000 are no header"));
  EXPECT_LE(furthest, 100'000U);
}

// What a header claims is held against the file before memory is taken for it.
TEST(StoredFile, AHeaderOf2To60BytesTakesNoMemory) {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 60;
  for (const std::uint64_t claimed : {kHuge, kHuge - 100}) {
    std::vector<std::byte> bytes(8);
    std::memcpy(bytes.data(), &claimed, sizeof claimed);
    const auto file = SafetensorsFile::read(
        faulty([&](std::uint64_t offset, std::span<std::byte> out) { return copy_of(bytes, offset, out); }, kHuge));
    EXPECT_EQ(file.error().code, ErrorCode::kCorruptFile);
  }
  std::string gguf = "GGUF";
  const auto put = [&](auto value) { gguf.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(std::uint32_t{3});
  put(std::uint64_t{0});
  put(std::uint64_t{1});
  put(std::uint64_t{1});
  gguf += 'k';
  put(static_cast<std::uint32_t>(GgufType::kArray));
  put(static_cast<std::uint32_t>(GgufType::kU8));
  put(kHuge / 2);
  const auto view = std::as_bytes(std::span(gguf));
  const std::vector<std::byte> bytes(view.begin(), view.end());
  std::uint64_t furthest = 0;
  const auto file = GgufFile::read(faulty(
      [&](std::uint64_t offset, std::span<std::byte> out) -> ssize_t {
        furthest = std::max(furthest, offset + out.size());
        std::ranges::fill(out, std::byte{});
        copy_of(bytes, offset, out);
        return static_cast<ssize_t>(out.size());
      },
      kHuge));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kCorruptFile);
  EXPECT_THAT(file.error().message, HasSubstr("of the value of 'k'"));
  EXPECT_LE(furthest, 1U << 20);
}

// Every byte of a header may be right and yet of two states of the file.
TEST(StoredFile, AHeaderOfAFileThatChangedIsRefused) {
  const auto gguf = gguf_bytes(10), tensors = safetensors_bytes();
  const auto changed = [](const std::vector<std::byte>& bytes) {
    auto handle = std::make_unique<Faulty>(
        [&bytes](std::uint64_t offset, std::span<std::byte> out) { return copy_of(bytes, offset, out); });
    handle->is_unchanged_ = [] { return false; };
    return std::make_unique<StoredFile>("the file", std::move(handle), bytes.size());
  };
  EXPECT_EQ(GgufFile::read(changed(gguf)).error().code, ErrorCode::kIoError);
  EXPECT_EQ(SafetensorsFile::read(changed(tensors)).error().code, ErrorCode::kIoError);
  EXPECT_EQ(changed(gguf)->read_text(1 << 20).error().code, ErrorCode::kIoError);
}

class OddFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "llorch-odd-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void put(const std::string& name, std::string_view text) const {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  // Every way there is to read a model, of one that is named by `path`.
  static void nothing_reads(const std::filesystem::path& path) {
    EXPECT_EQ(StoredFile::open(path).error().code, ErrorCode::kIoError) << path;
    EXPECT_EQ(ModelFiles::open(path).error().code, ErrorCode::kIoError) << path;
    EXPECT_EQ(model_digest(path).error().code, ErrorCode::kIoError) << path;
  }

  std::filesystem::path directory_;
};

// No writer ever opens the FIFO: who waits for one waits for ever.
TEST_F(OddFiles, AreRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo((directory_ / "fifo.gguf").c_str(), 0600), 0);
  nothing_reads(directory_ / "fifo.gguf");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = directory_ / "socket.gguf";
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  nothing_reads(path);
  ::close(socket);
  std::filesystem::create_symlink("loop.gguf", directory_ / "loop.gguf");
  nothing_reads(directory_ / "loop.gguf");
  std::filesystem::create_symlink("/dev/zero", directory_ / "device.gguf");
  nothing_reads(directory_ / "device.gguf");
}

// The files beside the weights: each may be anything.
TEST_F(OddFiles, BesideWeightsAreErrorsAndNotAbsent) {
  const auto weights = safetensors_bytes();
  put("model.safetensors", {reinterpret_cast<const char*>(weights.data()), weights.size()});
  put("config.json", "{}");
  ASSERT_TRUE(ModelFiles::open(directory_));
  const std::string digest = model_digest(directory_).value();
  for (const auto* name : {"preprocessor_config.json", "special_tokens_map.json", "tokenizer.json"}) {
    ASSERT_EQ(::mkfifo((directory_ / name).c_str(), 0600), 0);
    EXPECT_EQ(model_digest(directory_).error().code, ErrorCode::kIoError) << name;
    std::filesystem::remove(directory_ / name);
    std::filesystem::create_symlink("nowhere", directory_ / name);
    EXPECT_EQ(model_digest(directory_).error().code, ErrorCode::kIoError) << name;
    std::filesystem::remove(directory_ / name);
  }
  std::filesystem::create_symlink("nowhere", directory_ / "processor_config.json");
  EXPECT_EQ(ModelFiles::open(directory_).error().code, ErrorCode::kIoError);
  std::filesystem::remove(directory_ / "processor_config.json");
  put("config.json", "");
  std::filesystem::resize_file(directory_ / "config.json", std::uintmax_t{1} << 42);  // a hole
  EXPECT_EQ(ModelFiles::open(directory_).error().code, ErrorCode::kIoError);
  put("config.json", "{}");
  EXPECT_EQ(model_digest(directory_).value(), digest);
}

TEST_F(OddFiles, AFileWithHolesIsNotHashedForDays) {
  put("m.gguf", "GGUF");
  std::error_code ec;
  std::filesystem::resize_file(directory_ / "m.gguf", kModelBytesMax + 1, ec);
  const bool in_parts = bool(ec);
  if (in_parts) {  // the file system has no such large files: as large as it goes, in parts
    for (int part = 1; part <= 4; ++part) {
      const auto path = directory_ / fmt::format("m-0000{}-of-00004.gguf", part);
      put(path.filename(), "GGUF");
      std::filesystem::resize_file(path, kModelBytesMax / 4 + 1, ec);
      if (ec) GTEST_SKIP() << "files have at most " << std::filesystem::file_size(path) << " bytes here";
    }
  }
  const auto digest = model_digest(directory_ / (in_parts ? "m-00001-of-00004.gguf" : "m.gguf"));
  ASSERT_FALSE(digest);
  EXPECT_EQ(digest.error().code, ErrorCode::kCorruptFile);
  EXPECT_THAT(digest.error().message, HasSubstr("the limit of a model is 17592186044416"));
}

TEST_F(OddFiles, EveryKindOfChangeIsSeen) {
  const std::function<void()> changes[] = {[&] { put("m", "other"); },
                                           [&] { std::filesystem::resize_file(directory_ / "m", 2); },
                                           [&] { std::ofstream(directory_ / "m", std::ios::app) << "x"; },
                                           [&] { std::filesystem::remove(directory_ / "m"); },
                                           [&] {
                                             put("n", "first");
                                             std::filesystem::rename(directory_ / "n", directory_ / "m");
                                           }};
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    put("m", "first");
    ASSERT_TRUE(model_stamp(directory_ / "m"));  // waits until a change has another time
    const auto file = StoredFile::open(directory_ / "m").value();
    EXPECT_TRUE(file->check_unchanged());
    changes[i]();
    EXPECT_EQ(file->check_unchanged().error().code, ErrorCode::kIoError) << i;
  }
}

TEST_F(OddFiles, AModelHasABoundedNumberOfFiles) {
  GgufWriter writer;
  writer.put("split.no", std::uint16_t{0});
  writer.put("split.count", std::uint32_t{1001});
  ASSERT_TRUE(writer.write(directory_ / "m-00001-of-01001.gguf"));
  const auto files = ModelFiles::open(directory_ / "m-00001-of-01001.gguf");
  EXPECT_EQ(files.error().code, ErrorCode::kCorruptFile);
  EXPECT_THAT(files.error().message, HasSubstr("1001 files, the limit is 1000"));
  EXPECT_EQ(model_digest(directory_ / "m-00001-of-01001.gguf").error().code, ErrorCode::kCorruptFile);
}

}  // namespace
}  // namespace llorch::engine::io
