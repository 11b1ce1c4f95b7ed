// Memory of the program `sim`: a schedule is twenty thousand small allocations, and the ones of one schedule are the ones of
// the next. Freed blocks wait in lists by size, which nothing locks and nothing merges; SQLite allocates there, too, and
// does without its locks and its accounts. Each thread has lists of its own. Left out where a sanitizer watches the heap.
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace {

constexpr std::size_t kStepBytes = 32, kListsCount = 256;  // up to 8 KiB; what is larger is the system's
constexpr std::size_t kArenaBytes = std::size_t{1} << 20;
constexpr std::size_t kHeaderBytes = 16;  // keeps what follows aligned for everything that new() promises

struct Header {
  std::size_t bytes;  // asked for
};
struct Block {
  Block* next;
};
thread_local std::array<Block*, kListsCount + 1> lists{};
thread_local std::byte* arena = nullptr;
thread_local std::size_t arena_left_bytes = 0;

std::size_t list_of(std::size_t bytes) { return (bytes + kHeaderBytes + kStepBytes - 1) / kStepBytes; }
Header& header_of(void* memory) { return *reinterpret_cast<Header*>(static_cast<std::byte*>(memory) - kHeaderBytes); }

// Null if the system has no memory left.
void* cut(std::size_t bytes) {
  if (bytes > arena_left_bytes) {
    arena = static_cast<std::byte*>(std::malloc(kArenaBytes));
    arena_left_bytes = arena != nullptr ? kArenaBytes : 0;
    if (arena == nullptr) return nullptr;
  }
  arena_left_bytes -= bytes;
  return std::exchange(arena, arena + bytes);
}

void* take(std::size_t bytes) {
  const std::size_t list = list_of(bytes);
  void* block = nullptr;
  if (list > kListsCount) {
    block = std::malloc(bytes + kHeaderBytes);
  } else if (lists[list] != nullptr) {
    block = std::exchange(lists[list], lists[list]->next);
  } else {
    block = cut(list * kStepBytes);
  }
  if (block == nullptr) return nullptr;
  static_cast<Header*>(block)->bytes = bytes;
  return static_cast<std::byte*>(block) + kHeaderBytes;
}

void give(void* memory) {
  Header& header = header_of(memory);
  const std::size_t list = list_of(header.bytes);
  if (list > kListsCount) return std::free(&header);
  auto* block = reinterpret_cast<Block*>(&header);
  block->next = std::exchange(lists[list], block);
}

// ---- SQLite ---------------------------------------------------------------------------------------------------------

void* sqlite_take(int bytes) { return take(static_cast<std::size_t>(bytes)); }
int sqlite_size(void* memory) { return memory != nullptr ? static_cast<int>(header_of(memory).bytes) : 0; }
void* sqlite_again(void* memory, int bytes) {
  void* out = sqlite_take(bytes);
  if (out == nullptr) return nullptr;
  std::memcpy(out, memory, static_cast<std::size_t>(std::min(bytes, sqlite_size(memory))));
  give(memory);
  return out;
}
int sqlite_rounded(int bytes) {
  return static_cast<int>(list_of(static_cast<std::size_t>(bytes)) * kStepBytes - kHeaderBytes);
}

// Before anything opens a database.
const bool configured = [] {
  static sqlite3_mem_methods methods = {
      .xMalloc = sqlite_take,
      .xFree = give,
      .xRealloc = sqlite_again,
      .xSize = sqlite_size,
      .xRoundup = sqlite_rounded,
      .xInit = [](void*) { return SQLITE_OK; },
      .xShutdown = [](void*) {},
      .pAppData = nullptr,
  };
  return sqlite3_config(SQLITE_CONFIG_SINGLETHREAD) == SQLITE_OK &&
         sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) == SQLITE_OK &&
         sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK;
}();

}  // namespace

void* operator new(std::size_t bytes) {
  if (void* memory = take(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) give(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
