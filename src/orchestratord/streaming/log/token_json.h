#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace llorch::orchestratord::streaming {

struct TokenData {
  std::string_view t;  // REQUIRES well-formed UTF-8
  std::int64_t i = 0;
  std::string_view logprobs{};  // its JSON; empty: none
};
// Replaces `out` by the JSON of a TokenEvent, the same bytes as contract::encode, without a DOM: this is the one encoder
// that runs per token.
void write_token_json(std::string& out, const TokenData& token);

}  // namespace llorch::orchestratord::streaming
