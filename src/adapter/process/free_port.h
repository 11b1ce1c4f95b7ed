#pragma once
#include <cstdint>

#include "base/result.h"

namespace llorch::adapter::process {

// A port of 127.0.0.1 that nobody listens on. Another process may take it before it is used: see port_guard.h.
base::Result<std::uint16_t> free_port();

}  // namespace llorch::adapter::process
