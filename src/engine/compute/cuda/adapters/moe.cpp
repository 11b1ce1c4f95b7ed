// Mixture of experts: router, choice, the chosen experts' feed-forwards, shared expert. A row and one expert it chose are a
// pair; pairs are rows of their own. Few of them name their matrix of the stack, many are sorted by expert on the device first, so
// that an expert's weights are read once for all of its pairs. Nothing of the choice is read back.
#include <algorithm>
#include <array>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/feed_forward.h"

namespace llorch::engine::compute::cuda::adapters::moe {

using plan::Backend;
using plan::ExecutionContext;
using plan::MoeParams;
using plan::MoeSlot;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

// Rows whose pairs are worked on at a time: all of a step of decode, while a long one needs no k-fold copy of its rows.
constexpr std::uint32_t kRowsAtOnce = 512;
// Pairs of one expert that a tile has at most: by the pairs an expert gets on average.
constexpr std::uint32_t kFewPairs = kernels::kPlainTile;
constexpr std::uint32_t kManyPairs = 64;

// Pairs of one row share its x, unless each weighs it.
std::uint32_t rows_per_x(const MoeParams& p) { return p.weighs_inputs != 0 ? 1 : p.experts_used; }

struct Scratch {
  Scratch(Arena& arena, const MoeParams& p, const float* input, std::uint64_t rows)
      : Scratch(arena, p, input, rows, std::min<std::uint64_t>(rows, kRowsAtOnce) * p.experts_used) {}
  Scratch(Arena& arena, const MoeParams& p, const float* input, std::uint64_t rows, std::uint64_t pairs)
      : staged(arena.take_staged(input, rows, p.width)),
        logits(arena.take<float>(rows * p.experts)),
        experts(arena.take<std::uint32_t>(rows * p.experts_used)),
        weights(arena.take<float>(rows * p.experts_used)),
        router_x(arena.take_narrowed(rows, p.width)),
        latent(arena.take_narrowed(p.latent != 0 ? rows : 0, p.latent)),
        latent_x(arena.take<float>(rows * p.latent)),
        latent_y(arena.take<float>(rows * p.latent)),
        pair_at(arena.take<std::uint32_t>(pairs)),
        tiles(arena.take<kernels::RowTile>(pairs / kFewPairs + p.experts)),
        pairs_ffn(arena, {.width = p.expert_width(),
                          .ffn = p.ffn_expert,
                          .gated = p.ungated == 0,
                          .rows = pairs,
                          .rows_per_x = rows_per_x(p)}),
        pairs_x(arena.take<float>(p.weighs_inputs != 0 ? pairs * p.expert_width() : 0)),
        pairs_y(arena.take<float>(pairs * p.expert_width())),
        shared(arena,
               {.width = p.width, .ffn = p.ffn_shared, .gated = p.ungated == 0, .rows = p.ffn_shared != 0 ? rows : 0}),
        shared_y(arena.take<float>(p.ffn_shared != 0 ? rows * p.width : 0)),
        shared_gate(arena.take<float>(p.has_shared_gate != 0 ? rows : 0)) {}
  Arena::Staged staged;
  float* logits;           // [T, E]
  std::uint32_t* experts;  // [T, k], ascending in every row
  float* weights;          // [T, k]
  Arena::Narrowed router_x;
  Arena::Narrowed latent;
  float* latent_x;         // [T, W], W being the latent width
  float* latent_y;         // [T, W]
  std::uint32_t* pair_at;  // [pairs at once], by expert
  kernels::RowTile* tiles;
  FeedForwardScratch pairs_ffn;
  float* pairs_x;  // [pairs at once, D or W], where weights count on the inputs
  float* pairs_y;  // [pairs at once, D or W]
  FeedForwardScratch shared;
  float* shared_y;     // [T, D]
  float* shared_gate;  // [T]
};

const CudaWeight* matrix_of(const PreparedInsn& insn, MoeSlot which) { return weight_of(insn.weight(which)); }

void route(const ExecutionContext& ctx, const PreparedInsn& insn, const MoeParams& p, const Scratch& scratch) {
  const CudaStream& stream = stream_of(ctx);
  project(stream,
          {.x = insn.input(p.router_apart != 0 ? 1 : 0),
           .x_stride = p.width,
           .rows = ctx.total_rows,
           .narrowed = scratch.router_x,
           .staged = p.router_apart != 0 ? Arena::Staged{} : scratch.staged,
           .y_stride = p.experts},
          std::array{Projection{matrix_of(insn, MoeSlot::kRouter), scratch.logits,
                                vector_of(insn.weight(MoeSlot::kRouterBias))}});
  stream.launch<kernels::Route>({ctx.total_rows}, {.logits = scratch.logits,
                                                   .selection_bias = vector_of(insn.weight(MoeSlot::kSelectionBias)),
                                                   .table = vector_of(insn.weight(MoeSlot::kExpertTable)),
                                                   .row_ids = ctx.row_ids,
                                                   .expert_scale = vector_of(insn.weight(MoeSlot::kExpertScale)),
                                                   .experts = scratch.experts,
                                                   .weights = scratch.weights,
                                                   .params = p});
}

// Whom the pairs of a step's rows meet, and in which tiles.
RowMatrices group_pairs(const CudaStream& stream, const FeedForward& ffn, const MoeParams& p, const Scratch& scratch,
                        const std::uint32_t* experts, std::uint32_t pairs) {
  RowMatrices own{.matrix_of_row = experts};
  if (pairs <= p.experts) return own;
  const bool plain = std::ranges::any_of(std::array{ffn.gate, ffn.up, ffn.down}, [](const CudaWeight* w) {
    return w != nullptr && w->dtype == plan::DType::kF32;
  });
  own.tile_rows = plain || pairs / p.experts <= kFewPairs ? kFewPairs : kManyPairs;
  own.tiles = scratch.tiles;
  own.tiles_count = pairs / own.tile_rows + p.experts;
  own.row_at = scratch.pair_at;
  stream.launch<kernels::GroupPairs>({p.experts}, {.experts = experts,
                                                   .pairs = pairs,
                                                   .tile_rows = own.tile_rows,
                                                   .pair_at = scratch.pair_at,
                                                   .tiles = scratch.tiles});
  return own;
}

// To the sums of rows from `first` on.
void add_shared(const MoeParams& p, const Scratch& scratch, std::uint32_t first, kernels::CombineArgs& sum) {
  if (p.ffn_shared != 0) sum.shared_rows = scratch.shared_y + std::uint64_t{first} * p.width;
  if (p.has_shared_gate != 0) sum.shared_gate = scratch.shared_gate + first;
}

void run_experts(const ExecutionContext& ctx, const PreparedInsn& insn, const MoeParams& p, const Scratch& scratch) {
  const CudaStream& stream = stream_of(ctx);
  const FeedForward experts{.width = p.expert_width(),
                            .ffn = p.ffn_expert,
                            .gate = matrix_of(insn, MoeSlot::kGate),
                            .up = matrix_of(insn, MoeSlot::kUp),
                            .down = matrix_of(insn, MoeSlot::kDown),
                            .gate_bias = vector_of(insn.weight(MoeSlot::kGateBias)),
                            .up_bias = vector_of(insn.weight(MoeSlot::kUpBias)),
                            .down_bias = vector_of(insn.weight(MoeSlot::kDownBias)),
                            .act = p.act,
                            .alpha = p.alpha,
                            .limit = p.limit};
  for (std::uint32_t first = 0; first < ctx.total_rows; first += kRowsAtOnce) {
    const std::uint32_t rows = std::min(kRowsAtOnce, ctx.total_rows - first);
    const std::uint64_t first_pair = std::uint64_t{first} * p.experts_used;
    const std::uint64_t at = std::uint64_t{first} * p.expert_width();
    const float* x = (p.latent != 0 ? scratch.latent_x : insn.input(0)) + at;
    const RowMatrices own =
        group_pairs(stream, experts, p, scratch, scratch.experts + first_pair, rows * p.experts_used);
    if (p.weighs_inputs != 0)
      stream.launch<kernels::WeighPairs>(
          {blocks_of(p.expert_width(), kernels::WeighPairs::kThreads), rows * p.experts_used},
          {.x = x,
           .weights = scratch.weights + first_pair,
           .y = scratch.pairs_x,
           .width = p.expert_width(),
           .used = p.experts_used});
    feed_forward(stream, experts, scratch.pairs_ffn,
                 {.x = p.weighs_inputs != 0 ? scratch.pairs_x : x,
                  .y = scratch.pairs_y,
                  .rows = rows * p.experts_used,
                  .rows_per_x = rows_per_x(p),
                  .own = &own,
                  .staged = p.weighs_inputs != 0 || p.latent != 0 ? Arena::Staged{} : scratch.staged.from_row(first)});
    kernels::CombineArgs sum{.expert_rows = scratch.pairs_y,
                             .weights = p.weighs_inputs != 0 ? nullptr : scratch.weights + first_pair,
                             .y = (p.latent != 0 ? scratch.latent_y : insn.output(0)) + at,
                             .width = p.expert_width(),
                             .used = p.experts_used};
    if (p.latent == 0) add_shared(p, scratch, first, sum);
    stream.launch<kernels::Combine>({blocks_of(p.expert_width(), kernels::Combine::kThreads), rows}, sum);
  }
}

// From the sums of the experts to the instruction's rows, and the shared expert on top.
void leave_latent(const ExecutionContext& ctx, const PreparedInsn& insn, const MoeParams& p, const Scratch& scratch) {
  const CudaStream& stream = stream_of(ctx);
  project(stream,
          {.x = scratch.latent_y,
           .x_stride = p.latent,
           .rows = ctx.total_rows,
           .narrowed = scratch.latent,
           .staged = {},
           .y_stride = p.width},
          std::array{Projection{matrix_of(insn, MoeSlot::kLatentUp), insn.output(0)}});
  if (p.ffn_shared == 0) return;
  kernels::CombineArgs sum{.expert_rows = insn.output(0), .y = insn.output(0), .width = p.width, .used = 1};
  add_shared(p, scratch, 0, sum);
  stream.launch<kernels::Combine>({blocks_of(p.width, kernels::Combine::kThreads), ctx.total_rows}, sum);
}

}  // namespace

