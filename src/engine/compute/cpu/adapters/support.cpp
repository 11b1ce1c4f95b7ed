#include "engine/compute/cpu/adapters/support.h"

#include <algorithm>
#include <array>

#include "engine/compute/adapter_checks.h"
#include "engine/compute/cpu/adapters/tables.h"

namespace llorch::engine::compute::cpu::adapters {

namespace {

// Work below which waking another thread costs more than it saves, in multiply-adds.
constexpr std::size_t kGrainProducts = 1u << 16;
constexpr std::size_t kFewRows = 8;  // more may be multiplied in pairs of groups

}  // namespace

std::size_t grain_of_groups(const CpuStream& stream, std::size_t groups, std::size_t width, std::size_t rows,
                            std::size_t parts, std::size_t most) {
  const std::size_t grain = kGrainProducts / (kPackRows * width * rows) + 1;
  if (rows <= kFewRows) return grain;
  const std::size_t pairs = std::min(groups / (parts * stream.pool.threads_count()), most) / 2;
  return 2 * std::max((grain + 1) / 2, pairs);
}

void multiply(const CpuStream& stream, const ProjectionInput& input, Range rows, const PackedMatrix& w, Range groups,
              float* y, std::size_t y_stride) {
  stream.kernels.matmul({.w = w,
                         .x = input.x + rows.begin * input.x_stride,
                         .x_stride = input.x_stride,
                         .xq = input.quantized.from(rows.begin),
                         .y = y,
                         .y_stride = y_stride,
                         .rows = rows.end - rows.begin},
                        groups);
}

bool quantize_input(const CpuStream& stream, const ProjectionInput& input, std::span<const CpuWeight* const> weights) {
  const bool needed = std::any_of(weights.begin(), weights.end(),
                                  [](const CpuWeight* weight) { return plan::is_quantized(weight->matrix.dtype); });
  if (needed && !input.has_quantized) {
    const QuantizeArgs args{.x = input.x, .x_stride = input.x_stride, .out = input.quantized};
    stream.pool.run(input.rows, kGrainProducts / 8 / input.quantized.width + 1,
                    [&](Range rows, std::size_t) { stream.kernels.quantize(args, rows); });
  }
  return needed;
}

void project(const CpuStream& stream, const ProjectionInput& input, std::span<const Projection> projections) {
  ASSERT(!projections.empty() && projections.size() <= 4, "{}", projections.size());
  std::array<const CpuWeight*, 4> weights;
  std::size_t groups = 0;
  for (std::size_t i = 0; i < projections.size(); ++i) {
    weights[i] = projections[i].weight;
    groups += weights[i]->matrix.groups();
  }
  const Products products{.rows = input.rows,
                          .width = weights[0]->matrix.cols,
                          .quantized = quantize_input(stream, input, std::span(weights).first(projections.size())),
                          .units = groups};
  for_panels(stream, products, [&](Range rows, Range range, std::size_t) {
    std::size_t first = 0;  // unit where a projection begins
    for (const Projection& p : projections) {
      const std::size_t last = first + p.weight->matrix.groups();
      const std::size_t begin = std::max(range.begin, first), end = std::min(range.end, last);
      if (begin < end)
        multiply(stream, input, rows, p.weight->matrix, {begin - first, end - first}, p.y + rows.begin * input.y_stride,
                 input.y_stride);
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
