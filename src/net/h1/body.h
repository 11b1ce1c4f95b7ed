#pragma once
// The memory of a body that is being received: chunks of one size, so that it holds at most one chunk more than it was
// sent, nothing is copied as it grows, and what is freed fits whatever comes next.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::net::h1 {

// A page is the least the system gives. Two: when all 16,384 connections hold one chunk each and their heads, the budget
// is not used up, so whoever must give way holds more than a request of a few KiB does.
inline constexpr std::size_t kChunkBytes = 8 << 10;

// Chunks for all bodies of a server. A free chunk's memory goes back to the system at once, but for the first MiB of them.
// REQUIRES: used by one thread at a time, and outlives what it gave.
class ChunkPool {
 public:
  ChunkPool() = default;
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;
  ~ChunkPool();

  char* take();
  void give_back(char* chunk);

  std::size_t taken_bytes() const { return taken_ * kChunkBytes; }
  // Bytes of all chunks that the system has given memory for.
  std::size_t resident_bytes() const;

 private:
  void map_slab();

  std::vector<char*> slabs_;
  std::vector<char*> ready_;     // free, and still resident
  std::vector<char*> returned_;  // free, and the system has their memory
  std::size_t taken_ = 0;
};

class Body {
 public:
  explicit Body(ChunkPool& pool) : pool_(pool) {}
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  ~Body();

  void append(std::string_view bytes);
  // Everything in one piece, of exactly that size. Each chunk is given back before the next is copied. Leaves it empty.
  std::string join();
  // Also the part of the last chunk that is not filled yet.
  std::size_t allocated_bytes() const { return chunks_.size() * kChunkBytes; }

 private:
  ChunkPool& pool_;
  std::vector<char*> chunks_;
  std::size_t bytes_ = 0;
};

}  // namespace llorch::net::h1
