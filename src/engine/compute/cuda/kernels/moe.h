#pragma once
// Which experts a row goes to, and what they gave it. Steps as numerics.md has them under `moe`.
#include "engine/compute/cuda/kernels/matmul/matmul.h"

namespace llorch::engine::compute::cuda::kernels {

inline constexpr std::uint32_t kExpertsMax = 1024;
inline constexpr std::uint32_t kExpertsUsedMax = 64;
inline constexpr std::uint32_t kExpertGroupsMax = 64;

// The `count` largest of scores[0, size), largest first, equal ones by lower number.
LLORCH_KERNEL void choose_largest(const float* scores, std::uint32_t size, float* best, std::uint32_t* out,
                                  std::uint32_t count) {
  std::uint32_t held = 0;
  for (std::uint32_t i = 0; i < size; ++i) {
    const float score = scores[i];
    if (held == count && !(score > best[count - 1])) continue;
    std::uint32_t at = held < count ? held++ : count - 1;
    for (; at > 0 && score > best[at - 1]; --at) best[at] = best[at - 1], out[at] = out[at - 1];
    best[at] = score, out[at] = i;
  }
}
LLORCH_KERNEL void sort_ascending(std::uint32_t* values, std::uint32_t count) {
  for (std::uint32_t i = 1; i < count; ++i) {
    const std::uint32_t value = values[i];
    std::uint32_t at = i;
    for (; at > 0 && values[at - 1] > value; --at) values[at] = values[at - 1];
    values[at] = value;
  }
}

// Grid: rows.
struct RouteArgs {
  const float* logits = nullptr;          // [rows, experts], bias included
  const float* selection_bias = nullptr;  // [experts] or null; steers the choice, not the weights
  const float* table = nullptr;  // [., used] or null: row row_ids[r] says which experts, whatever the logits are
  const std::uint32_t* row_ids = nullptr;  // [rows]
  const float* expert_scale = nullptr;     // [experts] or null; on the weights
  std::uint32_t* experts = nullptr;        // [rows, used], ascending
  float* weights = nullptr;                // [rows, used]
  plan::MoeParams params{};                // REQUIRES: routable
};
struct Route {
  using Args = RouteArgs;
  static constexpr std::uint32_t kThreads = 128;
  struct Shared {
    LaneSum sum;
    float shares[kExpertsMax];
    float scores[kExpertsMax];
    float largest;
    float best[kExpertsUsedMax];
    std::uint32_t chosen[kExpertsUsedMax];
    float group_scores[kExpertGroupsMax];
    std::uint32_t groups[kExpertGroupsMax];
    std::uint32_t leader, near, at;  // the best expert; of shares: those near it, and its place among them
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const plan::MoeParams& p = args.params;
    const float* logits = args.logits + std::uint64_t{block.x()} * p.experts;
    if (p.gate == plan::MoeGate::kSparseMixer) {
      choose_in_turn(block, shared, p, logits);
    } else {
      choose_together(block, shared, args, logits);
    }
    block.each([&](std::uint32_t thread) {
      if (thread == 0) write(shared, args, std::uint64_t{block.x()} * p.experts_used);
    });
  }

