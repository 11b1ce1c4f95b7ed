#pragma once
#include <cstring>
#include <memory_resource>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>

namespace llorch::engine::models {

// Owns everything a compiled plan points to; freed as a whole. Not movable: views point into it.
class PlanArena {
 public:
  PlanArena() = default;
  PlanArena(const PlanArena&) = delete;
  PlanArena& operator=(const PlanArena&) = delete;

  // Trivially destructible elements only: nothing is ever destroyed singly.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::span<T> copy(std::span<const T> values) {
    if (values.empty()) return {};
    T* first = static_cast<T*>(memory_.allocate(values.size_bytes(), alignof(T) < 8 ? 8 : alignof(T)));
    for (std::size_t i = 0; i < values.size(); ++i) std::construct_at(first + i, values[i]);
    return {first, values.size()};
  }
  std::string_view copy(std::string_view text) {
    const std::span<char> stored = copy(std::span<const char>(text));
    return {stored.data(), stored.size()};
  }

 private:
  std::pmr::monotonic_buffer_resource memory_;
};

}  // namespace llorch::engine::models
