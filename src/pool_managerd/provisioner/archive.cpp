#include "pool_managerd/provisioner/archive.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>

#include "base/file.h"

namespace llorch::pool_managerd::provisioner {
namespace {

using base::ErrorCode;

constexpr std::size_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20, kMemberBytes = 46, kLocalBytes = 30;
constexpr std::size_t kCommentBytesMax = 65'535;
constexpr std::size_t kDirectoryBytesMax = 16 << 20;  // read as a whole, and its names are copied
constexpr std::size_t kMembersMax = 100'000;
constexpr std::size_t kBufferBytes = 256 << 10;
constexpr std::uint32_t kWide = 0xffff'ffff;  // the value is in the ZIP64 fields

tl::unexpected<base::Error> corrupt(const char* what) {
  return base::fail(ErrorCode::kCorruptFile, std::string("this is no ZIP file that can be read: ") + what);
}

std::uint64_t little_endian(std::string_view bytes, std::size_t offset, std::size_t count) {
  std::uint64_t out = 0;
  for (std::size_t i = count; i-- > 0;) out = out << 8 | static_cast<unsigned char>(bytes[offset + i]);
  return out;
}

// Closes itself.
class File {
 public:
  static base::Result<File> open(const std::filesystem::path& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return base::fail(base::io_error("cannot open", path, errno));
    return File(fd, path);
  }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  File& operator=(File&&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }

  std::uint64_t size() const { return static_cast<std::uint64_t>(std::max<off_t>(0, ::lseek(fd_, 0, SEEK_END))); }
  base::Result<std::string> read(std::uint64_t offset, std::size_t count) const {
    std::string out(count, '\0');
    std::size_t done = 0;
    while (done < count) {
      const ssize_t got = ::pread(fd_, out.data() + done, count - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return base::fail(base::io_error("cannot read", path_, errno));
      if (got == 0) return corrupt("it ends too early");
      done += static_cast<std::size_t>(got);
    }
    return out;
  }
  base::Result<> append(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return base::fail(base::io_error("cannot write", path_, errno));
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
  }

 private:
  File(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::filesystem::path path_;
};

struct Directory {
  std::uint64_t offset = 0, bytes = 0, count = 0;
};

base::Result<Directory> find_directory(const File& file) {
  const std::uint64_t size = file.size();
  const std::size_t tail_bytes =
      static_cast<std::size_t>(std::min<std::uint64_t>(size, kEndBytes + kCommentBytesMax + kLocator64Bytes));
  const std::string tail = TRY(file.read(size - tail_bytes, tail_bytes));
  const std::size_t end = tail.rfind(std::string_view("PK\5\6", 4));
  if (end == std::string::npos || tail.size() - end < kEndBytes) return corrupt("it has no end record");
  Directory out{.offset = little_endian(tail, end + 16, 4),
                .bytes = little_endian(tail, end + 12, 4),
                .count = little_endian(tail, end + 10, 2)};
  const bool is_wide = out.offset == kWide || out.bytes == kWide || out.count == 0xffff;
  if (is_wide && end >= kLocator64Bytes && tail.compare(end - kLocator64Bytes, 4, "PK\6\7", 4) == 0) {
    const std::uint64_t at = little_endian(tail, end - kLocator64Bytes + 8, 8);
    if (at > size || size - at < kEnd64Bytes) return corrupt("its ZIP64 record is out of bounds");
    const std::string record = TRY(file.read(at, kEnd64Bytes));
    if (!record.starts_with(std::string_view("PK\6\6", 4))) return corrupt("it has no ZIP64 record");
    out = {little_endian(record, 48, 8), little_endian(record, 40, 8), little_endian(record, 32, 8)};
  }
  if (out.bytes > kDirectoryBytesMax || out.count > kMembersMax) return corrupt("it has too many members");
  if (out.offset > size || size - out.offset < out.bytes) return corrupt("its directory is out of bounds");
  return out;
}

// Replaces the fields that are in the ZIP64 extra field instead.
base::Result<> read_wide(std::string_view extra, ArchiveMember& member) {
  while (extra.size() >= 4) {
    const std::size_t bytes = static_cast<std::size_t>(little_endian(extra, 2, 2));
    if (bytes > extra.size() - 4) return corrupt("an extra field is out of bounds");
    if (little_endian(extra, 0, 2) == 1) {
      std::string_view field = extra.substr(4, bytes);
      for (std::int64_t* value : {&member.size_bytes, &member.packed_bytes, &member.header_offset}) {
        if (*value != kWide) continue;
        if (field.size() < 8) return corrupt("a ZIP64 field is missing");
        *value = static_cast<std::int64_t>(little_endian(field, 0, 8));
        field.remove_prefix(8);
      }
    }
    extra.remove_prefix(4 + bytes);
  }
  return {};
}

// Inflates what it is fed into a file.
class Unpacker {
 public:
  Unpacker(const File& target, const ArchiveMember& member)
      : target_(target), member_(member), out_(kBufferBytes, '\0') {
    if (member.is_deflated) is_open_ = inflateInit2(&stream_, -MAX_WBITS) == Z_OK;
  }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;
  ~Unpacker() {
    if (is_open_) inflateEnd(&stream_);
  }

  base::Result<> feed(std::string_view packed) {
    if (!member_.is_deflated) return put(packed);
    if (!is_open_) return base::fail(ErrorCode::kIoError, "zlib does not start");
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));  // zlib only reads it
    stream_.avail_in = static_cast<uInt>(packed.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream_.avail_out = static_cast<uInt>(out_.size());
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) return corrupt("a member cannot be inflated");
      TRY(put(std::string_view(out_).substr(0, out_.size() - stream_.avail_out)));
      if (code == Z_STREAM_END) return {};
    } while (stream_.avail_out == 0);
    return {};
  }
  base::Result<> finish() const {
    if (done_ != member_.size_bytes) return corrupt("a member is shorter than it says");
    if (crc_ != member_.crc32) return corrupt("a member has another checksum than it says");
    return {};
  }

