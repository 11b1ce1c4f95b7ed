#pragma once
#include <optional>
#include <string>

#include "text/formats/read/call_object.h"
#include "text/formats/read/call_output.h"
#include "text/formats/syntax.h"
#include "text/formats/tools.h"

namespace llorch::text::formats {

// Body::kJson.
class JsonCalls : public CallReader {
 public:
  JsonCalls(const CallSyntax& syntax, const Tools& tools) : syntax_(syntax), tools_(tools) {}

  Step step(char c, CallOutput& out) override;
  // A list need not be closed: models that end with their calls leave it out.
  bool finish(CallOutput& out) override;

 private:
  enum class State { kStart, kHead, kObject, kItem, kBehindItem };

  Step start(char c, CallOutput& out);
  Step head(char c, CallOutput& out);
  Step object(char c, CallOutput& out);
  Step open(CallObject::Kind kind, CallOutput& out);
  bool begin(CallOutput& out);
  bool end(CallOutput& out);

  const CallSyntax& syntax_;
  const Tools& tools_;
  State state_ = State::kStart;
  bool in_list_ = false;
  std::string head_text_;
  Head head_;
  std::optional<CallObject> object_;
  std::string arguments_;  // not out yet
};

// Body::kChannel: a header up to <|message|>, then the message. Arguments are one JSON object. Without tools every message is text.
class ChannelMessage : public CallReader {
 public:
  ChannelMessage(const CallSyntax& syntax, const Tools& tools);

  Step step(char c, CallOutput& out) override;
  bool finish(CallOutput& out) override;

 private:
  Step header_end();

  const bool has_tools_;
  std::string header_, name_;
  std::optional<CallObject> arguments_;
};

}  // namespace llorch::text::formats
