#pragma once
// Log-probabilities as the two endpoints write them. Pure.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "orchestratord/http/openai/request.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::openai {

// Takes tokens and writes those since the last write. Of a chat they are {"content":[...],"refusal":null}, each as the worker
// spelled it, which is that API's spelling and the token's id; of a response the list alone; of a completion four lists, without
// the ids. Tokens of a completion's prompt stand in the lists as those of the output do; of the first two of the entries are null.
class LogprobsWriter {
 public:
  // `top_max`: so many of the likeliest are told with a token; absent: all that there are.
  explicit LogprobsWriter(Endpoint endpoint, std::optional<std::int64_t> top_max = {})
      : endpoint_(endpoint), top_max_(top_max) {}

  // A token without log-probabilities counts only as text that those after it follow.
  void add(const streams::TokenView& token);
  // A token of the prompt, whose text is `text`, or what its tokens say where that is empty. Returns the token's bytes as they are:
  // together they are whole characters. REQUIRES: of_prompt, a completion.
  std::string add_prompt(const streams::TokenView& token, std::string_view text);
  // Appends the object, or null if there is nothing to write; of a response a list, maybe empty.
  void write(std::string& out);

 private:
  template <class Logprobs>
  void add_to_lists(const Logprobs& logprobs);

  const Endpoint endpoint_;
  const std::optional<std::int64_t> top_max_;
  std::string content_;                           // of a chat or a response
  std::string tokens_, values_, tops_, offsets_;  // of a completion; each the inside of a JSON array
  std::int64_t code_points_ = 0;                  // of the text so far
};

// The tokens of a prompt as vLLM writes them: null for the first one, which follows on nothing; for each other one an object of token
// ids, its own before the likeliest ones: {"8":{"logprob":-2.5,"rank":3,"decoded_token":" H"},...}. A token that is none of those has a
// rank that nobody has counted: null.
class PromptLogprobsWriter {
 public:
  // `likeliest`: how many stand with each.
  explicit PromptLogprobsWriter(std::int64_t likeliest) : likeliest_(static_cast<std::size_t>(likeliest)) {}

  // REQUIRES: of_prompt.
  void add(const streams::TokenView& token);
  // Appends the list.
  void write(std::string& out) const;

 private:
  const std::size_t likeliest_;
  std::string tokens_;  // the inside of a JSON array
};

}  // namespace llorch::orchestratord::http::openai
