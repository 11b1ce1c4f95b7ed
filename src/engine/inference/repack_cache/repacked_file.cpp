#include "engine/inference/repack_cache/repacked_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/join.h"
#include "engine/plan/dtype.h"

namespace llorch::engine::inference::repack_cache {

using base::ErrorCode;
using base::Result;
using plan::PackedSource;

namespace {

constexpr std::size_t kPieceBytes = PackedSource::kPieceBytes;
// Written between two syncs: what waits for the disk stays small, and so does the time until `stop` is seen.
constexpr std::uint64_t kSyncBytes = 32u << 20;

std::size_t pieces_of(std::uint64_t bytes) { return static_cast<std::size_t>((bytes + kPieceBytes - 1) / kPieceBytes); }

std::size_t pieces_count(const RepackKey& key) {
  std::size_t count = 0;
  for (const RepackKey::Tensor& tensor : key.tensors) count += pieces_of(tensor.packed_bytes);
  return count;
}

Result<> read_exactly(int fd, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::fail(ErrorCode::kIoError, fmt::format("cannot read packed weights: {}", strerror(errno)));
    if (got == 0) return base::fail(ErrorCode::kCorruptFile, "the file of packed weights is cut short");
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<> write_exactly(int fd, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      return base::fail(errno == ENOSPC || errno == EDQUOT ? ErrorCode::kInsufficientDisk : ErrorCode::kIoError,
                        fmt::format("cannot write packed weights: {}", strerror(errno)));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return {};
}

class RepackedFile final : public PackedSource {
 public:
  RepackedFile(base::Descriptor fd, const RepackKey& key, std::vector<std::uint64_t> sums, std::uint64_t begin)
      : fd_(std::move(fd)), sums_(std::move(sums)) {
    std::size_t piece = 0;
    for (const RepackKey::Tensor& tensor : key.tensors) {
      tensors_.push_back({.begin = begin, .first_piece = piece});
      begin += tensor.packed_bytes;
      piece += pieces_of(tensor.packed_bytes);
    }
  }

  Result<> read(std::size_t tensor, std::size_t piece, std::span<std::byte> out) const override {
    const Place& place = tensors_.at(tensor);
    TRY(read_exactly(fd_.get(), place.begin + std::uint64_t{piece} * kPieceBytes, out));
    if (checksum(out) == sums_.at(place.first_piece + piece)) return {};
    return base::fail(ErrorCode::kCorruptFile, "packed weights differ from their checksum");
  }

 private:
  struct Place {
    std::uint64_t begin = 0;
    std::size_t first_piece = 0;
  };
  base::Descriptor fd_;
  std::vector<std::uint64_t> sums_;
  std::vector<Place> tensors_;
};

// The checksums of the pieces and, last, that of the head and of them.
std::uint64_t sum_of_head(std::string_view head, std::span<const std::uint64_t> sums) {
  const std::array<std::uint64_t, 2> both{checksum(std::as_bytes(std::span(head))), checksum(std::as_bytes(sums))};
  return checksum(std::as_bytes(std::span(both)));
}

}  // namespace

// Eight lanes of FNV-1a over words instead of bytes: each step is a bijection of the lane, and eight lanes hide its latency.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kPrime = 0x00000100000001b3, kBasis = 0xcbf29ce484222325;
  constexpr std::size_t kLanes = 8;
  std::array<std::uint64_t, kLanes> lanes;
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = kBasis + i;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= sizeof lanes; left -= sizeof lanes, at += sizeof lanes) {
    std::array<std::uint64_t, kLanes> words;
    std::memcpy(words.data(), at, sizeof words);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = (lanes[i] ^ words[i]) * kPrime;
  }
  std::uint64_t sum = kBasis ^ bytes.size();
  const auto fold = [&sum](std::uint64_t word) {
    sum = (sum ^ word) * kPrime;
    sum ^= sum >> 32;
  };
  for (const std::uint64_t lane : lanes) fold(lane);
  for (; left > 0; --left, ++at) fold(static_cast<std::uint64_t>(*at));
  return sum;
}