 private:
  template <class Block>
  static LLORCH_KERNEL void choose_in_turn(Block& block, Shared& shared, const plan::MoeParams& p,
                                           const float* logits) {
    for (std::uint32_t j = 0; j < p.experts_used; ++j) {
      block.each([&](std::uint32_t thread) {
        if (thread == 0) gather_near(shared, p, logits, j);
      });
      softmax(block, shared, shared.shares, shared.near);
      block.each([&](std::uint32_t thread) {
        if (thread != 0) return;
        const std::uint32_t best = shared.leader;
        std::uint32_t place = j;  // ascending
        for (; place > 0 && shared.chosen[place - 1] > best; --place)
          shared.chosen[place] = shared.chosen[place - 1], shared.best[place] = shared.best[place - 1];
        shared.chosen[place] = best, shared.best[place] = shared.shares[shared.at];
      });
    }
  }
  // The best expert of those that are none of the first `count` chosen, and the logits near it.
  static LLORCH_KERNEL void gather_near(Shared& shared, const plan::MoeParams& p, const float* logits,
                                        std::uint32_t count) {
    const auto is_open = [&](std::uint32_t e) {
      for (std::uint32_t i = 0; i < count; ++i)
        if (shared.chosen[i] == e) return false;
      return true;
    };
    std::uint32_t best = 0;
    while (!is_open(best)) ++best;
    for (std::uint32_t e = best + 1; e < p.experts; ++e)
      if (logits[e] > logits[best] && is_open(e)) best = e;
    shared.leader = best, shared.near = 0;
    const float largest = logits[best];
    for (std::uint32_t e = 0; e < p.experts; ++e) {
      const float size = magnitude(logits[e]), far = divide(largest - logits[e], size < largest ? largest : size);
      if (far > p.reach || !is_open(e)) continue;
      if (e == best) shared.at = shared.near;
      shared.shares[shared.near++] = logits[e];
    }
  }
  template <class Block>
  static LLORCH_KERNEL void choose_together(Block& block, Shared& shared, const Args& args, const float* logits) {
    const plan::MoeParams& p = args.params;
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t e = thread; e < p.experts; e += kThreads)
        shared.shares[e] = p.gate == plan::MoeGate::kSigmoid        ? sigmoid(logits[e])
                           : p.gate == plan::MoeGate::kSqrtSoftplus ? square_root(softplus(logits[e]))
                                                                    : logits[e];
    });
    if (p.gate == plan::MoeGate::kSoftmax) softmax(block, shared, shared.shares, p.experts);
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t e = thread; e < p.experts; e += kThreads)
        shared.scores[e] =
            args.selection_bias != nullptr ? shared.shares[e] + args.selection_bias[e] : shared.shares[e];
    });
    block.each([&](std::uint32_t thread) {
      if (thread != 0) return;
      if (args.table != nullptr) {
        const float* named = args.table + std::uint64_t{args.row_ids[block.x()]} * p.experts_used;
        for (std::uint32_t j = 0; j < p.experts_used; ++j)  // whole numbers; what a file says may be too much
          shared.chosen[j] = smaller(static_cast<std::uint32_t>(named[j]), p.experts - 1);
      } else {
        if (p.groups != 0) keep_best_groups(shared, p);
        choose_largest(shared.scores, p.experts, shared.best, shared.chosen, p.experts_used);
      }
      sort_ascending(shared.chosen, p.experts_used);
      for (std::uint32_t j = 0; j < p.experts_used; ++j) shared.best[j] = shared.shares[shared.chosen[j]];
    });
    if (p.gate == plan::MoeGate::kSoftmaxAfterTopk) softmax(block, shared, shared.best, p.experts_used);
  }
  // In place; a sum in the order of `probabilities`.
  template <class Block>
  static LLORCH_KERNEL void softmax(Block& block, Shared& shared, float* x, std::uint32_t count) {
    block.each([&](std::uint32_t thread) {
      if (thread != 0) return;
      float largest = x[0];
      for (std::uint32_t i = 1; i < count; ++i) largest = largest < x[i] ? x[i] : largest;
      shared.largest = largest;
    });
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < count; i += kThreads) x[i] = exponential(x[i] - shared.largest);
    });
    lane_sum(
        block, shared.sum, count, [&](std::uint32_t i) { return x[i]; }, AddPlain());
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < count; i += kThreads) x[i] = divide(x[i], shared.sum.total);
    });
  }
  // Scores outside the best groups become -infinity.
  static LLORCH_KERNEL void keep_best_groups(Shared& shared, const plan::MoeParams& p) {
    const std::uint32_t size = p.experts / p.groups;
    for (std::uint32_t g = 0; g < p.groups; ++g) {
      float first = minus_infinity(), second = first;
      for (std::uint32_t i = 0; i < size; ++i) {
        const float score = shared.scores[g * size + i];
        if (score > first) {
          second = first, first = score;
        } else if (score > second) {
          second = score;
        }
      }
      shared.group_scores[g] = p.group_score == plan::GroupScore::kTop2Sum ? first + second : first;
    }
    choose_largest(shared.group_scores, p.groups, shared.best, shared.groups, p.groups_used);
    sort_ascending(shared.groups, p.groups_used);
    std::uint32_t next = 0;
    for (std::uint32_t g = 0; g < p.groups; ++g) {
      if (next < p.groups_used && shared.groups[next] == g) {
        ++next;
        continue;
      }
      for (std::uint32_t i = 0; i < size; ++i) shared.scores[g * size + i] = minus_infinity();
    }
  }
  static LLORCH_KERNEL void write(Shared& shared, const Args& args, std::uint64_t at) {
    const plan::MoeParams& p = args.params;
    float sum = 0.0f;
    for (std::uint32_t j = 0; j < p.experts_used; ++j) sum = sum + shared.best[j];
    sum = sum + p.norm_epsilon;
    for (std::uint32_t j = 0; j < p.experts_used; ++j) {
      const float weight = p.norm_topk != 0 ? divide(shared.best[j], sum) : shared.best[j];
      args.experts[at + j] = shared.chosen[j];
      const float scaled = weight * p.weights_scale;
      args.weights[at + j] = args.expert_scale != nullptr ? scaled * args.expert_scale[shared.chosen[j]] : scaled;
    }
  }
};

