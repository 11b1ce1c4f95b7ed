#pragma once
// A directory of weights as a device packed them. Any number of processes may use one directory at once.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/plan/backend.h"
#include "engine/plan/tensor.h"

namespace llorch::engine::inference::repack_cache {

// What decides about every packed byte of one device.
struct RepackKey {
  struct Tensor {
    std::string name;
    plan::TensorViewDesc view;
    std::uint64_t packed_bytes = 0;
  };
  std::string model_digest;  // 64 hex digits
  std::string build;         // base::build_id(): another build may bind or pack tensors in another way
  std::string layout;        // Backend::packed_layout()
  std::uint32_t rank = 0, ranks = 1;
  std::vector<Tensor> tensors;  // in the order of their numbers

  std::uint64_t packed_bytes() const;
};

struct Kept {
  std::uint64_t bytes = 0;  // written by this call
  bool already = false;     // it was kept before
};

class RepackCache {
 public:
  struct Options {
    std::filesystem::path directory;
    std::uint64_t bytes_max = 0;  // of all files
    // What the file system must still have free beside a file that is written; others need room more than this cache does.
    std::uint64_t free_bytes_min = 1ULL << 30;
  };
  explicit RepackCache(Options options) : options_(std::move(options)) {}

  // Thread-safe, all of them.
  // The packed weights of this key, with each piece verified as it is read; null when none are kept. They count as used now.
  // Errors: CORRUPT_FILE (not what keep() writes, as far as the head tells), IO_ERROR.
  base::Result<std::unique_ptr<plan::PackedSource>> find(const RepackKey& key) const;
  // Writes them, whole or not at all, after removing what was used least recently as far as bytes_max wants it.
  // `weights`: the bytes of every tensor. Errors: INSUFFICIENT_DISK (with required_bytes and available_bytes), SERVER_BUSY
  // (another process writes), CANCELLED (`stop`), IO_ERROR.
  base::Result<Kept> keep(const RepackKey& key, std::span<const std::span<const std::byte>> weights,
                          const std::stop_token& stop) const;
  // Removes what is kept under this key.
  void discard(const RepackKey& key) const;

  // The file of this model that was used last, which is what its next start reads unless its build, its device or its settings
  // have changed since; null: none. It does not count as used.
  std::optional<std::filesystem::path> last_used_of(const std::string& model_digest) const;

  // For who looks after the disk. Bytes of all files.
  std::uint64_t used_bytes() const;
  // Removes everything of a model. `model_digest`: 64 hex digits.
  void forget_model(const std::string& model_digest) const;
  // Removes what was used least recently until `bytes` are gained or nothing is left; how many were.
  std::uint64_t free_up(std::uint64_t bytes) const;
  // Removes what nobody will finish, and what exceeds bytes_max.
  void tidy() const;

  std::filesystem::path path_of(const RepackKey& key) const;

 private:
  base::Result<> make_room(std::uint64_t bytes) const;

  Options options_;
};

}  // namespace llorch::engine::inference::repack_cache
