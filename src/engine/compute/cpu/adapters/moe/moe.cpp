// Mixture of experts: router, choice, the chosen experts' feed-forwards, shared expert.
//
// Rows are sorted by expert, so an expert's weights are read once however many rows chose it. The results go to their rows
// in ascending order of the expert's number: what a row gets does not depend on who else was there.
#include "engine/compute/cpu/adapters/moe/moe.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/compute/cpu/adapters/feed_forward.h"
#include "engine/compute/cpu/adapters/moe/routing.h"
#include "engine/compute/cpu/adapters/support.h"

namespace llorch::engine::compute::cpu::adapters::moe {

using plan::Backend;
using plan::ExecutionContext;
using plan::MoeParams;
using plan::MoeSlot;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

// Elements (an exponential each) below which a region stays on the caller.
constexpr std::size_t kGrainElements = 1u << 13;

// A pair is a row and one expert it chose. Experts are worked on in batches of at most max(pairs of one expert, this) pairs:
// enough for all choices of a small step to share their parallel regions, while a large step needs no k-fold copy of its rows.
constexpr std::size_t kPairsAtOnce = 256;

// A router chooses an expert once for a row; a row of a table may name the same one k times.
std::size_t batch_pairs_max(const MoeParams& p, std::size_t rows) {
  const std::size_t pairs = rows * p.experts_used, of_an_expert = p.table_rows != 0 ? pairs : rows;
  return std::max(of_an_expert, std::min(pairs, kPairsAtOnce));
}

struct Scratch {
  Scratch(Arena& arena, const MoeParams& p, std::size_t rows, std::size_t threads)
      : Scratch(arena, p, rows, threads, batch_pairs_max(p, rows)) {}
  Scratch(Arena& arena, const MoeParams& p, std::size_t rows, std::size_t threads, std::size_t batch_pairs)
      : x(arena.take_quantized(rows, p.width)),
        latent_x(arena.take<float>(rows * p.latent)),
        expert_x(p.latent != 0 ? arena.take_quantized(rows, p.latent) : x),
        latent_y(arena.take<float>(rows * p.latent)),
        logits(arena.take<float>(rows * p.experts)),
        experts(arena.take<std::uint32_t>(rows * p.experts_used)),
        weights(arena.take<float>(rows * p.experts_used)),
        pairs(arena.take<std::uint32_t>(rows * p.experts_used)),
        row_of_pair(arena.take<std::uint32_t>(rows * p.experts_used)),
        first_pair(arena.take<std::uint32_t>(p.experts + std::size_t{1})),
        scores(arena.take<float>(threads * p.experts)),
        group_scores(arena.take<float>(threads * p.groups)),
        best(arena.take<float>(threads * std::max(p.experts_used, p.groups))),
        groups(arena.take<std::uint32_t>(threads * p.groups)),
        batch_x(arena.take<float>(batch_pairs * p.expert_width())),
        batch_quantized(arena.take_quantized(batch_pairs, p.expert_width())),
        up_gate(arena.take<float>(batch_pairs * 2 * p.ffn_expert)),
        hidden_quantized(arena.take_quantized(batch_pairs, p.ffn_expert)),
        batch_y(arena.take<float>(batch_pairs * p.expert_width())),
        shared(arena, p.width, p.ffn_shared, p.ffn_shared != 0 ? rows : 0, threads),
        shared_y(arena.take<float>(p.ffn_shared != 0 ? rows * p.width : 0)),
        shared_weights(arena.take<float>(p.has_shared_gate != 0 ? rows : 0)) {}
  QuantizedRows x;
  float* latent_x;             // [T, W], W being the latent width
  QuantizedRows expert_x;      // [T, W] or x: what the experts read
  float* latent_y;             // [T, W]
  float* logits;               // [T, E]
  std::uint32_t* experts;      // [T, k], ascending in every row
  float* weights;              // [T, k]
  std::uint32_t* pairs;        // [T, k], the pair of the row and its expert
  std::uint32_t* row_of_pair;  // [T k], pairs in ascending order of the expert, then of the row
  std::uint32_t* first_pair;   // [E + 1]
  float* scores;               // [threads, E]
  float* group_scores;         // [threads, groups]
  float* best;                 // [threads, max(k, groups)]
  std::uint32_t* groups;       // [threads, groups]
  float* batch_x;              // [pairs of the batch, D or W]
  QuantizedRows batch_quantized;
  float* up_gate;  // [pairs of the batch, 2F]: up, then gate
  QuantizedRows hidden_quantized;
  float* batch_y;  // [pairs of the batch, D or W]
  FeedForwardScratch shared;
  float* shared_y;        // [T, D]
  float* shared_weights;  // [T]
};

// Consecutive experts and their pairs.
struct Batch {
  Range experts, pairs;
};

// One moe instruction over one step.
class Moe {
 public:
  Moe(const ExecutionContext& ctx, const PreparedInsn& insn)
      : ctx_(ctx),
        stream_(stream_of(ctx)),
        insn_(insn),
        p_(insn.param<MoeParams>()),
        rows_(ctx.total_rows),
        arena_(ctx.workspace),
        scratch_(arena_, p_, rows_, stream_.pool.threads_count()) {}

