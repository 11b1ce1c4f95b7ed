#pragma once
// All readings of an output at once: the places of a grammar it can stand at, each with the callers it will return to.
//
// A reading is a place and a frame; a frame is the set of (place to return to, frame below). Readings that called one
// rule at one byte share one frame, so ambiguity adds up and does not multiply, and recursion only makes a chain longer.
// Frames and configurations are interned: equal histories have equal ids, and a step once made is a table look-up.
#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/ir/rules.h"

namespace llorch::grammar {

enum class FrameId : std::uint32_t {};
enum class ConfigurationId : std::uint32_t {};
constexpr std::uint32_t index(FrameId id) { return static_cast<std::uint32_t>(id); }
constexpr std::uint32_t index(ConfigurationId id) { return static_cast<std::uint32_t>(id); }

struct Item {
  ir::Place place;
  FrameId frame{};
  auto operator<=>(const Item&) const = default;
};

inline constexpr ConfigurationId kDeadConfiguration{0};  // no reading is left
inline constexpr ConfigurationId kOverflowedConfiguration{
    1};                                   // more than kItemsMax are, or kMovesMax moves do not find them
inline constexpr FrameId kRootFrame{0};   // returning to it ends the output
inline constexpr FrameId kOuterFrame{1};  // stands for any caller: what is above it does not depend on it

// Not thread-safe. Memory is bounded by what is alive: is_full() asks for extract().
class Configurations {
 public:
  // Readings alive at once; real grammars stay below a dozen.
  static constexpr std::size_t kItemsMax = 256;
  // Moves of one step: readings moved, calls looked at, returns. Bounds its time, some milliseconds; real grammars take dozens.
  static constexpr std::uint64_t kMovesMax = 1 << 16;
  // Items of what is alive: a caller for each rule that an output has left open, in each reading. JSON has two for each level.
  static constexpr std::size_t kAliveMax = 1 << 17;

  // `completable` per state of the rules (ir::completable_states), empty when all are.
  Configurations(std::shared_ptr<const ir::RuleSet> rules, std::shared_ptr<const std::vector<bool>> completable);

  ConfigurationId start() { return at({rules_->start(), kRootFrame}); }
  // One reading, called by an unknown caller.
  ConfigurationId local(ir::Place place) { return at({place, kOuterFrame}); }
  // What goes on below `frame` once the rule above it is over. return_charge() is what the last one took, as charge().
  ConfigurationId returned(FrameId frame);
  std::uint64_t return_charge() const { return std::uint64_t{kStepCost} << cost_log2(); }

  ConfigurationId step(ConfigurationId from, std::uint8_t byte) {
    const std::uint32_t row = rows_of_[index(from)];
    if (row != kNoRow) {
      const ConfigurationId to = rows_[row].to[byte];
      if (to != kUnknown) return to;
    }
    return compute_step(from, byte);
  }
  // begin_count() begins a count of what steps take; charge() is what a step takes when it is computed, once in a count, and 0
  // afterwards. It is the same for equal places of any grammar, whatever was computed before the count. REQUIRES a
  // step(from, byte) since the last extract().
  void begin_count() { ++count_; }
  std::uint64_t charge(ConfigurationId from, std::uint8_t byte) {
    Row& row = rows_[rows_of_[index(from)]];
    if (std::exchange(row.counted_in, count_) != count_) row.counted.reset();
    if (row.counted.test(byte)) return 0;
    row.counted.set(byte);
    return std::uint64_t{kStepCost} << row.cost_log2[byte];
  }

  // The readings that can go on.
  std::span<const Item> items(ConfigurationId id) const;
  // Whether some reading is at its end: of the output, or of the rule local() started in.
  bool accepts(ConfigurationId id) const { return ends_with(id, kRootFrame); }
  bool leaves(ConfigurationId id) const { return ends_with(id, kOuterFrame); }
  // Whether single-byte tokens can complete some reading; a reading that leaves counts.
  bool is_completable(ConfigurationId id) const { return lists_completable_[index(id)]; }
  bool is_completable(FrameId id) const { return frames_completable_[index(id)]; }

  // Whether the rule local() started in stands at this state itself, not within a rule it called.
  bool stands_at(ConfigurationId id, std::uint32_t state) const {
    for (const Item& item : items(id)) {
      if (item.frame == kOuterFrame && item.place.state == state) return true;
    }
    return false;
  }
  // From a local() of a counting rule: how many items have been begun, in the reading that has begun the fewest.
  std::uint32_t outer_count(ConfigurationId id) const;

