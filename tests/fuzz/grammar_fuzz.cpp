// Arbitrary bytes as a JSON schema, a regular expression or a GBNF grammar: compiling ends with a grammar or a refusal
// that says why, and a grammar's masks always leave a way on that accept() takes, to well-formed UTF-8, unless it is too ambiguous.
// Input: one byte for the language and the walk, the text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "base/utf8.h"
#include "grammar/testing/small_vocabulary.h"

namespace {

using namespace llorch::grammar;

constexpr Limits kLimits{.text_bytes_max = 4096,
                         .depth_max = 24,
                         .rules_max = 512,
                         .nfa_states_max = 20000,
                         .states_max = 5000,
                         .alternatives_max = 64,
                         .schema_steps_max = 200'000};

llorch::base::Result<std::shared_ptr<const Grammar>> compile(std::uint8_t language, std::string_view text) {
  switch (language % 3) {
    case 0: return Grammar::from_json_schema(text, kLimits);
    case 1: return Grammar::from_regex(text, kLimits);
    default: return Grammar::from_gbnf(text, kLimits);
  }
}

// The allowed token after `from`, around the end.
TokenId next_allowed(std::span<const std::uint32_t> mask, std::uint32_t vocab, std::uint32_t from) {
  for (std::uint32_t i = 0; i < vocab; ++i) {
    const TokenId id{(from + i) % vocab};
    if (llorch::grammar::testing::is_allowed(mask, id)) return id;
  }
  ASSERT(false, "no token is allowed");
}

void walk(const std::shared_ptr<const Grammar>& grammar, std::uint32_t step) {
  static const llorch::grammar::testing::SmallVocabulary vocabulary = llorch::grammar::testing::json_vocabulary();
  auto matcher = Matcher::create(grammar, vocabulary.trie);
  if (!matcher) return;
  std::string output;
  for (std::uint32_t i = 0; i < 24; ++i) {
    const auto mask = matcher->mask();
    if (!mask) {
      ASSERT(!mask.error().message.empty());
      return;
    }
    const TokenId id = next_allowed(*mask, static_cast<std::uint32_t>(vocabulary.tokens.size()), i * 37 * (step + 1));
    Matcher fork = *matcher;
    const auto accepted = matcher->accept(id);
    if (!accepted) {  // readings that each allow it are too many together
      ASSERT(accepted.error().message.find("make its alternatives more distinct") != std::string::npos);
      return;
    }
    ASSERT(fork.allows(id).value());
    if (id == vocabulary.end()) break;
    output += vocabulary.tokens[index(id)];  // a control token adds nothing
  }
  ASSERT(!matcher->is_complete() || llorch::base::is_valid_utf8(output));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto grammar = compile(data[0], text);
  if (!grammar) {
    ASSERT(!grammar.error().message.empty());
    return 0;
  }
  walk(*grammar, data[0] / 3);
  return 0;
}
