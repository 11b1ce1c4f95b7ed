#pragma once
// Cuts text into the pieces that a model encodes one by one.
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/pipeline.h"
#include "text/pre_tokenizer/pattern.h"

namespace llorch::text::pre_tokenizer {

// Pieces in order, without gaps: piece i is text[ends[i - 1], ends[i]). None is empty.
struct Pieces {
  std::string text;
  std::vector<std::size_t> ends;

  void add(std::string_view piece);
};

// Immutable; safe from any thread.
class PreTokenizer {
 public:
  PreTokenizer() = default;  // one piece
  // UNSUPPORTED_TOKENIZER: a pattern that has no exact translation, or a byte-level step that is not the last.
  static base::Result<PreTokenizer> create(std::span<const PreTokenizerStep> steps);
  // Matches and what lies between them are pieces, scanner after scanner.
  explicit PreTokenizer(std::span<const Scanner> scanners);

  // Each step is linear in `text`, but for patterns that run in PCRE2; pieces, bytes and what these take (regex.h) are steps of the
  // budget, whose errors it has. `at_text_start`: nothing stands before `text`, not even a special token.
  base::Result<Pieces> split(std::string_view text, bool at_text_start, TextBudget& budget) const;

 private:
  struct Step {
    PreTokenizerStep data;
    std::optional<Pattern> pattern;  // none: this step cuts nothing
  };
  std::vector<Step> steps_;
};

// GGUF names a published pre-tokenizer by the key tokenizer.ggml.pre; this is what the name stands for.
struct NamedPreTokenizer {
  PreTokenizer pre_tokenizer;
  bool whole_piece_first;  // a piece that is a token is not merged ("ignore_merges")
  bool add_bos;            // what the model family does when the file does not say
};

// nullopt when there is no exact implementation.
std::optional<NamedPreTokenizer> pre_tokenizer_by_name(std::string_view name);
// For messages: "gpt-2, phi-2, ..."
std::string pre_tokenizer_names();

}  // namespace llorch::text::pre_tokenizer
