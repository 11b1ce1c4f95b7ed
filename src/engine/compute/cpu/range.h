#pragma once
#include <cstddef>

namespace llorch::engine::compute::cpu {

// Units [begin, end) of a parallel computation.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

}  // namespace llorch::engine::compute::cpu
