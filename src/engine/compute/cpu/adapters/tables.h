#pragma once
// The contract's opcodes on this device.
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cpu::adapters {

extern const contract::AdapterTables kCpuTables;

}  // namespace llorch::engine::compute::cpu::adapters
