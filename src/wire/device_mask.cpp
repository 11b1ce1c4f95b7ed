#include "wire/device_mask.h"

#include <algorithm>

#include "wire/field.h"

namespace llorch::wire {
namespace {
constexpr std::string_view kCpuDevice = "cpu";
}  // namespace

std::vector<std::string> devices_of(std::string_view mask) {
  std::vector<std::string> out;
  for (;;) {
    const std::size_t comma = mask.find(',');
    out.emplace_back(mask.substr(0, comma));
    if (comma == std::string_view::npos) return out;
    mask.remove_prefix(comma + 1);
  }
}

std::string mask_of(const std::vector<std::string>& gpu_ids) {
  std::string out;
  for (const std::string& id : gpu_ids) out += out.empty() ? id : "," + id;
  return out;
}

base::Result<> check_device_mask(std::string_view mask, std::string_view field) {
  const auto devices = devices_of(mask);
  const auto refuse = [&](std::string_view why) {
    return field_error(field, "device_mask",
                       fmt::format("{} names devices of a pool as 0, cpu or 0,1; {}", field, why));
  };
  if (devices.size() > kMaskDevicesMax) return refuse(fmt::format("at most {} of them", kMaskDevicesMax));
  const auto cpus = std::ranges::count(devices, kCpuDevice);
  if (cpus != 0 && cpus != std::ssize(devices)) return refuse("the CPU reference device shares a model with no GPU");
  for (auto it = devices.begin(); it != devices.end(); ++it) {
    if (it->empty()) return refuse("none may be empty");
    if (cpus == 0 && std::find(std::next(it), devices.end(), *it) != devices.end()) return refuse("no GPU twice");
  }
  return {};
}

}  // namespace llorch::wire
