#pragma once
// Files of a test, which go with it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "base/sha256.h"

namespace llorch::pool_managerd::provisioner {

class DownloadDirectory : public testing::Test {
 protected:
  DownloadDirectory()
      : dir_(std::filesystem::temp_directory_path() / ("llorch-provisioner-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(dir_);
  }
  ~DownloadDirectory() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_;
};

inline std::string content_of(std::int64_t bytes) {
  std::string out(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(i * 7 + i / 251);
  return out;
}

inline std::string sha256_of(std::string_view content) { return base::to_hex(base::sha256(content)); }

// Of the disk.
inline std::int64_t taken_bytes(const std::filesystem::path& file) {
  struct stat facts {};
  EXPECT_EQ(::stat(file.c_str(), &facts), 0);
  return std::int64_t{facts.st_blocks} * 512;
}

}  // namespace llorch::pool_managerd::provisioner
