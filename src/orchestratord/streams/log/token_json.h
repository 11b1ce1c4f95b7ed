#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace llorch::orchestratord::streams {

struct TokenData {
  std::string_view t;  // REQUIRES well-formed UTF-8
  std::int64_t i = 0;
  std::string_view logprobs{};  // its JSON; empty: none
};
// Appends the JSON of a TokenEvent, the same bytes as wire::encode, without a DOM: this is the one encoder that runs
// per token.
void append_token_json(std::string& out, const TokenData& token);

// The reverse, as far as the way from a worker needs it: appends the text to `text` and returns the index, of an event
// with exactly these two members in this order. Absent, with `text` as it was: whatever else, valid or not, is for
// wire::decode to judge.
std::optional<std::int64_t> read_token_json(std::string_view json, std::string& text);

}  // namespace llorch::orchestratord::streams
