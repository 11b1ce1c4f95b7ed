#include "engine/compute/cpu/adapters/moe/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace llorch::engine::compute::cpu::adapters::moe {

using plan::GroupScore;
using plan::MoeGate;
using plan::MoeParams;

namespace {

Probabilities kind_of(MoeGate gate) {
  switch (gate) {
    case MoeGate::kSigmoid: return Probabilities::kSigmoid;
    case MoeGate::kSqrtSoftplus: return Probabilities::kSqrtSoftplus;
    default: return Probabilities::kSoftmax;
  }
}

float group_score(std::span<const float> scores, GroupScore kind) {
  float first = -std::numeric_limits<float>::infinity(), second = first;
  for (float score : scores) {
    if (score > first) {
      second = first, first = score;
    } else if (score > second) {
      second = score;
    }
  }
  return kind == GroupScore::kTop2Sum ? first + second : first;
}

// Scores outside the best groups become -infinity.
void keep_best_groups(const MoeParams& p, const RouteScratch& scratch) {
  const std::size_t size = p.experts / p.groups;
  for (std::size_t g = 0; g < p.groups; ++g)
    scratch.group_scores[g] = group_score({scratch.scores + g * size, size}, p.group_score);
  const std::span kept(scratch.groups, p.groups_used);
  choose_largest({scratch.group_scores, p.groups}, scratch.best, kept);
  std::sort(kept.begin(), kept.end());
  auto next = kept.begin();
  for (std::uint32_t g = 0; g < p.groups; ++g) {
    if (next != kept.end() && *next == g) {
      ++next;
    } else {
      std::fill_n(scratch.scores + g * size, size, -std::numeric_limits<float>::infinity());
    }
  }
}

// One expert after the other: the best of those not chosen yet, and its share among the ones near it.
void choose_in_turn(const Kernels& kernels, const MoeParams& p, const float* logits, const RouteScratch& scratch,
                    const Route& out) {
  for (std::uint32_t j = 0; j < p.experts_used; ++j) {
    const std::span<const std::uint32_t> before(out.experts, j);
    const auto is_open = [&](std::uint32_t e) { return std::find(before.begin(), before.end(), e) == before.end(); };
    std::uint32_t best = 0;
    while (!is_open(best)) ++best;
    for (std::uint32_t e = best + 1; e < p.experts; ++e)
      if (logits[e] > logits[best] && is_open(e)) best = e;
    std::size_t count = 0, at = 0;
    for (std::uint32_t e = 0; e < p.experts; ++e) {
      const float largest = logits[best], far = (largest - logits[e]) / std::max(std::abs(logits[e]), largest);
      if (far > p.reach || !is_open(e)) continue;
      if (e == best) at = count;
      scratch.scores[count++] = logits[e];
    }
    kernels.probabilities({.x = scratch.scores, .width = count, .kind = Probabilities::kSoftmax}, {0, 1});
    const float share = scratch.scores[at];
    std::uint32_t place = j;  // ascending
    for (; place > 0 && out.experts[place - 1] > best; --place)
      out.experts[place] = out.experts[place - 1], out.weights[place] = out.weights[place - 1];
    out.experts[place] = best, out.weights[place] = share;
  }
}

// All at once, by their scores.
void choose_together(const Kernels& kernels, const MoeParams& p, float* logits, const RouteRules& rules,
                     const RouteScratch& scratch, const Route& out) {
  if (p.gate != MoeGate::kSoftmaxAfterTopk)
    kernels.probabilities({.x = logits, .width = p.experts, .kind = kind_of(p.gate)}, {0, 1});
  const float* shares = logits;
  const std::span chosen(out.experts, p.experts_used);
  if (rules.table_row != nullptr) {
    for (std::size_t j = 0; j < chosen.size(); ++j)  // whole numbers; what a file says may be too much
      chosen[j] = std::min(static_cast<std::uint32_t>(rules.table_row[j]), p.experts - 1);
  } else {
    for (std::size_t e = 0; e < p.experts; ++e)
      scratch.scores[e] = rules.selection_bias != nullptr ? shares[e] + rules.selection_bias[e] : shares[e];
    if (p.groups != 0) keep_best_groups(p, scratch);
    choose_largest({scratch.scores, p.experts}, scratch.best, chosen);
  }
  std::sort(chosen.begin(), chosen.end());
  const std::span weights(out.weights, p.experts_used);
  for (std::size_t j = 0; j < chosen.size(); ++j) weights[j] = shares[chosen[j]];
  if (p.gate == MoeGate::kSoftmaxAfterTopk)
    kernels.probabilities({.x = weights.data(), .width = weights.size(), .kind = Probabilities::kSoftmax}, {0, 1});
}

}  // namespace

void choose_largest(std::span<const float> scores, float* best, std::span<std::uint32_t> out) {
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < scores.size(); ++i) {
    const float score = scores[i];
    if (count == out.size() && !(score > best[count - 1])) continue;
    std::size_t at = count < out.size() ? count++ : count - 1;
    for (; at > 0 && score > best[at - 1]; --at) best[at] = best[at - 1], out[at] = out[at - 1];
    best[at] = score, out[at] = i;
  }
}

void route_row(const Kernels& kernels, const MoeParams& p, float* logits, const RouteRules& rules,
               const RouteScratch& scratch, const Route& out) {
  if (p.gate == MoeGate::kSparseMixer) {
    choose_in_turn(kernels, p, logits, scratch, out);
  } else {
    choose_together(kernels, p, logits, rules, scratch, out);
  }
  const std::span weights(out.weights, p.experts_used);
  if (p.norm_topk != 0) {
    float sum = 0;
    for (float w : weights) sum += w;
    sum += p.norm_epsilon;
    for (float& w : weights) w /= sum;
  }
  for (float& w : weights) w *= p.weights_scale;
  for (std::size_t j = 0; j < weights.size() && rules.expert_scale != nullptr; ++j)
    weights[j] *= rules.expert_scale[out.experts[j]];
}

}  // namespace llorch::engine::compute::cpu::adapters::moe