  bool is_full() const {
    return rows_.size() >= kRowsMax || configurations_.size() >= lists_max_ || frames_.size() >= lists_max_ ||
           items_kept() >= items_max_;
  }
  // Whether one with other roots than these, or none at all, could be full where this one is not.
  bool is_nearly_full() const {
    return rows_.size() >= kRowsMax || configurations_.size() >= kListsMax || frames_.size() >= kListsMax ||
           items_kept() >= kItemsKeptMax;
  }
  // Of frames and configurations, alive or not.
  std::size_t items_kept() const { return frames_.items_count() + configurations_.items_count(); }
  // A new one that holds just `roots` and renames them.
  std::shared_ptr<Configurations> extract(std::span<ConfigurationId* const> roots) const;

 private:
  // A row is 1.3 KiB; these make 2.6 MiB at most, and less than 8 MiB of lists where the live ones do not need more.
  static constexpr std::size_t kRowsMax = 2048;
  static constexpr std::size_t kListsMax = 16384;
  static constexpr std::size_t kItemsKeptMax = 1 << 18;
  static constexpr std::uint32_t kNoRow = 0xFFFFFFFF;
  static constexpr ConfigurationId kUnknown{0xFFFFFFFF};
  // A reading that is over has no place any more; its frame says which way.
  static constexpr ir::Place kOver{0xFFFFFFFF, 0};

  // Sorted lists of items, each stored once.
  class Lists {
   public:
    std::pair<std::uint32_t, bool> intern(std::span<const Item> list);  // its number, and whether it is new
    std::span<const Item> operator[](std::uint32_t number) const {
      return std::span(items_).subspan(offsets_[number], offsets_[number + 1] - offsets_[number]);
    }
    std::size_t size() const { return offsets_.size() - 1; }
    std::size_t items_count() const { return items_.size(); }

   private:
    std::vector<Item> items_;
    std::vector<std::uint32_t> offsets_{0};
    std::unordered_multimap<std::size_t, std::uint32_t> numbers_;
  };
  struct Row {
    std::array<ConfigurationId, 256> to;
    std::array<std::uint8_t, 256> cost_log2;
    std::bitset<256> counted;  // bytes whose steps are in the count
    std::uint64_t counted_in = 0;
  };
  // The least step that is computed takes as long as so many nodes of a walk.
  static constexpr unsigned kStepCost = 4;
  // Comparisons that take as long as moving a reading.
  static constexpr std::size_t kComparisons = 64;
  struct PendingCall {
    ir::RuleId rule;
    std::vector<Item> callers;
  };

  ConfigurationId at(Item item);
  ConfigurationId compute_step(ConfigurationId from, std::uint8_t byte);
  void advance(Item item, std::uint8_t byte);
  void call(ir::RuleId rule, Item caller);
  ConfigurationId settle();  // of reached_, which it clears
  ConfigurationId intern_configuration(std::span<const Item> list);
  FrameId intern_frame(std::span<const Item> list);
  bool is_completable(const Item& item) const;
  bool ends_with(ConfigurationId id, FrameId frame) const;
  unsigned cost_log2() const { return static_cast<unsigned>(std::bit_width(std::max<std::uint64_t>(cost_, 1) - 1)); }
  // Of the calls so far, whose rules will all be entered.
  std::uint64_t comparisons_cost() const {
    const std::uint64_t called = entered_ + pending_count_;
    return (calls_ + called) * called / kComparisons;
  }
  void limit_moves() { overflowed_ = overflowed_ || cost_ + comparisons_cost() > kMovesMax; }

  std::shared_ptr<const ir::RuleSet> rules_;
  std::shared_ptr<const std::vector<bool>> completable_;
  Lists frames_;
  Lists configurations_;
  std::vector<bool> frames_completable_;
  std::vector<std::uint32_t> outer_counts_;  // per frame: the least count of a return to a local() place
  std::vector<bool> lists_completable_;
  std::vector<std::uint32_t> rows_of_;  // per configuration
  std::vector<Row> rows_;
  std::size_t lists_max_ = kListsMax;
  std::size_t items_max_ = kItemsKeptMax;
  // Scratch of one step.
  std::vector<Item> reached_;
  std::vector<PendingCall> pending_;
  std::size_t pending_count_ = 0;
  std::uint64_t cost_ = 0;     // readings moved, calls looked at, returns, and what they are compared with
  std::uint64_t calls_ = 0;    // made
  std::uint64_t entered_ = 0;  // rules; each once
  bool overflowed_ = false;
  std::uint64_t count_ = 1;  // of begin_count()
};

}  // namespace llorch::grammar
