#pragma once
// Judges an output by a vocabulary of single bytes, in which no token hides how its bytes were read.
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/matcher.h"

namespace llorch::parity {

class Witness {
 public:
  Witness();

  // Text of the grammar that begins with `output`: `output` itself when it `ended`, else one found by closing what is open
  // at the first chance. Errors: INTERNAL (the grammar refuses a byte, or is not complete where the output ended, or does
  // not end within many bytes).
  base::Result<std::string> complete(const std::shared_ptr<const grammar::Grammar>& grammar, std::string_view output,
                                     bool ended) const;

 private:
  std::shared_ptr<const grammar::TokenTrie> bytes_;
};

std::string hex(std::string_view bytes);

}  // namespace llorch::parity
