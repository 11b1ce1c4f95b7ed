#include "batch_dependent_backend.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace llorch::determinism {
namespace {

using namespace engine::plan;

// Adapters are plain functions: what they stand in for has to be found without an object.
const AdapterTables* inner_tables = nullptr;

float sum_of_squares(const float* row, std::size_t width, std::size_t parts) {
  std::vector<float> partial(parts, 0.0F);
  for (std::size_t i = 0; i < width; ++i) partial[i % parts] += row[i] * row[i];
  float sum = 0;
  for (const float p : partial) sum += p;
  return sum;
}

Status batch_dependent_norm(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const Status status = inner_tables->run[static_cast<std::size_t>(Opcode::kRmsNorm)](ctx, insn);
  const auto& p = insn.param<RmsNormParams>();
  const std::size_t parts = std::min<std::size_t>(ctx.total_rows, p.width);
  for (std::size_t r = 0; r < ctx.total_rows; ++r) {
    const float* x = insn.input(0) + r * p.width;
    const float factor = std::sqrt(sum_of_squares(x, p.width, 1) / sum_of_squares(x, p.width, parts));
    std::for_each_n(insn.output(0) + r * p.width, p.width, [&](float& y) { y *= factor; });
  }
  return status;
}

// The inner backend's own functions expect the inner backend.
template <std::size_t kOpcode>
base::Result<> prepare(const PrepareArgs& args) {
  PrepareArgs inner{static_cast<BatchDependentBackend&>(args.backend).inner(),
                    args.insn,
                    args.params,
                    args.weights,
                    args.views,
                    args.limits};
  return inner_tables->prepare[kOpcode](inner);
}
template <std::size_t kOpcode>
std::uint64_t workspace(const ParamBlock& params, const StepLimits& limits, const Backend& backend) noexcept {
  return inner_tables->workspace_bytes[kOpcode](params, limits,
                                                static_cast<const BatchDependentBackend&>(backend).inner());
}
template <std::size_t... kOpcodes>
void redirect(AdapterTables& tables, std::index_sequence<kOpcodes...>) {
  ((tables.prepare[kOpcodes] = tables.prepare[kOpcodes] == nullptr ? nullptr : prepare<kOpcodes>), ...);
  ((tables.workspace_bytes[kOpcodes] = tables.workspace_bytes[kOpcodes] == nullptr ? nullptr : workspace<kOpcodes>),
   ...);
}

}  // namespace

BatchDependentBackend::BatchDependentBackend(std::unique_ptr<Backend> inner)
    : inner_(std::move(inner)), tables_(inner_->tables()) {
  inner_tables = &inner_->tables();
  redirect(tables_, std::make_index_sequence<kOpcodeTableSize>());
  tables_.run[static_cast<std::size_t>(Opcode::kRmsNorm)] = batch_dependent_norm;
}

}  // namespace llorch::determinism
