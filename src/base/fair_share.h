#pragma once
// How a bound is shared by tenants that want more of it than there is: max-min fairness.
#include <cstdint>
#include <span>

namespace llorch::base {

// The most that each tenant may hold so that all together hold `most`, where those that hold less leave the rest to the others. The
// largest number if they hold no more than `most`. `held`: by tenant.
std::int64_t fair_share(std::span<const std::int64_t> held, std::int64_t most);

}  // namespace llorch::base
