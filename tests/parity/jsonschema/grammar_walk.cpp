// Random outputs of JSON schemas, for test_constrained_output.py to check with another validator. A line of input is
// {"schema": ..., "seed": n}; a line of output {"output": hex bytes, "ended": bool, "completed": hex bytes} (witness.h), or
// {"error": text} for a schema that is refused. Exits with 2 when a mask is broken: no token allowed, or an output that a
// vocabulary of bytes disagrees with.
#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "grammar/matcher.h"
#include "tests/parity/jsonschema/witness.h"

namespace {

using llorch::base::TokenId;
using llorch::grammar::Grammar;
using llorch::grammar::Matcher;
using llorch::grammar::TokenTrie;

constexpr int kTokensMax = 400;

std::shared_ptr<const TokenTrie> trie_of(const std::vector<std::string>& tokens) {
  std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const TokenId end{static_cast<std::uint32_t>(tokens.size() - 1)};
  return TokenTrie::build(views, {&end, 1}).value();
}

// Bytes, pieces of JSON as tokenizers merge them, words, split and whole code points; the last token ends.
std::vector<std::string> mixed_tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* piece : {"{\"",
                            "\":",
                            "\": ",
                            "\": \"",
                            "\",",
                            "\", \"",
                            "\"}",
                            "}}",
                            "},",
                            "]}",
                            "[\"",
                            "[{",
                            "[[",
                            "{}",
                            "[]",
                            "],",
                            "\"]",
                            ", ",
                            "null",
                            "true",
                            "false",
                            "tr",
                            "al",
                            "-1",
                            "10",
                            "123",
                            "0.",
                            ".5",
                            "e1",
                            "E+",
                            "\\\"",
                            "\\n",
                            "\\u00",
                            "\\u",
                            "d83d",
                            "\\ud83d\\ude00",
                            "\n  ",
                            "\n",
                            "  ",
                            "the",
                            " of",
                            "name",
                            "id",
                            "a",
                            "ab",
                            "abc",
                            "value",
                            "xyz",
                            "é",
                            "日本",
                            "\xE6\x97",
                            "\xF0\x9F",
                            "\x98\x80",
                            "ü\"",
                            "a\",\"b\":",
                            "0123456789abcdefghij",
                            "                        ",
                            "19",
                            "2024",
                            "-0",
                            "00",
                            "T1",
                            ":00"}) {
    tokens.push_back(piece);
  }
  tokens.push_back("");
  return tokens;
}

[[noreturn]] void broken(const std::string& what) {
  std::cerr << "grammar_walk: " << what << "\n";
  std::exit(2);
}

template <class T>
T checked(llorch::base::Result<T> result) {
  if (!result) broken(result.error().message);
  return std::move(*result);
}

// Uniform over the allowed tokens, but often one that closes something, so that most walks end.
TokenId draw(std::span<const std::uint32_t> mask, const std::vector<std::string>& tokens, std::mt19937& random) {
  std::vector<TokenId> allowed, closing;
  for (std::uint32_t id = 0; id < tokens.size(); ++id) {
    if ((mask[id / 32] >> id % 32 & 1) == 0) continue;
    allowed.push_back(TokenId{id});
    const std::string& text = tokens[id];
    if (text.empty() || std::string_view("\"]},").find(text[0]) != std::string_view::npos)
      closing.push_back(TokenId{id});
  }
  if (allowed.empty()) broken("no token is allowed");
  const auto& from = !closing.empty() && random() % 10 < 4 ? closing : allowed;
  return from[random() % from.size()];
}

struct Walk {
  std::string output;
  bool ended = false;
};

Walk walk(const std::shared_ptr<const Grammar>& grammar, const std::shared_ptr<const TokenTrie>& trie,
          const std::vector<std::string>& tokens, std::uint32_t seed) {
  std::mt19937 random(seed);
  Matcher matcher = checked(Matcher::create(grammar, trie));
  Walk out;
  for (int i = 0; i < kTokensMax; ++i) {
    const TokenId id = draw(checked(matcher.mask()), tokens, random);
    if (const auto accepted = matcher.accept(id); !accepted) broken("an allowed token was refused");
    if (trie->is_end(id)) {
      out.ended = true;
      break;
    }
    out.output += tokens[index(id)];
  }
  return out;
}

}  // namespace

int main() {
  const std::vector<std::string> tokens = mixed_tokens();
  const auto trie = trie_of(tokens);
  const llorch::parity::Witness witness;
  for (std::string line; std::getline(std::cin, line);) {
    const boost::json::value input = boost::json::parse(line, {}, {.max_depth = 256});
    const auto grammar = Grammar::from_json_schema(boost::json::serialize(input.at("schema")));
    if (!grammar) {
      std::cout << boost::json::serialize(boost::json::object{{"error", grammar.error().message}}) << "\n";
      continue;
    }
    const Walk result = walk(*grammar, trie, tokens, input.at("seed").to_number<std::uint32_t>());
    const std::string completed = checked(witness.complete(*grammar, result.output, result.ended));
    std::cout << boost::json::serialize(boost::json::object{{"output", llorch::parity::hex(result.output)},
                                                            {"ended", result.ended},
                                                            {"completed", llorch::parity::hex(completed)}})
              << "\n";
  }
}
