#pragma once
// Whether a proposal pays: how likely it is drawn, from what became of earlier ones, against what a row more costs, from what
// steps cost so far. Pure: the caller measures. Not thread-safe; allocates nothing.
#include <array>
#include <cstdint>
#include <span>

namespace llorch::engine::inference::speculation {

// Rows of steps whose cost is kept; a step with more computes prompts, and a row more costs it a whole row.
inline constexpr std::uint32_t kCostRowsMax = 32;

// What steps cost, by their rows, in any unit.
class StepCosts {
 public:
  // A step of so many rows cost so much. Rows past kCostRowsMax are ignored.
  void observe(std::uint32_t rows, double cost);
  // Whether what a step of so many rows costs is known as well as it gets.
  bool knows(std::uint32_t rows) const { return rows > kCostRowsMax || weights_[rows] >= kWeightMax - 1; }
  // Whether a step of so many rows was seen, and not too long ago.
  bool has_seen(std::uint32_t rows) const { return rows > kCostRowsMax || weights_[rows] >= kWeightLeast; }
  // Of a step of so many rows, as far as is known: between rows that were seen on a line, beyond them by kRowShare each. 1 for
  // a first row before anything was seen. REQUIRES: 1 <= rows <= kCostRowsMax.
  double of(std::uint32_t rows) const;

  // What a row more costs, in steps of one row, until it is known: what sixteen bits a weight cost on a device whose memory
  // is the bottleneck.
  static constexpr double kRowShare = 0.1;

 private:
  static constexpr double kWeightMax = 6;           // steps that a cost is a mean of, in effect
  static constexpr double kWeightLeast = 0.5;       // of one seen step after some 700 others, of many after 2500
  std::array<double, kCostRowsMax + 1> costs_{};    // by rows; 0: not seen
  std::array<double, kCostRowsMax + 1> weights_{};  // steps that they stand for
};

// How often proposals were drawn, by what stood behind them. Newer ones count more.
class AcceptanceRecord {
 public:
  // `strength`: as of the proposal. Nothing is asked of those behind the first wrong one.
  void add(std::uint32_t strength, bool right);
  double chance(std::uint32_t strength) const;
  // Whether it knows enough of such proposals to be believed.
  bool is_proven(std::uint32_t strength) const;
  // What it says of the next text: the same chances, and half of its memory, for that text may be another.
  AcceptanceRecord inherited() const;

 private:
  // Matches of 2, of 3 to 7, of 8 and more tokens: what prompts copied whole and phrases that recur by chance differ in.
  static constexpr std::size_t kKinds = 3;
  static std::size_t kind(std::uint32_t strength) { return strength >= 8 ? 2 : strength >= 3 ? 1 : 0; }
  struct Count {
    double right = 0, all = 0;
  };
  std::array<Count, kKinds> counts_{};
};

// What can be proposed for one sequence of a step.
struct ProposalOffer {
  const AcceptanceRecord* record = nullptr;
  std::uint32_t strength = 0;  // of the first proposal; each right one makes the next stronger by one
  std::uint32_t most = 0;      // proposals there are
  std::uint32_t take = 0;      // choose(): how many to compute
};

struct StepShape {
  std::uint32_t rows = 0;           // without proposals
  std::uint32_t tokens = 0;         // that it draws then
  std::uint32_t proposals_max = 0;  // rows there is room for
};

// Sets `take` of every offer to what brings the most tokens for the cost of the step; to 0 where that is not worth it. Returns what
// the step gains: tokens for its cost, in parts of what it brings without proposals.
double choose(std::span<ProposalOffer> offers, const StepShape& step, const StepCosts& costs);

}  // namespace llorch::engine::inference::speculation
