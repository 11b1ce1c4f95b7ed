#include "engine/compute/cuda/backend.h"

#include <fmt/core.h>

#include <charconv>

namespace llorch::engine::compute::cuda {

base::Result<std::uint32_t> parse_device(std::string_view text) {
  std::string_view digits = text;
  if (digits.starts_with("cuda:")) digits.remove_prefix(5);
  std::uint32_t device = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device);
  if (error != std::errc() || end != digits.data() + digits.size())
    return base::fail(base::Error{
        base::ErrorCode::kGpuUnavailable,
        fmt::format("\"{}\" names no device; write cpu, or the number of a GPU as 0 or cuda:0", text),
        {}}.with("gpu_id", std::string(text)));
  return device;
}

}  // namespace llorch::engine::compute::cuda
