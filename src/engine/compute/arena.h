#pragma once
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "engine/plan/context.h"

namespace llorch::engine::compute {

// Divides a workspace into 64-byte aligned arrays. Without memory it only adds up: the same code says how much a run
// needs and hands it out, so the two cannot disagree.
class WorkspaceArena {
 public:
  WorkspaceArena() = default;
  explicit WorkspaceArena(const plan::Workspace& workspace) : workspace_(workspace) {}

  template <class T>
  T* take(std::uint64_t count) {
    const std::uint64_t at = used_bytes_;
    used_bytes_ += (count * sizeof(T) + 63) / 64 * 64;
    if (workspace_.ptr == nullptr) return nullptr;
    ASSERT(used_bytes_ <= workspace_.bytes, "workspace of {} bytes, {} needed", workspace_.bytes, used_bytes_);
    return reinterpret_cast<T*>(workspace_.ptr + at);
  }
  std::uint64_t used_bytes() const { return used_bytes_; }
  // What nobody has taken.
  plan::Workspace rest() const { return {workspace_.ptr + used_bytes_, workspace_.bytes - used_bytes_}; }

 private:
  plan::Workspace workspace_;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace llorch::engine::compute