// Pairs (a row and one expert it chose) in the order of their experts, and tiles of at most tile_rows pairs of one expert each.
// Expert e begins at tile floor(pairs before it / tile_rows) + e, so that no expert must know how many tiles the others have;
// tiles in between are empty. Grid: experts.
struct GroupPairsArgs {
  const std::uint32_t* experts = nullptr;  // [pairs]
  std::uint32_t pairs = 0;
  std::uint32_t tile_rows = 1;
  std::uint32_t* pair_at = nullptr;  // [pairs]
  RowTile* tiles = nullptr;          // [pairs / tile_rows + experts]
  bool operator==(const GroupPairsArgs&) const = default;
};
struct GroupPairs {
  using Args = GroupPairsArgs;
  static constexpr std::uint32_t kThreads = 128;
  struct Counts {
    std::uint32_t before = 0, mine = 0;  // pairs of experts with lower numbers, and of this one
  };
  struct Shared {
    Counts of_thread[kThreads];
  };

  // A thread looks at consecutive pairs, so pairs of one expert keep their order.
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t expert = block.x(), each = (args.pairs + kThreads - 1) / kThreads;
    block.each([&](std::uint32_t thread) {
      Counts counts;
      for (std::uint32_t i = smaller(thread * each, args.pairs); i < smaller((thread + 1) * each, args.pairs); ++i) {
        counts.before += args.experts[i] < expert ? 1 : 0;
        counts.mine += args.experts[i] == expert ? 1 : 0;
      }
      shared.of_thread[thread] = counts;
    });
    block.own([&](std::uint32_t thread) {
      Counts all;
      std::uint32_t earlier = 0;  // of this expert, in the hands of earlier threads
      for (std::uint32_t i = 0; i < kThreads; ++i) {
        if (i == thread) earlier = all.mine;
        all.before += shared.of_thread[i].before, all.mine += shared.of_thread[i].mine;
      }
      std::uint32_t at = all.before + earlier;
      for (std::uint32_t i = smaller(thread * each, args.pairs); i < smaller((thread + 1) * each, args.pairs); ++i)
        if (args.experts[i] == expert) args.pair_at[at++] = i;
      const std::uint32_t first_tile = all.before / args.tile_rows + expert;
      const std::uint32_t end_tile = (all.before + all.mine) / args.tile_rows + expert + 1;
      for (std::uint32_t i = thread; first_tile + i < end_tile; i += kThreads) {
        const std::uint32_t taken = i * args.tile_rows;
        args.tiles[first_tile + i] = {expert, all.before + taken,
                                      taken < all.mine ? smaller(all.mine - taken, args.tile_rows) : 0};
      }
    });
  }
};

// y[pair] = weight of the pair * x of its row. Grid: columns / kThreads, pairs.
struct WeighPairsArgs {
  const float* x = nullptr;        // [rows, width]
  const float* weights = nullptr;  // [rows, used]
  float* y = nullptr;              // [rows, used, width]
  std::uint32_t width = 0;
  std::uint32_t used = 1;
  bool operator==(const WeighPairsArgs&) const = default;
};
struct WeighPairs {
  using Args = WeighPairsArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t i = block.x() * kThreads + thread;
      if (i >= args.width) return;
      const std::uint64_t pair = block.y();
      args.y[pair * args.width + i] = args.x[pair / args.used * args.width + i] * args.weights[pair];
    });
  }
};

// y = what the row's experts gave it, in ascending order of the expert's number, then the shared expert's. Grid: columns /
// kThreads, rows.
struct CombineArgs {
  const float* expert_rows = nullptr;  // [rows, used, width]
  const float* weights = nullptr;      // [rows, used], or null: all 1
  const float* shared_rows = nullptr;  // [rows, width] or null
  const float* shared_gate = nullptr;  // [rows] or null: shared_rows count by its sigmoid
  float* y = nullptr;                  // [rows, width]; may be expert_rows where one is used
  std::uint32_t width = 0;
  std::uint32_t used = 0;
  bool operator==(const CombineArgs&) const = default;
};
struct Combine {
  using Args = CombineArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t i = block.x() * kThreads + thread;
      if (i >= args.width) return;
      const std::uint64_t first = std::uint64_t{block.y()} * args.used, at = std::uint64_t{block.y()} * args.width + i;
      float y = 0.0f;
      for (std::uint32_t j = 0; j < args.used; ++j)
        y = fma(args.weights != nullptr ? args.weights[first + j] : 1.0f,
                args.expert_rows[(first + j) * args.width + i], y);
      const float share = args.shared_gate != nullptr ? sigmoid(args.shared_gate[block.y()]) : 1.0f;
      args.y[at] = args.shared_rows != nullptr ? fma(share, args.shared_rows[at], y) : y;
    });
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
