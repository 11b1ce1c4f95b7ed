#pragma once
// The operating-system seam of the store: real and faulty files.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"

namespace llorch::orchestratord::store::files {

// Offsets and sizes in bytes; a short transfer is an error. Errors: STORE_UNAVAILABLE.
class StateFile {
 public:
  virtual ~StateFile() = default;
  virtual base::Result<std::uint64_t> size() = 0;
  virtual base::Result<> read(std::uint64_t offset, std::span<std::uint8_t> out) = 0;
  virtual base::Result<> write(std::uint64_t offset, std::span<const std::uint8_t> bytes) = 0;
  virtual base::Result<> sync() = 0;  // fdatasync
};
using StateFilePtr = std::unique_ptr<StateFile>;
using OpenFile = std::function<base::Result<StateFilePtr>(const std::filesystem::path&)>;

// Created with mode 0600 if it is missing; its directory entry is durable.
base::Result<StateFilePtr> open_state_file(const std::filesystem::path& path);

// Writes what the file holds once more and syncs it. A process that died after a failed sync may have left pages that the
// kernel shows but takes for written (Linux marks them clean): whoever builds on them must write them first.
base::Result<> write_again(StateFile& file);

}  // namespace llorch::orchestratord::store::files
