#include "engine/compute/cpu/adapters/support.h"

#include <algorithm>

#include "engine/compute/adapter_checks.h"
#include "engine/compute/cpu/adapters/tables.h"

namespace llorch::engine::compute::cpu::adapters {

namespace {

// Work below which waking another thread costs more than it saves, in multiply-adds.
constexpr std::size_t kGrainProducts = 1u << 16;
constexpr std::size_t kFewRows = 8;  // more are multiplied in pairs of groups

}  // namespace

std::size_t grain_of_groups(const CpuStream& stream, std::size_t groups, std::size_t width, std::size_t rows,
                            std::size_t parts, std::size_t most) {
  const std::size_t grain = kGrainProducts / (kPackRows * width * rows) + 1;
  if (rows <= kFewRows) return grain;
  const std::size_t pairs = std::min(groups / (parts * stream.pool.threads_count()), most) / 2;
  return 2 * std::max((grain + 1) / 2, pairs);
}

void project(const CpuStream& stream, const ProjectionInput& input, std::span<const Projection> projections) {
  ASSERT(!projections.empty() && projections.size() <= 4, "{}", projections.size());
  const std::size_t width = projections[0].weight->matrix.cols;
  std::size_t units = 0;
  bool quantize = false;
  for (const Projection& p : projections) {
    units += p.weight->matrix.groups();
    quantize = quantize || plan::is_quantized(p.weight->matrix.dtype);
  }
  if (quantize && !input.has_quantized) {
    const QuantizeArgs args{.x = input.x, .x_stride = input.x_stride, .out = input.quantized};
    stream.pool.run(input.rows, kGrainProducts / 8 / width + 1,
                    [&](Range rows, std::size_t) { stream.kernels.quantize(args, rows); });
  }
  const std::size_t grain = grain_of_groups(stream, units, width, input.rows);
  stream.pool.run(units, grain, [&](Range range, std::size_t) {
    std::size_t first = 0;  // unit where this projection begins
    for (const Projection& p : projections) {
      const PackedMatrix& w = p.weight->matrix;
      const std::size_t last = first + w.groups();
      const std::size_t begin = std::max(range.begin, first), end = std::min(range.end, last);
      if (begin < end)
        stream.kernels.matmul({.w = w,
                               .x = input.x,
                               .x_stride = input.x_stride,
                               .xq = input.quantized,
                               .y = p.y,
                               .y_stride = input.y_stride,
                               .rows = input.rows},
                              {begin - first, end - first});
      first = last;
    }
  });
}

Activation kernel_activation(plan::Activation act) {
  switch (act) {
    case plan::Activation::kSilu: return Activation::kSilu;
    case plan::Activation::kGeluTanh: return Activation::kGeluTanh;
    case plan::Activation::kGeluErf: return Activation::kGeluErf;
    case plan::Activation::kSwigluOai: return Activation::kSwigluOai;
    case plan::Activation::kRelu2: return Activation::kRelu2;
    case plan::Activation::kXielu: return Activation::kXielu;
    case plan::Activation::kSiluClamped: return Activation::kSiluClamped;
  }
  ASSERT(false, "activation {}", static_cast<int>(act));
}

base::Result<> prepare(const plan::PrepareArgs& args) {
  return check_instruction(
      args, {.device = "CPU",
             .matrix_types = kCpuTables.capabilities[static_cast<std::size_t>(args.insn.opcode)].dtype_mask_weights,
             .positions_max = kPositionsMax,
             .conv_taps_max = kConvTapsMax});
}

}  // namespace llorch::engine::compute::cpu::adapters
