#include "grammar/json_schema/numbers.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/assert.h"
#include "grammar/frontend/pattern.h"

namespace llorch::grammar::json_schema {
namespace {

using ir::Dfa;

constexpr std::size_t kIntegerDigitsMax = 18;      // fits 64 bits
constexpr std::size_t kSignificantDigitsMax = 15;  // decimal and binary agree on order up to here

Decimal parse_decimal(std::string_view text) {
  Decimal out;
  out.negative = text.starts_with('-');
  text.remove_prefix(out.negative);
  const std::size_t point = std::min(text.find('.'), text.size());
  out.integer = text.substr(0, point);
  if (point < text.size()) out.fraction = text.substr(point + 1);
  out.integer.erase(0, std::min(out.integer.find_first_not_of('0'), out.integer.size() - 1));
  while (out.fraction.ends_with('0')) out.fraction.pop_back();
  if (out.integer == "0" && out.fraction.empty()) out.negative = false;
  return out;
}

// Parsers of JSON may be off by a unit in the last place, so a decimal of 15 digits within that distance is what was
// meant.
std::string text_of(double value) {
  const double meant = std::strtod(fmt::format("{:.14e}", value).c_str(), nullptr);
  const double unit = std::nextafter(std::abs(value), HUGE_VAL) - std::abs(value);
  if (std::abs(meant - value) <= 2 * unit) value = meant;
  std::array<char, 400> buffer;
  const auto [end, error] = std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::fixed);
  if (error != std::errc{}) return "0";
  return {buffer.begin(), end};
}

// What automata of numbers may take: states each, and work together.
struct Room {
  std::size_t states_max;
  ir::Work* work;
};

std::optional<Dfa> pattern(const std::string& expression, const Room& room) {
  const auto parsed = frontend::parse_pattern(expression, frontend::Match::kWhole, Limits{});
  ASSERT(parsed.has_value(), "{}", expression);
  return frontend::to_dfa(*parsed, room.states_max, room.work);
}

enum class Relation { kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

// Unsigned decimals that stand in `relation` to `bound` (its sign aside), among those well-formed. Digits are compared
// from the left; which integer part is larger is known when its length is.
class Comparison {
 public:
  Comparison(const Decimal& bound, Relation relation) : bound_(bound), relation_(relation) {}

  std::optional<Dfa> dfa(const Room& room) const {
    return ir::explore(
        integer(0, kEqual), ".0123456789", [this](std::int64_t state, char c) { return step(state, c); },
        [this](std::int64_t state) { return accepts(order_at(state)); }, room.states_max, room.work);
  }

 private:
  enum Order : std::int64_t { kSmaller, kEqual, kLarger };

  // States: integer digits read and their order so far; longer than the bound; fraction settled; fraction equal so far.
  static constexpr std::int64_t kLonger = 0, kFractionSmaller = 1, kFractionLarger = 2;
  static constexpr std::int64_t kIntegers = 1 << 20, kFractions = 1 << 10;
  static std::int64_t integer(std::size_t digits, Order order) {
    return kIntegers + static_cast<std::int64_t>(digits) * 3 + order;
  }
  static std::int64_t fraction(std::size_t digits) { return kFractions + static_cast<std::int64_t>(digits); }
  static Order order_of(char a, char b) { return a < b ? kSmaller : a > b ? kLarger : kEqual; }

  // Of the integer part alone, once it has ended.
  Order integer_order(std::int64_t state) const {
    if (state == kLonger) return kLarger;
    const auto digits = static_cast<std::size_t>(state - kIntegers) / 3;
    return digits < bound_.integer.size() ? kSmaller : static_cast<Order>((state - kIntegers) % 3);
  }

  Order order_at(std::int64_t state) const {
    if (state >= kIntegers) {
      const Order order = integer_order(state);
      return order == kEqual && !bound_.fraction.empty() ? kSmaller : order;
    }
    if (state >= kFractions) {
      return static_cast<std::size_t>(state - kFractions) == bound_.fraction.size() ? kEqual : kSmaller;
    }
    return state == kFractionSmaller ? kSmaller : kLarger;
  }

  std::int64_t step(std::int64_t state, char c) const {
    if (c == '.') {
      if (state < kIntegers && state != kLonger) return -1;
      const Order order = integer_order(state);
      return order == kSmaller ? kFractionSmaller : order == kLarger ? kFractionLarger : fraction(0);
    }
    if (state >= kIntegers) {
      const auto digits = static_cast<std::size_t>(state - kIntegers) / 3;
      const auto order = static_cast<Order>((state - kIntegers) % 3);
      if (digits == bound_.integer.size()) return kLonger;
      return integer(digits + 1, order == kEqual ? order_of(c, bound_.integer[digits]) : order);
    }
    if (state < kFractions) return state;
    const auto digits = static_cast<std::size_t>(state - kFractions);
    const Order order = order_of(c, digits < bound_.fraction.size() ? bound_.fraction[digits] : '0');
    if (order == kEqual) return fraction(std::min(digits + 1, bound_.fraction.size()));
    return order == kSmaller ? kFractionSmaller : kFractionLarger;
  }

  bool accepts(Order order) const {
    switch (relation_) {
      case Relation::kLess: return order == kSmaller;
      case Relation::kLessOrEqual: return order != kLarger;
      case Relation::kGreater: return order == kLarger;
      default: return order != kSmaller;
    }
  }