  void run() {
    route();
    sort_pairs();
    if (p_.latent != 0) project_latent(insn_.input(0), p_.width, scratch_.x, MoeSlot::kLatentDown, scratch_.latent_x);
    if (shares_rows()) quantize_rows();
    std::memset(expert_sums(), 0, rows_ * expert_width() * sizeof(float));
    const std::size_t pairs_max = batch_pairs_max(p_, rows_);
    for (std::size_t first = 0, last; first < p_.experts; first = last) {
      for (last = first + 1; last < p_.experts; ++last)
        if (scratch_.first_pair[last + 1] - scratch_.first_pair[first] > pairs_max) break;
      const Batch batch{{first, last}, {scratch_.first_pair[first], scratch_.first_pair[last]}};
      if (batch.pairs.begin != batch.pairs.end) run_batch(batch);
    }
    if (p_.latent != 0)
      project_latent(scratch_.latent_y, p_.latent, scratch_.expert_x, MoeSlot::kLatentUp, insn_.output(0));
    if (p_.ffn_shared != 0) add_shared();
  }

 private:
  const CpuWeight& weight(MoeSlot slot) const { return *weight_of(insn_.weight(slot)); }
  const float* vector(MoeSlot slot) const { return vector_of(insn_.weight(slot)); }
  bool gated() const { return p_.ungated == 0; }
  // What the experts read and write: the instruction's own rows, or those between the two projections.
  std::size_t expert_width() const { return p_.expert_width(); }
  const float* expert_rows() const { return p_.latent != 0 ? scratch_.latent_x : insn_.input(0); }
  float* expert_sums() const { return p_.latent != 0 ? scratch_.latent_y : insn_.output(0); }
  static bool quantized(const CpuWeight& weight) { return plan::is_quantized(weight.matrix.dtype); }
  std::size_t pairs_of(std::size_t expert) const {
    return scratch_.first_pair[expert + 1] - scratch_.first_pair[expert];
  }

  void route() {
    project(stream_,
            {.x = insn_.input(p_.router_apart != 0 ? 1 : 0),
             .x_stride = p_.width,
             .rows = rows_,
             .quantized = scratch_.x,
             .y_stride = p_.experts},
            std::array{Projection{&weight(MoeSlot::kRouter), scratch_.logits}});
    const float* bias = vector(MoeSlot::kRouterBias);
    const float* table = vector(MoeSlot::kExpertTable);
    stream_.pool.run(rows_, kGrainElements / p_.experts + 1, [&](Range range, std::size_t thread) {
      if (bias != nullptr)
        stream_.kernels.add_bias({.x = scratch_.logits, .x_stride = p_.experts, .width = p_.experts, .bias = bias},
                                 range);
      const RouteScratch scratch{.scores = scratch_.scores + thread * p_.experts,
                                 .group_scores = scratch_.group_scores + thread * p_.groups,
                                 .best = scratch_.best + thread * std::max(p_.experts_used, p_.groups),
                                 .groups = scratch_.groups + thread * p_.groups};
      RouteRules rules{.selection_bias = vector(MoeSlot::kSelectionBias),
                       .expert_scale = vector(MoeSlot::kExpertScale)};
      for (std::size_t row = range.begin; row < range.end; ++row) {
        if (table != nullptr) rules.table_row = table + std::size_t{ctx_.row_ids[row]} * p_.experts_used;
        route_row(stream_.kernels, p_, scratch_.logits + row * p_.experts, rules, scratch,
                  {scratch_.experts + row * p_.experts_used, scratch_.weights + row * p_.experts_used});
      }
    });
  }

