#include "engine/compute/cuda/architectures.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "engine/compute/cuda/backend.h"

namespace llorch::engine::compute::cuda {
namespace {

struct Architecture {
  unsigned major = 0, minor = 0;
  bool is_specific = false;
};

// "sm_90a"; nothing for anything else.
std::optional<Architecture> parse_architecture(std::string_view text) {
  if (!text.starts_with("sm_")) return std::nullopt;
  text.remove_prefix(3);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return Architecture{number / 10, number % 10, end != text.data() + text.size()};
}

std::optional<Architecture> parse_capability(std::string_view text) {
  Architecture out;
  const char* const last = text.data() + text.size();
  const auto major = std::from_chars(text.data(), last, out.major);
  if (major.ec != std::errc() || major.ptr == last || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, last, out.minor);
  if (minor.ec != std::errc() || minor.ptr != last) return std::nullopt;
  return out;
}

}  // namespace

std::string_view built_architectures() { return LLORCH_CUDA_ARCHS_TEXT; }

bool runs_on(std::string_view architectures, std::string_view compute_capability) {
  const auto device = parse_capability(compute_capability);
  if (!device) return false;
  while (!architectures.empty()) {
    const std::size_t comma = architectures.find(',');
    std::string_view one = architectures.substr(0, comma);
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    architectures.remove_prefix(comma == std::string_view::npos ? architectures.size() : comma + 1);
    const auto code = parse_architecture(one);
    if (!code || code->major != device->major) continue;
    if (code->is_specific ? code->minor == device->minor : code->minor <= device->minor) return true;
  }
  return false;
}

std::string missing_kernels(std::string_view compute_capability) {
  if (built_architectures().empty())
    return "this build has no CUDA kernels: nvcc or a GPU was not found, or LLORCH_CUDA was off, when it was "
           "configured";
  if (runs_on(built_architectures(), compute_capability)) return {};
  return fmt::format("this build has no kernels for compute capability {}; it was built for {} (LLORCH_CUDA_ARCHS)",
                     compute_capability, built_architectures());
}

}  // namespace llorch::engine::compute::cuda
