#include "tests/parity/jsonschema/witness.h"

#include <fmt/core.h>

#include <random>
#include <vector>

#include "base/assert.h"

namespace llorch::parity {

using base::ErrorCode;
using base::TokenId;
using grammar::Grammar;
using grammar::Matcher;
using grammar::TokenTrie;

namespace {

constexpr TokenId kEnd{256};
constexpr std::size_t kMoreBytesMax = 20'000;

// The end, a quote, or in turns a bracket that closes and any byte: within a string, where a bracket is only one more
// character, a pattern may want others before the quote.
TokenId next_byte(std::span<const std::uint32_t> mask, std::mt19937& random) {
  const auto is_allowed = [&](std::uint32_t id) { return (mask[id / 32] >> id % 32 & 1) != 0; };
  if (is_allowed(index(kEnd))) return kEnd;
  if (is_allowed('"')) return TokenId{'"'};
  if (random() % 2 == 0) {
    for (const char closing : {'}', ']'}) {
      if (is_allowed(static_cast<std::uint8_t>(closing))) return TokenId{static_cast<std::uint8_t>(closing)};
    }
  }
  std::vector<TokenId> allowed;
  for (std::uint32_t id = 0; id < 256; ++id) {
    if (is_allowed(id)) allowed.push_back(TokenId{id});
  }
  ASSERT(!allowed.empty(), "a mask is never empty");
  return allowed[random() % allowed.size()];
}

}  // namespace

Witness::Witness() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  bytes_ = TokenTrie::build(views, {&kEnd, 1}).value();
}

base::Result<std::string> Witness::complete(const std::shared_ptr<const Grammar>& grammar, std::string_view output,
                                            bool ended) const {
  Matcher matcher = TRY(Matcher::create(grammar, bytes_));
  for (const char c : output) {
    if (!matcher.accept(TokenId{static_cast<std::uint8_t>(c)}))
      return base::fail(ErrorCode::kInternal, "byte by byte, the output is refused");
  }
  std::string text(output);
  if (ended) {
    if (matcher.is_complete()) return text;
    return base::fail(ErrorCode::kInternal, "byte by byte, the output is not complete");
  }
  std::mt19937 random(static_cast<std::uint32_t>(output.size()));
  while (text.size() < output.size() + kMoreBytesMax) {
    const TokenId id = next_byte(TRY(matcher.mask()), random);
    if (id == kEnd) return text;
    TRY(matcher.accept(id));
    text += static_cast<char>(index(id));
  }
  return base::fail(ErrorCode::kInternal, "no end was found for an output that was cut");
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<std::uint8_t>(c));
  return out;
}

}  // namespace llorch::parity