  void project_latent(const float* x, std::size_t width, const QuantizedRows& quantized, MoeSlot slot, float* y) {
    const CpuWeight& matrix = weight(slot);
    project(stream_, {.x = x, .x_stride = width, .rows = rows_, .quantized = quantized, .y_stride = matrix.matrix.rows},
            std::array{Projection{&matrix, y}});
  }

  // Counting sort by expert, rows of one expert in ascending order.
  void sort_pairs() {
    const std::size_t count = rows_ * p_.experts_used;
    std::fill_n(scratch_.first_pair, p_.experts + std::size_t{1}, 0u);
    for (std::size_t i = 0; i < count; ++i) ++scratch_.first_pair[scratch_.experts[i] + 1];
    for (std::size_t e = 0; e < p_.experts; ++e) scratch_.first_pair[e + 1] += scratch_.first_pair[e];
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t pair = scratch_.first_pair[scratch_.experts[i]]++;
      scratch_.pairs[i] = pair;
      scratch_.row_of_pair[pair] = static_cast<std::uint32_t>(i / p_.experts_used);
    }
    for (std::size_t e = p_.experts; e > 0; --e) scratch_.first_pair[e] = scratch_.first_pair[e - 1];
    scratch_.first_pair[0] = 0;
  }

  void run_batch(const Batch& batch) {
    const std::size_t count = batch.pairs.end - batch.pairs.begin, hidden_stride = 2 * std::size_t{p_.ffn_expert};
    gather(batch);
    const std::array stacks{&weight(MoeSlot::kUp), gated() ? &weight(MoeSlot::kGate) : nullptr};
    multiply(batch, std::span(stacks).first(gated() ? 2 : 1),
             {.x = scratch_.batch_x,
              .x_stride = expert_width(),
              .xq = scratch_.batch_quantized,
              .y = scratch_.up_gate,
              .y_stride = hidden_stride});
    stream_.pool.run(count, kGrainElements / p_.ffn_expert + 1,
                     [&](Range pairs, std::size_t) { activate(batch, pairs); });
    multiply(batch, std::array{&weight(MoeSlot::kDown)},
             {.x = scratch_.up_gate,
              .x_stride = hidden_stride,
              .xq = scratch_.hidden_quantized,
              .y = scratch_.batch_y,
              .y_stride = expert_width()});
    stream_.pool.run(rows_, kGrainElements / expert_width() + 1,
                     [&](Range rows, std::size_t) { combine(batch, rows); });
  }

  bool takes_quantized(MoeSlot slot) const { return quantized(weight(slot)); }
  // All experts see the same blocks of a row: it is quantized once, however many it chose.
  bool shares_rows() const {
    return p_.weighs_inputs == 0 && takes_quantized(MoeSlot::kUp) && (!gated() || takes_quantized(MoeSlot::kGate));
  }

  void quantize_rows() {
    stream_.pool.run(rows_, kGrainElements / expert_width() + 1, [&](Range rows, std::size_t) {
      stream_.kernels.quantize({.x = expert_rows(), .x_stride = expert_width(), .out = scratch_.expert_x}, rows);
    });
  }

  // Puts the rows of the batch's pairs one behind the other.
  void gather(const Batch& batch) {
    const std::uint32_t* rows = scratch_.row_of_pair + batch.pairs.begin;
    const bool shares = shares_rows();
    stream_.pool.run(batch.pairs.end - batch.pairs.begin, kGrainElements / expert_width() + 1,
                     [&](Range pairs, std::size_t) {
                       for (std::size_t i = pairs.begin; shares && i < pairs.end; ++i)
                         std::copy_n(scratch_.expert_x.row(rows[i]), scratch_.expert_x.row_blocks(),
                                     scratch_.batch_quantized.blocks + i * scratch_.batch_quantized.row_blocks());
                       if (!shares) gather_floats(batch, pairs);
                     });
  }

