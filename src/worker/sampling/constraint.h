#pragma once
// What a request says its output must look like, as the engine's matcher.
#include <memory>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "contract/sampling.h"
#include "engine/sampling/grammar/matcher.h"
#include "engine/text/tokenizer.h"

namespace llorch::worker::sampling {

// One per loaded model; thread-safe. The vocabulary is prepared when the first request needs it, about 0.1 s at 128k
// tokens, and its masks serve all requests.
class Constraints {
 public:
  // `tokenizer` outlives it.
  explicit Constraints(const engine::text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Nothing when the request constrains nothing. INVALID_PARAMS with details.field: the text is malformed, asks for
  // something unsupported or for nothing this vocabulary can spell.
  base::Result<std::optional<engine::sampling::grammar::Matcher>> matcher(const contract::SamplingRequest& request);

 private:
  base::Result<std::shared_ptr<const engine::sampling::grammar::TokenTrie>> trie();

  const engine::text::Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::shared_ptr<const engine::sampling::grammar::TokenTrie> trie_;
};

}  // namespace llorch::worker::sampling
