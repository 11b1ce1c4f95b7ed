#pragma once
#include <span>

#include "engine/contract/adapter.h"

namespace llorch::engine::inference {

// Runs the instructions in order; stops at the first that fails. The only executor loop there is.
// REQUIRES: `plan` was prepared for the backend whose memory `ctx` points to.
contract::Status run(contract::ExecutionContext& ctx, std::span<const contract::PreparedInsn> plan) noexcept;

}  // namespace llorch::engine::inference
