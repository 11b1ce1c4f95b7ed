#pragma once
// The CPU reference device: the door for whoever wires an engine to it.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/plan/backend.h"

namespace llorch::engine::compute::cpu {

struct CpuBackendOptions {
  std::uint32_t threads_count = 1;        // >= 1, the calling thread included
  std::uint64_t memory_budget_bytes = 0;  // plays the part of VRAM: allocations past it are refused
  std::string isa;  // "avx2", "avxvnni", "avx512", "amx"; "" = $LLORCH_ISA, else the best the processor has
};

// The instruction set of a backend whose options name none. Errors: GPU_UNAVAILABLE, which says what the processor lacks;
// CONFIG_INVALID ($LLORCH_ISA).
base::Result<std::string_view> processor_isa();

// Has memory that nobody touched yet lie on the nodes that a backend's own lies on. `memory` begins a page. Advice only.
void interleave(std::byte* memory, std::uint64_t bytes);

// Device class "cpu-x86", numerics "cpu-2". Results depend on none of the options.
// Errors: GPU_UNAVAILABLE (the processor lacks AVX2, FMA, F16C or the set asked for), CONFIG_INVALID (options).
base::Result<std::unique_ptr<plan::Backend>> make_cpu_backend(const CpuBackendOptions& options);

}  // namespace llorch::engine::compute::cpu
