#pragma once
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cuda::adapters {

extern const contract::AdapterTables kCudaTables;

}  // namespace llorch::engine::compute::cuda::adapters
