#include "base/testing/allocation_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t align) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* ptr = nullptr;
  if (posix_memalign(&ptr, align < sizeof(void*) ? sizeof(void*) : align, bytes) != 0) std::abort();
  return ptr;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, alignof(max_align_t)); }
void* operator new[](std::size_t bytes) { return counted(bytes, alignof(max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t align) {
  return counted(bytes, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t bytes, std::align_val_t align) {
  return counted(bytes, static_cast<std::size_t>(align));
}
// The standard library's own go through those above; the address sanitizer's do not.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, alignof(max_align_t)); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, alignof(max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return counted(bytes, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return counted(bytes, static_cast<std::size_t>(align));
}
// Where sanitizers keep these from being inlined, GCC does not see that counted() is what free() undoes.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* ptr) noexcept { std::free(ptr); }
void operator delete[](void* ptr) noexcept { std::free(ptr); }
void operator delete(void* ptr, std::size_t) noexcept { std::free(ptr); }
void operator delete[](void* ptr, std::size_t) noexcept { std::free(ptr); }
void operator delete(void* ptr, std::align_val_t) noexcept { std::free(ptr); }
void operator delete[](void* ptr, std::align_val_t) noexcept { std::free(ptr); }
void operator delete(void* ptr, std::size_t, std::align_val_t) noexcept { std::free(ptr); }
void operator delete[](void* ptr, std::size_t, std::align_val_t) noexcept { std::free(ptr); }

namespace llorch::base::testing {

std::uint64_t allocations_count() { return allocations.load(std::memory_order_relaxed); }

}  // namespace llorch::base::testing
