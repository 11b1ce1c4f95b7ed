#pragma once
// A file that is being fetched: which parts of it are here, over restarts, and the checksum of what is.
#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "pool_managerd/provisioner/room.h"
#include "pool_managerd/provisioner/web/transfer.h"

namespace llorch::pool_managerd::provisioner::download {

// Three files beside each other: STEM.part with the bytes, STEM.map with a byte per chunk of 1 MiB that has come, STEM.json
// with what they belong to. A process that is killed leaves them usable; what a power cut leaves is found out by the
// checksum; where none is known, the identity is of one boot of the machine. Used by one thread, but for the lock that keeps
// other processes out.
class PartFile {
 public:
  static constexpr std::int64_t kChunkBytes = 1 << 20;

  struct Identity {
    std::string text;  // equal texts mean equal bytes; empty: nobody knows, so an earlier process's bytes are of no use
    std::int64_t size_bytes = 0;
    std::string_view room_advice = kRoomForModels;  // for whom the disk is full
  };
  // Goes on with the files at `stem` if they are of `identity`, else begins anew, with room for all of it on disk. Never writes to a
  // data file that has a second name: a model may be published with it. Errors: INSUFFICIENT_DISK, with details.required_bytes and
  // details.available_bytes; CONFLICT (another process has it open); IO_ERROR.
  static base::Result<PartFile> open(std::filesystem::path stem, const Identity& identity);
  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile();

  // A run of chunks that are neither here nor claimed, at most as many as hold `bytes_max`; absent: none is left.
  std::optional<web::ByteRange> claim(std::int64_t bytes_max);
  // What of `range` has not come may be claimed again.
  void release(const web::ByteRange& range);
  // Writes `bytes`, whole chunks from `offset` on, and has the disk begin with them. Errors: INSUFFICIENT_DISK, IO_ERROR.
  base::Result<> write(std::int64_t offset, std::string_view bytes);
  // Has what has come without a gap hashed on another thread, 64 MiB at a time, so that connections are not left alone and a
  // large file comes no slower for it; on this thread where the system gives no other. With `wait`, waits for the piece under way.
  // Errors: IO_ERROR.
  base::Result<> hash_ready(bool wait = false);
  bool is_hashed() const { return hashed_ == identity_.size_bytes; }

  std::int64_t size_bytes() const { return identity_.size_bytes; }
  std::int64_t bytes_done() const { return bytes_done_; }
  bool has_resumed() const { return has_resumed_; }  // some of it is from an earlier process
  bool is_complete() const { return bytes_done_ == identity_.size_bytes; }
  // REQUIRES: is_hashed().
  std::string sha256_hex() const { return base::to_hex(hash_.digest()); }
  std::filesystem::path data_path() const { return path(".part"); }
  base::Result<> sync();
  // Gives the disk back what open() took for chunks that have not come; another open() takes it again. REQUIRES: nothing is written
  // afterwards.
  void give_back_room();
  // Forgets all that has come.
  base::Result<> reset();
  // Removes the files. REQUIRES: not used afterwards.
  void remove() { remove(stem_); }
  // Removes the files at `stem`. REQUIRES: nobody writes to them.
  static void remove(const std::filesystem::path& stem);

 private:
  enum Chunk : char { kMissing = 0, kHere = 1, kClaimed = 2 };

  struct Hashed {
    base::Sha256 hash;
    std::int64_t end = 0;
  };
  base::Result<Hashed> hash_up_to(Hashed from, std::int64_t end) const;
  void take(const Hashed& done);
  void forget_hashing();

  PartFile(std::filesystem::path stem, Identity identity) : stem_(std::move(stem)), identity_(std::move(identity)) {}
  base::Result<> open_files();
  base::Result<> open_data(int more_flags);
  bool read_map();
  // The bytes that the disk has yet to give.
  base::Result<std::int64_t> check_room() const;
  base::Result<> reserve();
  base::Error no_room(std::int64_t required, std::int64_t available) const;
  base::Result<> write_all(int fd, std::int64_t offset, std::string_view bytes,
                           const std::filesystem::path& file) const;
  std::filesystem::path path(const char* extension) const { return std::filesystem::path(stem_) += extension; }
  std::int64_t chunk_end(std::size_t chunk) const;
  std::string header() const;

  std::filesystem::path stem_;
  Identity identity_;
  int data_fd_ = -1, map_fd_ = -1;
  std::vector<char> chunks_;
  std::int64_t bytes_done_ = 0;
  std::int64_t hashed_ = 0;
  base::Sha256 hash_;
  std::future<base::Result<Hashed>> hashing_;  // what goes on from hashed_; reads the data file alone
  bool has_other_name_ = false;  // the data file: a process that was killed has published it, or was about to
  bool has_resumed_ = false;
};

}  // namespace llorch::pool_managerd::provisioner::download
