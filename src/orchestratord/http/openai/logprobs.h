#pragma once
// Log-probabilities as the two endpoints write them. Pure.
#include <cstdint>
#include <string>

#include "orchestratord/http/openai/request.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::openai {

// Takes tokens and writes those since the last write. Of a chat they are {"content":[...],"refusal":null}, each as the worker
// spelled it, which is that API's spelling and the token's id; of a response the list alone; of a completion four lists, without
// the ids. Tokens of a completion's prompt stand in the lists as those of the output do; of the first two of the entries are null.
class LogprobsWriter {
 public:
  explicit LogprobsWriter(Endpoint endpoint) : endpoint_(endpoint) {}

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
  std::string content_;                           // of a chat or a response
  std::string tokens_, values_, tops_, offsets_;  // of a completion; each the inside of a JSON array
  std::int64_t code_points_ = 0;                  // of the text so far
};

}  // namespace llorch::orchestratord::http::openai
