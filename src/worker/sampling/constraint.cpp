#include "worker/sampling/constraint.h"

#include <string_view>
#include <utility>
#include <vector>

namespace llorch::worker::sampling {

base::Result<std::shared_ptr<const grammar::TokenTrie>> Constraints::trie() {
  const std::lock_guard lock(mutex_);
  if (trie_) return trie_;
  const text::TokenizerFacts& facts = tokenizer_.facts();
  std::vector<std::string_view> bytes;
  bytes.reserve(facts.vocab_size);
  for (std::uint32_t id = 0; id < facts.vocab_size; ++id) bytes.push_back(tokenizer_.token_bytes(base::TokenId{id}));
  trie_ = TRY(grammar::TokenTrie::build(bytes, facts.end_of_generation));
  return trie_;
}

base::Result<std::optional<grammar::Matcher>> Constraints::matcher(const wire::SamplingRequest& request) {
  const auto make = [&](std::string_view field, auto compile,
                        const std::string& text) -> base::Result<std::optional<grammar::Matcher>> {
    auto compiled = compile(text, grammar::Limits{});
    if (!compiled) return base::fail(std::move(compiled.error()).with("field", std::string(field)));
    auto matcher = grammar::Matcher::create(std::move(*compiled), TRY(trie()));
    if (!matcher) return base::fail(std::move(matcher.error()).with("field", std::string(field)));
    return std::optional(std::move(*matcher));
  };
  if (request.json_schema) return make("json_schema", grammar::Grammar::from_json_schema, request.json_schema->text);
  if (request.regex) return make("regex", grammar::Grammar::from_regex, *request.regex);
  if (request.grammar) return make("grammar", grammar::Grammar::from_gbnf, *request.grammar);
  return std::nullopt;
}

}  // namespace llorch::worker::sampling
