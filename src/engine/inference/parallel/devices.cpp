#include "engine/inference/parallel/devices.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/models/model.h"

namespace llorch::engine::inference::parallel {

using base::ErrorCode;

base::Result<> check_devices(const Devices& devices) {
  if (devices.count() == 0 || devices.count() > models::kRanksMax) {
    return base::fail(ErrorCode::kInvalidParams, fmt::format("{} devices for one model; it can be shared by 1 to {}",
                                                             devices.count(), models::kRanksMax));
  }
  const std::string_view first = devices.backends[0]->numerics();
  for (const plan::Backend* backend : devices.backends) {
    if (backend->numerics() == first) continue;
    return base::fail(ErrorCode::kInvalidParams, fmt::format("devices with the numerics {} and {} cannot share a model",
                                                             first, backend->numerics()));
  }
  return {};
}

std::string numerics_of(const Devices& devices) {
  const std::string_view one = devices.backends[0]->numerics();
  return devices.count() == 1 ? std::string(one) : fmt::format("{}/tp{}", one, devices.count());
}

std::string device_class_of(const Devices& devices) {
  const std::string_view first = devices.backends[0]->device_class();
  const auto is_first = [&](const plan::Backend* backend) { return backend->device_class() == first; };
  std::string result(first);
  if (std::ranges::all_of(devices.backends, is_first)) return result;
  for (std::size_t rank = 1; rank < devices.backends.size(); ++rank)
    result += fmt::format(" + {}", devices.backends[rank]->device_class());
  return result;
}

base::Error error_at(base::Error error, std::uint32_t rank, std::uint32_t devices_count) {
  if (devices_count == 1) return error;
  error.message = fmt::format("device {} of {}: {}", rank, devices_count, error.message);
  return std::move(error).with("rank", std::int64_t{rank});
}

}  // namespace llorch::engine::inference::parallel
