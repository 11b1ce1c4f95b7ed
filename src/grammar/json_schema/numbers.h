#pragma once
// JSON numbers within bounds, as automata over ASCII.
#include <cstdint>
#include <optional>
#include <string>

#include <boost/json/value.hpp>

#include "grammar/ir/automaton.h"

namespace llorch::grammar::json_schema {

struct Decimal {
  bool negative = false;  // never of zero
  std::string integer;    // no leading zeros, "0" alone
  std::string fraction;   // no trailing zeros
  bool operator==(const Decimal&) const = default;
};
// REQUIRES a number. Doubles as the shortest decimal that reads back as them.
Decimal to_decimal(const boost::json::value& number);
std::string to_string(const Decimal& decimal);
bool is_less(const Decimal& a, const Decimal& b);

struct NumberConditions {
  struct Bound {
    Decimal value;
    bool exclusive = false;
  };
  std::optional<Bound> min;
  std::optional<Bound> max;
  std::uint32_t multiple_of = 1;

  bool is_empty() const;  // the bounds exclude each other
};

// Integers without fraction or exponent: at most 18 digits, or as many as a bound has. `work`: as ir::determinise().
std::optional<ir::Dfa> integers(const NumberConditions& conditions, std::size_t states_max, ir::Work* work = nullptr);
// With conditions: at most 15 significant digits and no exponent, so that decimal and binary comparisons agree. Without:
// also an exponent of at most two digits.
std::optional<ir::Dfa> numbers(const NumberConditions& conditions, std::size_t states_max, ir::Work* work = nullptr);

}  // namespace llorch::grammar::json_schema
