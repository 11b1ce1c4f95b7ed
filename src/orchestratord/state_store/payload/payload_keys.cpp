#include "orchestratord/state_store/payload/payload_keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/file.h"

namespace llorch::orchestratord::state_store::payload {
namespace {

tl::unexpected<base::Error> key_file_error(std::string_view action, const std::filesystem::path& path) {
  base::Error error = base::io_error(action, path, errno);
  error.code = base::ErrorCode::kStoreUnavailable;
  return base::fail(std::move(error));
}

class PosixKeyFile final : public KeyFile {
 public:
  PosixKeyFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  PosixKeyFile(const PosixKeyFile&) = delete;
  PosixKeyFile& operator=(const PosixKeyFile&) = delete;
  ~PosixKeyFile() override { ::close(fd_); }

  base::Result<std::uint64_t> size() override {
    struct stat st {};
    if (::fstat(fd_, &st) != 0) return key_file_error("cannot stat", path_);
    return static_cast<std::uint64_t>(st.st_size);
  }
  base::Result<> read(std::uint64_t offset, std::span<std::uint8_t> out) override {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n >= 0 && static_cast<std::size_t>(n) != out.size()) errno = EIO;
    if (n < 0 || static_cast<std::size_t>(n) != out.size()) return key_file_error("cannot read", path_);
    return {};
  }
  base::Result<> write(std::uint64_t offset, std::span<const std::uint8_t> bytes) override {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n >= 0 && static_cast<std::size_t>(n) != bytes.size()) errno = ENOSPC;
    if (n < 0 || static_cast<std::size_t>(n) != bytes.size()) return key_file_error("cannot write", path_);
    return {};
  }
  base::Result<> sync() override {
    if (::fdatasync(fd_) != 0) return key_file_error("cannot sync", path_);
    return {};
  }

 private:
  int fd_;
  std::filesystem::path path_;
};

constexpr std::array<std::uint8_t, kKeyBytes> kEmpty{};

std::uint64_t offset_of(Slot slot) { return std::uint64_t{index(slot)} * kKeyBytes; }

}  // namespace

base::Result<std::unique_ptr<KeyFile>> open_key_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return key_file_error("cannot open", path);
  return std::unique_ptr<KeyFile>(std::make_unique<PosixKeyFile>(fd, path));
}

base::Result<> PayloadKeys::adopt(const std::set<Slot>& live) {
  slots_count_ = static_cast<std::uint32_t>((TRY(file_->size()) + kKeyBytes - 1) / kKeyBytes);
  for (std::uint32_t i = 0; i < slots_count_; ++i) {
    if (!live.contains(Slot{i})) TRY(overwrite(Slot{i}));
  }
  return file_->sync();
}

base::Result<std::pair<Slot, Key>> PayloadKeys::create() {
  const Slot slot = free_.empty() ? Slot{slots_count_} : *free_.begin();
  Key key;
  entropy_.fill(std::as_writable_bytes(std::span(key.bytes)));
  free_.erase(slot);
  slots_count_ = std::max(slots_count_, index(slot) + 1);
  if (auto written = file_->write(offset_of(slot), key.bytes); !written) {
    erase(slot);  // a part of the key may have reached the file
    return base::fail(std::move(written).error());
  }
  return std::pair(slot, key);
}

base::Result<Key> PayloadKeys::read(Slot slot) {
  Key key;
  if (index(slot) < slots_count_) TRY(file_->read(offset_of(slot), key.bytes));
  if (key.bytes == kEmpty) {
    return base::fail(base::ErrorCode::kCorruptFile, "the payload's key is not in payload.keys any more");
  }
  return key;
}

void PayloadKeys::erase(Slot slot) {
  if (!overwrite(slot)) to_erase_.push_back(slot);
}

base::Result<> PayloadKeys::sync() {
  for (const Slot slot : std::exchange(to_erase_, {})) erase(slot);
  TRY(file_->sync());
  unsynced_erasures_ = false;
  return {};
}

base::Result<> PayloadKeys::overwrite(Slot slot) {
  TRY(file_->write(offset_of(slot), kEmpty));
  free_.insert(slot);
  unsynced_erasures_ = true;
  return {};
}

}  // namespace llorch::orchestratord::state_store::payload
