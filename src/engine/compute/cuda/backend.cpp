#include "engine/compute/cuda/backend.h"

#include <fmt/core.h>

#include <algorithm>
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

base::Result<std::vector<std::uint32_t>> parse_devices(std::string_view text) {
  std::vector<std::uint32_t> devices;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::uint32_t device = TRY(parse_device(rest.substr(0, comma)));
    if (std::ranges::find(devices, device) != devices.end())
      return base::fail(base::Error{
          base::ErrorCode::kGpuUnavailable,
          fmt::format("\"{}\" names GPU {} twice", text, device),
          {}}.with("gpu_id", std::string(text)));
    devices.push_back(device);
    if (comma == std::string_view::npos) return devices;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace llorch::engine::compute::cuda
