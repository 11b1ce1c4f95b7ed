#pragma once
// One pool-managerd per state directory.
#include <filesystem>
#include <string>

#include "base/result.h"

namespace llorch::pool_managerd {

// Holds run/pool-managerd.lock; the kernel lets go of it when the process ends, however that happens.
class StateLock {
 public:
  // ALREADY_RUNNING if another process holds it; IO_ERROR.
  static base::Result<StateLock> take(const std::filesystem::path& state_directory);
  StateLock(StateLock&& other) noexcept;
  StateLock& operator=(StateLock&&) = delete;
  ~StateLock();

  // Writes run/pool-managerd.json {pid, start_ticks, bind}; removed with the lock.
  base::Result<> announce(const std::string& bind);

 private:
  explicit StateLock(std::filesystem::path directory, int fd);
  std::filesystem::path directory_;
  int fd_ = -1;
};

}  // namespace llorch::pool_managerd