  const Decimal& bound_;
  const Relation relation_;
};

struct Interval {
  std::optional<NumberConditions::Bound> lower, upper;
};

std::optional<Dfa> within(Dfa unsigned_numbers, const Interval& interval, const Room& room) {
  const auto restrict = [&](const std::optional<NumberConditions::Bound>& bound, Relation open, Relation closed) {
    if (!bound) return true;
    const auto comparison = Comparison(bound->value, bound->exclusive ? open : closed).dfa(room);
    auto both = comparison ? ir::intersect(unsigned_numbers, *comparison, room.states_max, room.work) : std::nullopt;
    if (!both) return false;
    unsigned_numbers = std::move(*both);
    return true;
  };
  if (!restrict(interval.lower, Relation::kGreater, Relation::kGreaterOrEqual)) return std::nullopt;
  if (!restrict(interval.upper, Relation::kLess, Relation::kLessOrEqual)) return std::nullopt;
  return unsigned_numbers;
}

// Both signs of `unsigned_numbers` that satisfy the bounds.
std::optional<Dfa> with_bounds(const Dfa& unsigned_numbers, const NumberConditions& conditions, const Room& room) {
  const auto negated = [](NumberConditions::Bound bound) {
    bound.value.negative = false;
    return bound;
  };
  const bool min_is_negative = !conditions.min || conditions.min->value.negative;
  const bool max_is_negative = conditions.max && conditions.max->value.negative;
  ir::Nfa nfa;
  nfa.start = nfa.add_state();
  nfa.accept = nfa.add_state();
  const auto add = [&](const Dfa& dfa, bool negative) {
    std::uint32_t from = nfa.start;
    if (negative) {
      from = nfa.add_state();
      nfa.states[nfa.start].edges.push_back({'-', '-', from});
    }
    ir::insert(nfa, ir::to_nfa(dfa), from, nfa.accept);
  };
  if (!max_is_negative) {
    Interval interval;
    if (!min_is_negative) interval.lower = conditions.min;
    interval.upper = conditions.max;
    const auto positive = within(unsigned_numbers, interval, room);
    if (!positive) return std::nullopt;
    add(*positive, false);
  }
  if (min_is_negative) {
    Interval interval;
    interval.lower = max_is_negative ? negated(*conditions.max) : NumberConditions::Bound{{false, "0", ""}, true};
    if (conditions.min) interval.upper = negated(*conditions.min);
    const auto negative = within(unsigned_numbers, interval, room);
    if (!negative) return std::nullopt;
    add(*negative, true);
  }
  return ir::determinise(nfa, room.states_max, room.work);
}

// Unsigned, of at most 15 significant digits: the same for whatever bounds, so made once.
const Dfa& decimals() {
  static const Dfa kDecimals = [] {
    std::string expression =
        fmt::format("0(\\.[0-9]{{1,{}}})?|[1-9][0-9]{{0,{}}}", kSignificantDigitsMax, kSignificantDigitsMax - 1);
    for (std::size_t digits = 1; digits < kSignificantDigitsMax; ++digits) {
      expression += fmt::format("|[1-9][0-9]{{{}}}\\.[0-9]{{1,{}}}", digits - 1, kSignificantDigitsMax - digits);
    }
    constexpr std::size_t kStates = 20000;
    return pattern(expression, {kStates, nullptr}).value();
  }();
  return kDecimals;
}

}  // namespace

Decimal to_decimal(const boost::json::value& number) {
  if (number.is_int64()) return parse_decimal(fmt::format("{}", number.get_int64()));
  if (number.is_uint64()) return parse_decimal(fmt::format("{}", number.get_uint64()));
  return parse_decimal(text_of(number.get_double()));
}

std::string to_string(const Decimal& decimal) {
  return fmt::format("{}{}{}{}", decimal.negative ? "-" : "", decimal.integer, decimal.fraction.empty() ? "" : ".",
                     decimal.fraction);
}

bool is_less(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative;
  const Decimal& smaller = a.negative ? b : a;
  const Decimal& larger = a.negative ? a : b;
  if (smaller.integer.size() != larger.integer.size()) return smaller.integer.size() < larger.integer.size();
  if (smaller.integer != larger.integer) return smaller.integer < larger.integer;
  return smaller.fraction < larger.fraction;  // without trailing zeros, text order is number order
}

bool NumberConditions::is_empty() const {
  if (!min || !max) return false;
  return is_less(max->value, min->value) || (min->value == max->value && (min->exclusive || max->exclusive));
}

std::optional<Dfa> integers(const NumberConditions& conditions, std::size_t states_max, ir::Work* work) {
  ir::Work own;
  const Room room{states_max, work ? work : &own};
  std::size_t digits = kIntegerDigitsMax;
  for (const auto& bound : {conditions.min, conditions.max}) {
    if (bound) digits = std::max(digits, bound->value.integer.size());
  }
  auto all = pattern(fmt::format("0|[1-9][0-9]{{0,{}}}", digits - 1), room);
  if (all && conditions.multiple_of > 1) {
    const std::int64_t modulus = conditions.multiple_of;
    const auto multiples = ir::explore(
        0, "0123456789", [modulus](std::int64_t rest, char c) { return (rest * 10 + (c - '0')) % modulus; },
        [](std::int64_t rest) { return rest == 0; }, states_max, room.work);
    all = multiples ? ir::intersect(*all, *multiples, states_max, room.work) : std::nullopt;
  }
  return all ? with_bounds(*all, conditions, room) : std::nullopt;
}

std::optional<Dfa> numbers(const NumberConditions& conditions, std::size_t states_max, ir::Work* work) {
  if (conditions.multiple_of > 1) return integers(conditions, states_max, work);
  ir::Work own;
  const Room room{states_max, work ? work : &own};
  if (!conditions.min && !conditions.max) {
    return pattern("-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,15})?([eE][+\\-]?[0-9]{1,2})?", room);
  }
  return with_bounds(decimals(), conditions, room);
}

}  // namespace llorch::grammar::json_schema
