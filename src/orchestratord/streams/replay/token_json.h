#pragma once
// A token, and its JSON on the two wires. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/token_id.h"

namespace llorch::orchestratord::streams {

// A token of a job. The views live as long as their source says.
struct TokenView {
  std::string_view t;                 // REQUIRES well-formed UTF-8, whole code points; may be empty
  std::int64_t i = 0;                 // 0, 1, 2, ...
  std::string_view logprobs{};        // JSON of wire::TokenLogprobs; empty: none
  std::optional<base::TokenId> id{};  // in the model's vocabulary; absent: the worker did not say
  bool of_prompt = false;  // no token of the output: `t` is empty, and `logprobs` of wire::PromptTokenLogprobs
  bool operator==(const TokenView&) const = default;
};

// Appends the JSON of a wire::TokenEvent, the same bytes as wire::encode, without a DOM: it runs per token and client.
void append_token_json(std::string& out, const TokenView& token);

// What a worker's token event says besides its text.
struct TokenNumbers {
  std::int64_t i = 0;
  std::optional<base::TokenId> id;
  bool operator==(const TokenNumbers&) const = default;
};
// Reads a wire::WorkerTokenEvent as far as the way from a worker needs it: appends the text to `text`, of an event with
// exactly t, i and possibly id in this order. Absent, with `text` as it was: whatever else, valid or not, is for
// wire::decode to judge.
std::optional<TokenNumbers> read_token_json(std::string_view json, std::string& text);

}  // namespace llorch::orchestratord::streams
