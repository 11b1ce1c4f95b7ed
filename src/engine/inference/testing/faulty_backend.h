#pragma once
#include "engine/inference/testing/recording_backend.h"

namespace llorch::engine::inference::testing {

// A RecordingBackend whose device has less memory than it says: chosen allocations fail.
class FaultyBackend : public RecordingBackend {
 public:
  using RecordingBackend::RecordingBackend;

  base::Result<std::byte*> allocate(std::uint64_t bytes, plan::MemoryPurpose purpose) override {
    const std::uint64_t n = ++allocations_count;
    if (n >= fail_from && n < fail_to) return base::fail(out_of_memory(bytes, purpose));
    return RecordingBackend::allocate(bytes, purpose);
  }

  std::uint64_t allocations_count = 0;          // tried so far
  std::uint64_t fail_from = ~std::uint64_t{0};  // those numbered [fail_from, fail_to) fail, the first being 1
  std::uint64_t fail_to = ~std::uint64_t{0};
};

}  // namespace llorch::engine::inference::testing
