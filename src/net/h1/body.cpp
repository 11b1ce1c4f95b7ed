#include "net/h1/body.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"

namespace llorch::net::h1 {
namespace {

constexpr std::size_t kSlabBytes = 1 << 20;  // few mappings: a process may have 65,530
constexpr std::size_t kReadyMax = (1 << 20) / kChunkBytes;

}  // namespace

ChunkPool::~ChunkPool() {
  ASSERT(taken_ == 0, "a body outlives its pool");
  for (char* slab : slabs_) ::munmap(slab, kSlabBytes);
}

void ChunkPool::map_slab() {
  void* slab = ::mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT(slab != MAP_FAILED, "no memory for bodies of requests");
  ::madvise(slab, kSlabBytes, MADV_NOHUGEPAGE);  // the first byte of a chunk would take 2 MiB
  slabs_.push_back(static_cast<char*>(slab));
  for (std::size_t at = kSlabBytes; at > 0; at -= kChunkBytes) returned_.push_back(slabs_.back() + at - kChunkBytes);
}

char* ChunkPool::take() {
  if (ready_.empty() && returned_.empty()) map_slab();
  std::vector<char*>& free = ready_.empty() ? returned_ : ready_;
  char* chunk = free.back();
  free.pop_back();
  ++taken_;
  return chunk;
}

void ChunkPool::give_back(char* chunk) {
  --taken_;
  if (ready_.size() < kReadyMax) return ready_.push_back(chunk);
  ASSERT(::madvise(chunk, kChunkBytes, MADV_DONTNEED) == 0);
  returned_.push_back(chunk);
}

std::size_t ChunkPool::resident_bytes() const {
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(kSlabBytes / page_bytes);
  std::size_t count = 0;
  for (char* slab : slabs_) {
    ASSERT(::mincore(slab, kSlabBytes, pages.data()) == 0);
    count += static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](auto page) { return page & 1; }));
  }
  return count * page_bytes;
}

Body::~Body() {
  for (char* chunk : chunks_) pool_.give_back(chunk);
}

void Body::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t filled = bytes_ % kChunkBytes;
    if (filled == 0) chunks_.push_back(pool_.take());
    const std::string_view part = bytes.substr(0, kChunkBytes - filled);
    std::memcpy(chunks_.back() + filled, part.data(), part.size());
    bytes_ += part.size();
    bytes.remove_prefix(part.size());
  }
}

std::string Body::join() {
  std::string whole;
  whole.reserve(bytes_);
  for (char* chunk : std::exchange(chunks_, {})) {
    whole.append(chunk, std::min(kChunkBytes, bytes_ - whole.size()));
    pool_.give_back(chunk);
  }
  bytes_ = 0;
  return whole;
}

}  // namespace llorch::net::h1
