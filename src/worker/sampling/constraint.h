#pragma once
// Makes the engine's matcher of a request's output constraint (JSON Schema, regex or GBNF).
#include <memory>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "grammar/matcher.h"
#include "text/tokenizer.h"
#include "wire/sampling.h"

namespace llorch::worker::sampling {

// One per loaded model; thread-safe. The vocabulary is prepared when the first request needs it, about 0.1 s at 128k
// tokens, and its masks serve all requests.
class Constraints {
 public:
  // `tokenizer` outlives it.
  explicit Constraints(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Nothing when the request constrains nothing. INVALID_PARAMS with details.field: the text is malformed, asks for
  // something unsupported or for nothing this vocabulary can spell.
  base::Result<std::optional<grammar::Matcher>> matcher(const wire::SamplingRequest& request);

 private:
  base::Result<std::shared_ptr<const grammar::TokenTrie>> trie();

  const text::Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::shared_ptr<const grammar::TokenTrie> trie_;
};

}  // namespace llorch::worker::sampling
