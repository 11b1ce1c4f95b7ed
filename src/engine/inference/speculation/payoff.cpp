#include "engine/inference/speculation/payoff.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::engine::inference::speculation {

namespace {

// Rows not seen for long come to be thought of as they were at first, and the next step with them counts for more: or one slow
// step would end all trying. Slow, because every try of rows that do not pay costs a step or two.
constexpr double kForget = 1.0 / 1024;

// Before anything is known of a text, and how many proposals that counts for.
constexpr std::array<double, 3> kFirstChance{0.3, 0.5, 0.7};
constexpr double kFirstWeight = 2;
// Proposals that the memory of a record reaches back.
constexpr double kRecordLength = 24;

// Proposals after which a record is believed: four wrong ones may be chance where every second one is right, eight hardly.
constexpr double kProven = 8;

// A gain below this is lost in what deciding costs and measuring errs.
constexpr double kGainLeast = 1.03;

// A proposal costs this much of a row at least, whatever was measured: where clocks change, steps with proposals look cheaper than
// those without, and then tokens would be computed ahead that never come.
constexpr double kProposalLeast = 0.05;
// The same for a proposal whose record is not believed yet: what a draft of a tenth and a row of it take. A draft that is never right
// stops after three.
constexpr double kUnprovenLeast = 0.2;

double first_share(std::uint32_t rows) { return 1 + StepCosts::kRowShare * (rows - 1); }

}  // namespace

void StepCosts::observe(std::uint32_t rows, double cost) {
  if (rows == 0 || rows > kCostRowsMax || cost <= 0) return;
  double& known = costs_[rows];
  known += (cost - known) / (weights_[rows] + 1);
  weights_[rows] = std::min(weights_[rows] + 1, kWeightMax);
  for (std::uint32_t other = 1; other <= kCostRowsMax; ++other) {
    if (other == rows || costs_[other] == 0) continue;
    costs_[other] += kForget * (known * first_share(other) / first_share(rows) - costs_[other]);
    weights_[other] *= 1 - kForget;
  }
}

double StepCosts::of(std::uint32_t rows) const {
  ASSERT(rows >= 1 && rows <= kCostRowsMax, "{}", rows);
  if (costs_[rows] != 0) return costs_[rows];
  std::uint32_t below = rows, above = rows;
  while (below > 0 && costs_[below] == 0) --below;
  while (above <= kCostRowsMax && costs_[above] == 0) ++above;
  if (below == 0 && above > kCostRowsMax) return first_share(rows);
  if (below == 0) return costs_[above] * first_share(rows) / first_share(above);
  if (above > kCostRowsMax) return costs_[below] * first_share(rows) / first_share(below);
  const double part = static_cast<double>(rows - below) / (above - below);
  return costs_[below] + part * (costs_[above] - costs_[below]);
}

void AcceptanceRecord::add(std::uint32_t strength, bool right) {
  Count& count = counts_[kind(strength)];
  count.right += right;
  count.all += 1;
  if (count.all <= kRecordLength) return;
  count.right *= kRecordLength / count.all;
  count.all = kRecordLength;
}

double AcceptanceRecord::chance(std::uint32_t strength) const {
  const std::size_t which = kind(strength);
  const Count& count = counts_[which];
  return (count.right + kFirstChance[which] * kFirstWeight) / (count.all + kFirstWeight);
}

bool AcceptanceRecord::is_proven(std::uint32_t strength) const { return counts_[kind(strength)].all >= kProven; }

AcceptanceRecord AcceptanceRecord::inherited() const {
  AcceptanceRecord next = *this;
  for (Count& count : next.counts_) {
    const double share = std::min(1.0, kRecordLength / 2 / std::max(count.all, 1.0));
    count.right *= share;
    count.all *= share;
  }
  return next;
}

double choose(std::span<ProposalOffer> offers, const StepShape& step, const StepCosts& costs) {
  for (ProposalOffer& offer : offers) offer.take = 0;
  if (step.rows > kCostRowsMax || step.tokens == 0) return 0;
  const std::uint32_t rows_max = std::min(step.proposals_max, kCostRowsMax - step.rows);
  // Proposal by proposal, always the likeliest; what was best so far is kept.
  std::array<std::uint32_t, kCostRowsMax> order{};  // offers, by the proposal that was taken from them
  std::uint32_t taken = 0, best = 0;
  double tokens = step.tokens;
  const double first_rate = tokens / costs.of(step.rows);
  double best_rate = first_rate * kGainLeast;
  double rows_least = step.rows;
  struct Next {
    double chance = 0;  // that it and all before it are drawn
    std::uint32_t taken = 0;
  };
  std::array<Next, kCostRowsMax> next{};
  const std::size_t count = std::min<std::size_t>(offers.size(), kCostRowsMax);
  for (std::size_t i = 0; i < count; ++i) next[i].chance = offers[i].record->chance(offers[i].strength);
  while (taken < rows_max) {
    std::size_t likeliest = count;
    for (std::size_t i = 0; i < count; ++i) {
      const bool open = next[i].taken < offers[i].most;
      if (open && (likeliest == count || next[i].chance > next[likeliest].chance)) likeliest = i;
    }
    if (likeliest == count) break;
    Next& one = next[likeliest];
    const AcceptanceRecord& record = *offers[likeliest].record;
    const std::uint32_t strength = offers[likeliest].strength;
    tokens += one.chance;
    rows_least += record.is_proven(strength + one.taken) ? kProposalLeast : kUnprovenLeast;
    order[taken++] = static_cast<std::uint32_t>(likeliest);
    one.chance *= record.chance(strength + ++one.taken);
    const double least = costs.of(step.rows) * rows_least / step.rows;
    const double rate = tokens / std::max(least, costs.of(step.rows + taken));
    if (rate > best_rate) best_rate = rate, best = taken;
  }
  for (std::uint32_t i = 0; i < best; ++i) ++offers[order[i]].take;
  return best == 0 ? 0 : best_rate / first_rate - 1;
}

}  // namespace llorch::engine::inference::speculation