  void gather_floats(const Batch& batch, Range pairs) {
    const std::uint32_t* rows = scratch_.row_of_pair + batch.pairs.begin;
    for (std::size_t i = pairs.begin; i < pairs.end; ++i)
      std::memcpy(scratch_.batch_x + i * expert_width(), expert_rows() + rows[i] * expert_width(),
                  expert_width() * sizeof(float));
    if (p_.weighs_inputs != 0) weigh_inputs(batch, pairs);
    if (takes_quantized(MoeSlot::kUp) || (gated() && takes_quantized(MoeSlot::kGate)))
      stream_.kernels.quantize({.x = scratch_.batch_x, .x_stride = expert_width(), .out = scratch_.batch_quantized},
                               pairs);
  }

  void weigh_inputs(const Batch& batch, Range pairs) {
    for (std::size_t i = pairs.begin; i < pairs.end; ++i) {
      const std::size_t pair = batch.pairs.begin + i, row = scratch_.row_of_pair[pair];
      const std::uint32_t* own = scratch_.pairs + row * p_.experts_used;
      const auto choice = static_cast<std::size_t>(std::find(own, own + p_.experts_used, pair) - own);
      stream_.kernels.scale_softcap(
          {.y = scratch_.batch_x + i * expert_width(), .scale = scratch_.weights[row * p_.experts_used + choice]},
          {0, expert_width()});
    }
  }

  // Every expert of the batch times its rows, for stacks of one shape; the outputs of the stacks stand side by side. Each
  // part takes the same share of every expert's outputs: experts differ in rows, so whole ones would not balance.
  void multiply(const Batch& batch, std::span<const CpuWeight* const> stacks, const MatmulArgs& all) {
    const std::size_t groups = stacks[0]->matrix.groups(), outputs = stacks[0]->matrix.rows;
    // A part visits every expert, each with few rows: parts are larger than those of one matrix.
    constexpr std::size_t kParts = 8;
    const std::size_t grain = grain_of_groups(stream_, groups, stacks[0]->matrix.cols,
                                              stacks.size() * (batch.pairs.end - batch.pairs.begin), kParts, groups);
    stream_.pool.run(groups, grain, [&](Range share, std::size_t) {
      for (std::size_t e = batch.experts.begin; e < batch.experts.end; ++e) {
        if (pairs_of(e) == 0) continue;
        const std::size_t first = scratch_.first_pair[e] - batch.pairs.begin;
        MatmulArgs args = all;
        args.x += first * all.x_stride;
        args.xq = all.xq.from(first);
        args.rows = pairs_of(e);
        for (std::size_t i = 0; i < stacks.size(); ++i) {
          args.w = stacks[i]->matrix_at(e);
          args.y = all.y + first * all.y_stride + i * outputs;
          stream_.kernels.matmul(args, share);
        }
      }
    });
  }

  // Adds row `expert` of a [E, width] bias to those of `pairs` (of the batch) that belong to the expert.
  void add_expert_bias(const Batch& batch, MoeSlot slot, float* x, Range pairs) {
    const float* bias = vector(slot);
    if (bias == nullptr) return;
    const std::size_t width = p_.ffn_expert;
    for (std::size_t e = batch.experts.begin; e < batch.experts.end; ++e) {
      const Range own{std::max<std::size_t>(pairs.begin, scratch_.first_pair[e] - batch.pairs.begin),
                      std::min<std::size_t>(pairs.end, scratch_.first_pair[e + 1] - batch.pairs.begin)};
      if (own.begin < own.end)
        stream_.kernels.add_bias({.x = x, .x_stride = 2 * width, .width = width, .bias = bias + e * width}, own);
    }
  }

