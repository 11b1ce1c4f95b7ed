#pragma once
// A loop whose counter is a constant inside the body: shifts by a group's number want immediates, and arrays of lanes stay in
// registers only where every index is a constant before the compiler looks at them.
#include <utility>

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

// The rows of a tile, as a pack of their numbers.
template <int... kRow>
using Rows = std::integer_sequence<int, kRow...>;
template <int kCount>
using RowsUpTo = std::make_integer_sequence<int, kCount>;

}  // namespace llorch::engine::compute::cpu::simd
