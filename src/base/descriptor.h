#pragma once
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace llorch::base {

// An open file descriptor that ends with its scope; a negative one is none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// All of it, from where the descriptor stands. Errors: IO_ERROR, which names `path`.
Result<> write_all(int fd, std::string_view content, const std::filesystem::path& path);

}  // namespace llorch::base
