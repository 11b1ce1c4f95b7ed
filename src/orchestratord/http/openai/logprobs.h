#pragma once
// Log-probabilities as the two endpoints write them. Pure.
#include <cstdint>
#include <string>

#include "orchestratord/http/openai/request.h"
#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::openai {

// Takes tokens and writes those since the last write. Of a chat they are {"content":[...],"refusal":null}, each as the worker
// spelled it, which is that API's spelling and the token's id; of a response the list alone; of a completion four lists, without
// the ids.
class LogprobsWriter {
 public:
  explicit LogprobsWriter(Endpoint endpoint) : endpoint_(endpoint) {}

  // A token without log-probabilities counts only as text that those after it follow.
  void add(const streams::TokenView& token);
  // Appends the object, or null if there is nothing to write; of a response a list, maybe empty.
  void write(std::string& out);

 private:
  void add_to_lists(const streams::TokenView& token);

  const Endpoint endpoint_;
  std::string content_;                           // of a chat or a response
  std::string tokens_, values_, tops_, offsets_;  // of a completion; each the inside of a JSON array
  std::int64_t code_points_ = 0;                  // of the text so far
};

}  // namespace llorch::orchestratord::http::openai
