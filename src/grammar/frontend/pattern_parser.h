#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/frontend/pattern.h"

namespace llorch::grammar::frontend {

// Recursive descent over one expression; anchors are still in the tree it returns.
class PatternParser {
 public:
  PatternParser(std::string_view text, const Limits& limits) : text_(text), limits_(limits) {}

  base::Result<Pattern> parse();

 private:
  base::Result<Pattern> choice();
  base::Result<Pattern> sequence();
  base::Result<Pattern> atom();
  base::Result<Pattern> group();
  base::Result<ir::SymbolSet> set();
  // One member of [...]: a code point or a class such as \d.
  base::Result<ir::SymbolSet> set_member();
  // After a backslash.
  base::Result<ir::SymbolSet> escape(bool in_set);
  base::Result<ir::Symbol> hex(std::size_t digits_min, std::size_t digits_max);
  base::Result<> quantifier(Pattern& pattern);
  base::Result<ir::Bounds> counts();
  base::Result<std::uint32_t> number();
  base::Result<ir::Symbol> code_point();

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  tl::unexpected<base::Error> failure(std::string_view what) const;

  std::string_view text_;
  const Limits& limits_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::size_t nodes_ = 0;
};

}  // namespace llorch::grammar::frontend