 private:
  base::Result<> put(std::string_view bytes) {
    if (static_cast<std::int64_t>(bytes.size()) > member_.size_bytes - done_) {
      return corrupt("a member is longer than it says");
    }
    done_ += static_cast<std::int64_t>(bytes.size());
    crc_ = static_cast<std::uint32_t>(
        ::crc32(crc_, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
    return target_.append(bytes);
  }

  const File& target_;
  const ArchiveMember& member_;
  std::string out_;
  z_stream stream_{};
  bool is_open_ = false;
  std::int64_t done_ = 0;
  std::uint32_t crc_ = 0;
};

base::Result<> copy_member(const File& source, const ArchiveMember& member, const File& target, const StopFlag& stop) {
  const std::string local = TRY(source.read(static_cast<std::uint64_t>(member.header_offset), kLocalBytes));
  if (!local.starts_with(std::string_view("PK\3\4", 4))) return corrupt("a member is not where it should be");
  auto at = static_cast<std::uint64_t>(member.header_offset) + kLocalBytes + little_endian(local, 26, 2) +
            little_endian(local, 28, 2);
  Unpacker unpacker(target, member);
  for (std::int64_t left = member.packed_bytes; left > 0;) {
    if (stop.requested()) return base::fail(ErrorCode::kCancelled, "the pull was cancelled");
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(left, kBufferBytes));
    TRY(unpacker.feed(TRY(source.read(at, count))));
    at += count;
    left -= static_cast<std::int64_t>(count);
  }
  return unpacker.finish();
}

}  // namespace

base::Result<std::vector<ArchiveMember>> archive_members(const std::filesystem::path& archive) {
  const File file = TRY(File::open(archive, O_RDONLY));
  const Directory where = TRY(find_directory(file));
  const std::string directory = TRY(file.read(where.offset, static_cast<std::size_t>(where.bytes)));
  std::vector<ArchiveMember> out;
  std::string_view rest = directory;
  for (std::uint64_t i = 0; i < where.count; ++i) {
    if (rest.size() < kMemberBytes || !rest.starts_with(std::string_view("PK\1\2", 4)))
      return corrupt("its directory ends early");
    const std::uint64_t flags = little_endian(rest, 8, 2), method = little_endian(rest, 10, 2);
    const auto name_bytes = static_cast<std::size_t>(little_endian(rest, 28, 2));
    const auto extra_bytes = static_cast<std::size_t>(little_endian(rest, 30, 2));
    const auto comment_bytes = static_cast<std::size_t>(little_endian(rest, 32, 2));
    if (rest.size() - kMemberBytes < name_bytes + extra_bytes + comment_bytes)
      return corrupt("a name is out of bounds");
    ArchiveMember member{.name = std::string(rest.substr(kMemberBytes, name_bytes)),
                         .size_bytes = static_cast<std::int64_t>(little_endian(rest, 24, 4)),
                         .packed_bytes = static_cast<std::int64_t>(little_endian(rest, 20, 4)),
                         .header_offset = static_cast<std::int64_t>(little_endian(rest, 42, 4)),
                         .crc32 = static_cast<std::uint32_t>(little_endian(rest, 16, 4)),
                         .is_deflated = method == 8};
    TRY(read_wide(rest.substr(kMemberBytes + name_bytes, extra_bytes), member));
    const bool is_sane = member.size_bytes >= 0 && member.packed_bytes >= 0 && member.header_offset >= 0;
    if (is_sane && (method == 0 || method == 8) && (flags & 1) == 0) out.push_back(std::move(member));
    rest.remove_prefix(kMemberBytes + name_bytes + extra_bytes + comment_bytes);
  }
  return out;
}

base::Result<> unpack_member(const std::filesystem::path& archive, const ArchiveMember& member,
                             const std::filesystem::path& target, const StopFlag& stop) {
  const File source = TRY(File::open(archive, O_RDONLY));
  const File file = TRY(File::open(target, O_WRONLY | O_CREAT | O_EXCL));
  auto copied = copy_member(source, member, file, stop);
  if (!copied) {
    std::error_code ec;
    std::filesystem::remove(target, ec);
  }
  return copied;
}

}  // namespace llorch::pool_managerd::provisioner