Status MoeAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<MoeParams>();
  const CudaStream& stream = stream_of(ctx);
  Arena arena(ctx);
  const Scratch scratch(arena, p, insn.input(0), ctx.total_rows);
  route(ctx, insn, p, scratch);
  if (p.ffn_shared != 0)
    feed_forward(stream,
                 {.width = p.width,
                  .ffn = p.ffn_shared,
                  .gate = matrix_of(insn, MoeSlot::kSharedGate),
                  .up = matrix_of(insn, MoeSlot::kSharedUp),
                  .down = matrix_of(insn, MoeSlot::kSharedDown),
                  .act = p.act,
                  .alpha = p.alpha,
                  .limit = p.limit},
                 scratch.shared,
                 {.x = insn.input(0), .y = scratch.shared_y, .rows = ctx.total_rows, .staged = scratch.staged});
  if (p.has_shared_gate != 0)
    project(stream,
            {.x = insn.input(0),
             .x_stride = p.width,
             .rows = ctx.total_rows,
             .narrowed = scratch.router_x,
             .staged = scratch.staged,
             .y_stride = 1},
            std::array{Projection{matrix_of(insn, MoeSlot::kSharedRouter), scratch.shared_gate}});
  if (p.latent != 0)
    project(stream,
            {.x = insn.input(0),
             .x_stride = p.width,
             .rows = ctx.total_rows,
             .narrowed = scratch.router_x,
             .staged = scratch.staged,
             .y_stride = p.latent},
            std::array{Projection{matrix_of(insn, MoeSlot::kLatentDown), scratch.latent_x}});
  run_experts(ctx, insn, p, scratch);
  if (p.latent != 0) leave_latent(ctx, insn, p, scratch);
  return stream.status();
}

std::uint64_t MoeAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits, const Backend&) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<MoeParams>(params), nullptr, limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cuda::adapters::moe
