#pragma once
// Which devices of a pool a worker runs on, by rank: "0", "cpu"; of several that share its model "0,1" (SYS-6.3.3). The CPU
// reference device may be named several times, for its shares: "cpu,cpu".
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::wire {

inline constexpr std::size_t kMaskDevicesMax = 16;

// The gpu_id of every rank. REQUIRES: check_device_mask() found nothing.
std::vector<std::string> devices_of(std::string_view mask);
// "0,1" of the two.
std::string mask_of(const std::vector<std::string>& gpu_ids);
// INVALID_PARAMS, naming `field`: an empty name, too many, a GPU twice, the CPU device beside a GPU.
base::Result<> check_device_mask(std::string_view mask, std::string_view field);

}  // namespace llorch::wire
