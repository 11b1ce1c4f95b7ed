#include "engine/models/plan_compiler/liveness.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace llorch::engine::models {

using plan::kNeverRead;

Liveness compute_liveness(std::span<const plan::Instruction> instructions, std::uint16_t register_count,
                          PlanArena& arena) {
  std::vector<std::uint32_t> last_use(register_count, kNeverRead);  // last read, or the producer until there is one
  std::vector<std::uint32_t> last_read(register_count, kNeverRead);
  for (std::uint32_t i = 0; i < instructions.size(); ++i) {
    for (plan::RegisterRef ref : instructions[i].inputs) last_use[index(ref)] = last_read[index(ref)] = i;
    for (plan::RegisterRef ref : instructions[i].outputs) last_use[index(ref)] = i;
  }
  const std::size_t words = (register_count + std::size_t{63}) / 64;
  std::vector<std::vector<std::uint64_t>> kill_bits(instructions.size(), std::vector<std::uint64_t>(words, 0));
  for (std::uint16_t r = 0; r < register_count; ++r) kill_bits[last_use[r]][r / 64] |= std::uint64_t{1} << (r % 64);

  std::vector<std::span<const std::uint64_t>> kills;
  std::size_t alive = 0;
  std::size_t peak = 0;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    alive += instructions[i].outputs.size();
    peak = std::max(peak, alive);
    for (std::uint64_t word : kill_bits[i]) alive -= static_cast<std::size_t>(std::popcount(word));
    kills.push_back(arena.copy(std::span<const std::uint64_t>(kill_bits[i])));
  }
  return {.map = {.register_last_read = arena.copy(std::span<const std::uint32_t>(last_read)),
                  .kill_after_instruction = arena.copy(std::span<const std::span<const std::uint64_t>>(kills))},
          .peak_registers = static_cast<std::uint16_t>(peak)};
}

}  // namespace llorch::engine::models