std::string head_of(const RepackKey& key) {
  std::string head = fmt::format("llorch packed weights 1\nmodel {}\nbuild {}\nlayout {}\nrank {} of {}\npieces {}\n",
                                 key.model_digest, key.build, key.layout, key.rank, key.ranks, kPieceBytes);
  for (const RepackKey::Tensor& tensor : key.tensors) {
    const std::span<const std::uint32_t> shape(tensor.view.shape.data(), tensor.view.rank);
    head += fmt::format("{} {} {} {}\n", plan::dtype_info(tensor.view.dtype).name, base::join(shape, "x"),
                        tensor.packed_bytes, tensor.name);
  }
  return head + "\n";
}

std::uint64_t file_bytes(const RepackKey& key) {
  return head_of(key).size() + (pieces_count(key) + 1) * sizeof(std::uint64_t) + key.packed_bytes();
}

Result<std::unique_ptr<PackedSource>> open_repacked(const std::filesystem::path& path, const RepackKey& key) {
  base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const int fd = file.get();
  if (fd < 0) return base::fail(base::io_error("cannot open", path, errno));
  const std::string head = head_of(key);
  std::vector<std::uint64_t> sums(pieces_count(key) + 1);
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return base::fail(base::io_error("cannot stat", path, errno));
  const auto corrupt = [&](std::string_view what) {
    return base::fail(ErrorCode::kCorruptFile, fmt::format("{}: {}", path.filename().string(), what));
  };
  if (static_cast<std::uint64_t>(st.st_size) != file_bytes(key)) return corrupt("has another size than was written");
  std::string found(head.size(), '\0');
  TRY(read_exactly(fd, 0, std::as_writable_bytes(std::span(found))));
  if (found != head) return corrupt("is of another model, build or layout");
  TRY(read_exactly(fd, head.size(), std::as_writable_bytes(std::span(sums))));
  const std::uint64_t begin = head.size() + sums.size() * sizeof(std::uint64_t);
  const std::uint64_t expected = sums.back();
  sums.pop_back();
  if (sum_of_head(head, sums) != expected) return corrupt("has a damaged head");
  return std::make_unique<RepackedFile>(std::move(file), key, std::move(sums), begin);
}

Result<> write_repacked(int fd, const RepackKey& key, std::span<const std::span<const std::byte>> weights,
                        const std::stop_token& stop) {
  const std::string head = head_of(key);
  if (const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(file_bytes(key))); error != 0) {
    return base::fail(error == ENOSPC || error == EDQUOT ? ErrorCode::kInsufficientDisk : ErrorCode::kIoError,
                      fmt::format("no room for packed weights: {}", strerror(error)));
  }
  std::vector<std::uint64_t> sums;
  std::uint64_t at = head.size() + (pieces_count(key) + 1) * sizeof(std::uint64_t), not_synced = 0;
  for (const std::span<const std::byte> weight : weights) {
    for (std::size_t begin = 0; begin < weight.size(); begin += kPieceBytes) {
      if (stop.stop_requested()) return base::fail(ErrorCode::kCancelled, "the worker stops");
      const auto piece = weight.subspan(begin, std::min(kPieceBytes, weight.size() - begin));
      sums.push_back(checksum(piece));
      TRY(write_exactly(fd, at, piece));
      at += piece.size();
      not_synced += piece.size();
      if (not_synced < kSyncBytes) continue;
      if (::fdatasync(fd) != 0) return base::fail(ErrorCode::kIoError, "cannot sync packed weights");
      not_synced = 0;
    }
  }
  sums.push_back(sum_of_head(head, sums));
  TRY(write_exactly(fd, 0, std::as_bytes(std::span(head))));
  TRY(write_exactly(fd, head.size(), std::as_bytes(std::span(sums))));
  if (::fsync(fd) != 0) return base::fail(ErrorCode::kIoError, "cannot sync packed weights");
  return {};
}

}  // namespace llorch::engine::inference::repack_cache
