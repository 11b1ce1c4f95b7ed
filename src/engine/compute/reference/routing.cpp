#include "engine/compute/reference/routing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/mixers.h"

namespace llorch::engine::compute::reference {
namespace {

// Numbers of the `count` largest, in ascending order of the number; equal scores: lower numbers first.
std::vector<std::uint32_t> largest(const std::vector<float>& scores, std::size_t count) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
  order.resize(count);
  std::ranges::sort(order);
  return order;
}

std::vector<float> only_best_groups(std::vector<float> scores, const plan::MoeParams& params) {
  const std::size_t size = scores.size() / params.groups;
  std::vector<float> of_group;
  for (std::size_t g = 0; g < params.groups; ++g) {
    std::vector<float> own(scores.begin() + static_cast<std::ptrdiff_t>(g * size),
                           scores.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::ranges::sort(own, std::greater<>());
    of_group.push_back(params.group_score == plan::GroupScore::kMax ? own[0] : own[0] + own[1]);
  }
  const auto kept = largest(of_group, params.groups_used);
  for (std::size_t e = 0; e < scores.size(); ++e)
    if (std::ranges::find(kept, e / size) == kept.end()) scores[e] = -std::numeric_limits<float>::infinity();
  return scores;
}

// Of the best one that is open, among the open ones near it; then it is not.
float share_in_turn(std::span<const float> logits, std::vector<bool>& open, std::uint32_t best, float reach) {
  std::vector<float> near;
  std::size_t at = 0;
  for (std::uint32_t e = 0; e < logits.size(); ++e) {
    const float far = (logits[best] - logits[e]) / std::max(std::abs(logits[e]), logits[best]);
    if (!open[e] || far > reach) continue;
    if (e == best) at = near.size();
    near.push_back(logits[e]);
  }
  open[best] = false;
  return softmax_exact(near)[at];
}

ExactRoute route_in_turn(std::span<const float> logits, const plan::MoeParams& params) {
  std::vector<bool> open(logits.size(), true);
  std::vector<float> shares(logits.size());
  for (std::uint32_t j = 0; j < params.experts_used; ++j) {
    std::vector<float> left(logits.begin(), logits.end());
    for (std::size_t e = 0; e < left.size(); ++e)
      if (!open[e]) left[e] = -std::numeric_limits<float>::infinity();
    const std::uint32_t best = largest(left, 1)[0];
    shares[best] = share_in_turn(logits, open, best, params.reach);
  }
  ExactRoute route;
  for (std::uint32_t e = 0; e < logits.size(); ++e) {
    if (open[e]) continue;
    route.experts.push_back(e);
    route.weights.push_back(shares[e]);
  }
  return route;
}

ExactRoute route_at_once(std::span<const float> logits, std::span<const float> selection_bias,
                         const plan::MoeParams& params) {
  std::vector<float> shares(logits.begin(), logits.end());
  if (params.gate == plan::MoeGate::kSoftmax) shares = softmax_exact(logits);
  if (params.gate == plan::MoeGate::kSigmoid)
    for (float& share : shares) share = sigmoid_exact(share);
  if (params.gate == plan::MoeGate::kSqrtSoftplus)
    for (float& share : shares) share = std::sqrt(softplus_exact(share));
  std::vector<float> scores = shares;
  for (std::size_t e = 0; e < selection_bias.size(); ++e) scores[e] += selection_bias[e];
  if (params.groups != 0) scores = only_best_groups(std::move(scores), params);
  ExactRoute route{.experts = largest(scores, params.experts_used), .weights = {}};
  for (std::uint32_t e : route.experts) route.weights.push_back(shares[e]);
  if (params.gate == plan::MoeGate::kSoftmaxAfterTopk) route.weights = softmax_exact(route.weights);
  return route;
}

}  // namespace

ExactRoute route_exact(std::span<const float> logits, std::span<const float> selection_bias,
                       const plan::MoeParams& params) {
  ExactRoute route = params.gate == plan::MoeGate::kSparseMixer ? route_in_turn(logits, params)
                                                                : route_at_once(logits, selection_bias, params);
  if (params.norm_topk != 0) {
    const float sum = std::accumulate(route.weights.begin(), route.weights.end(), 0.0f) + params.norm_epsilon;
    for (float& w : route.weights) w /= sum;
  }
  for (float& w : route.weights) w *= params.weights_scale;
  return route;
}

}  // namespace llorch::engine::compute::reference
