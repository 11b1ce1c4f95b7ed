#pragma once
// What a tokenizer.json does to plain text before it is cut into pieces.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/pipeline.h"
#include "text/pre_tokenizer/pattern.h"
#include "text/text_budget.h"

namespace llorch::text::normalizer {

// Immutable; safe from any thread.
class Normalizer {
 public:
  Normalizer() = default;  // leaves text as it is
  // UNSUPPORTED_TOKENIZER: a pattern that has no exact translation.
  static base::Result<Normalizer> create(std::span<const NormalizerStep> steps);

  bool changes_nothing() const { return steps_.empty(); }
  // Ill-formed bytes stay as they are and divide what is normalized. The budget's errors.
  base::Result<std::string> apply(std::string_view text, TextBudget& budget) const;

 private:
  struct Step {
    NormalizerStep data;
    std::optional<pre_tokenizer::Pattern> pattern;  // kReplace
  };
  std::vector<Step> steps_;
};

}  // namespace llorch::text::normalizer