  void activate(const Batch& batch, Range pairs) {
    const std::size_t stride = 2 * std::size_t{p_.ffn_expert};
    float* up = scratch_.up_gate;
    float* gate = up + p_.ffn_expert;
    add_expert_bias(batch, MoeSlot::kUpBias, up, pairs);
    if (gated()) add_expert_bias(batch, MoeSlot::kGateBias, gate, pairs);
    stream_.kernels.swiglu({.gate = gated() ? gate : up,
                            .up = gated() ? up : nullptr,
                            .x_stride = stride,
                            .y = up,
                            .y_stride = stride,
                            .width = p_.ffn_expert,
                            .act = kernel_activation(p_.act),
                            .alpha = p_.alpha,
                            .limit = p_.limit},
                           pairs);
    if (quantized(weight(MoeSlot::kDown)))
      stream_.kernels.quantize({.x = up, .x_stride = stride, .out = scratch_.hidden_quantized}, pairs);
  }

  // y[row] += weight * (expert's row + bias) for the row's choices in this batch, in ascending order.
  void combine(const Batch& batch, Range rows) {
    const float* bias = vector(MoeSlot::kDownBias);
    const std::size_t width = expert_width();
    for (std::size_t row = rows.begin; row < rows.end; ++row) {
      float* y = expert_sums() + row * width;
      for (std::size_t i = row * p_.experts_used; i < (row + 1) * p_.experts_used; ++i) {
        if (scratch_.pairs[i] < batch.pairs.begin || scratch_.pairs[i] >= batch.pairs.end) continue;
        float* expert_y = scratch_.batch_y + (scratch_.pairs[i] - batch.pairs.begin) * width;
        if (bias != nullptr)
          stream_.kernels.add_bias({.x = expert_y, .width = width, .bias = bias + scratch_.experts[i] * width}, {0, 1});
        stream_.kernels.residual_add(
            {.a = y, .b = expert_y, .y = y, .scale = p_.weighs_inputs != 0 ? 1.0f : scratch_.weights[i]}, {0, width});
      }
    }
  }

  void add_shared() {
    const FeedForward ffn{.width = p_.width,
                          .ffn = p_.ffn_shared,
                          .gate = gated() ? &weight(MoeSlot::kSharedGate) : nullptr,
                          .up = &weight(MoeSlot::kSharedUp),
                          .down = &weight(MoeSlot::kSharedDown),
                          .act = kernel_activation(p_.act),
                          .alpha = p_.alpha,
                          .limit = p_.limit};
    feed_forward(stream_, ffn, scratch_.shared, {.x = insn_.input(0), .y = scratch_.shared_y, .rows = rows_});
    if (p_.has_shared_gate != 0) return add_gated_shared();
    const ResidualAddArgs add{.a = insn_.output(0), .b = scratch_.shared_y, .y = insn_.output(0)};
    stream_.pool.run(rows_ * p_.width, kGrainElements,
                     [&](Range range, std::size_t) { stream_.kernels.residual_add(add, range); });
  }

  // y += sigmoid(router * x) * shared
  void add_gated_shared() {
    project(stream_, {.x = insn_.input(0), .x_stride = p_.width, .rows = rows_, .quantized = scratch_.x, .y_stride = 1},
            std::array{Projection{&weight(MoeSlot::kSharedRouter), scratch_.shared_weights}});
    stream_.pool.run(rows_, kGrainElements / p_.width + 1, [&](Range rows, std::size_t) {
      stream_.kernels.probabilities({.x = scratch_.shared_weights, .width = 1, .kind = Probabilities::kSigmoid}, rows);
      for (std::size_t row = rows.begin; row < rows.end; ++row) {
        float* y = insn_.output(0) + row * p_.width;
        stream_.kernels.residual_add(
            {.a = y, .b = scratch_.shared_y + row * p_.width, .y = y, .scale = scratch_.shared_weights[row]},
            {0, p_.width});
      }
    });
  }

  const ExecutionContext& ctx_;
  const CpuStream& stream_;
  const PreparedInsn& insn_;
  const MoeParams& p_;
  std::size_t rows_;
  Arena arena_;
  Scratch scratch_;
};

}  // namespace

Status MoeAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  Moe(ctx, insn).run();
  return Status::ok();
}

std::uint64_t MoeAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                          const Backend& backend) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<MoeParams>(params), limits.rows_max,
          static_cast<const CpuBackend&>(backend).threads_count());
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::moe
