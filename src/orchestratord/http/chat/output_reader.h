#pragma once
// The tokens of an answer as what a chat API shows: content, thoughts and calls. Pure; not thread-safe.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "orchestratord/models/chat_format.h"
#include "orchestratord/streams/replay/token_json.h"
#include "text/formats/parser.h"

namespace llorch::orchestratord::http::chat {

// How the output of one job is read. Immutable.
struct Reading {
  std::shared_ptr<const models::ChatFormat> format;  // not null
  text::formats::Tools tools;                        // none: nothing is a call
  bool in_thought = false;                           // the prompt has opened a thought
  bool calls_or_answer = false;                      // Parser::Options::calls_or_answer
};

struct Part {
  enum class Kind { kContent, kReasoning, kCall };
  Kind kind = Kind::kContent;
  std::string text;       // of a call its arguments, a JSON object in one line
  std::string name = {};  // of a call
  std::string id = {};    // of a call, where the model gave it one
  std::size_t index = 0;  // of a call: 0, 1, 2, ...
  bool operator==(const Part&) const = default;
};

// A call is given when it is whole, in one part: one that breaks off is content, and nobody has been told otherwise.
class OutputReader {
 public:
  explicit OutputReader(std::shared_ptr<const Reading> reading);

  // Appends the parts that this token completes.
  void take(const streams::TokenView& token, std::vector<Part>& out);
  // The output is over. Call once.
  void finish(std::vector<Part>& out);
  std::size_t calls() const { return calls_; }

 private:
  void settle(std::vector<Part>& out);

  const std::shared_ptr<const Reading> reading_;
  text::formats::Parser parser_;
  std::vector<text::formats::Delta> deltas_;
  std::optional<Part> open_;  // a call that is not whole
  std::size_t calls_ = 0;
};

}  // namespace llorch::orchestratord::http::chat
