#pragma once
// A loop whose counter is a constant inside the body: shifts by a group's number want immediates.

namespace llorch::engine::compute::cpu::simd {

template <int kValue>
struct GroupNumber {
  static constexpr int value = kValue;
};

// body(GroupNumber<kFirst>), ..., body(GroupNumber<kFirst + kCount - 1>).
template <int kFirst, int kCount, class Body>
inline __attribute__((always_inline)) void for_groups(const Body& body) {
  if constexpr (kCount > 0) {
    body(GroupNumber<kFirst>{});
    for_groups<kFirst + 1, kCount - 1>(body);
  }
}

}  // namespace llorch::engine::compute::cpu::simd
