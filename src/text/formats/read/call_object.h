#pragma once
// One JSON object as it arrives: a call with its name in it, or the arguments alone.
#include <memory>
#include <string>
#include <string_view>

namespace llorch::text::formats {

class CallObject {
 public:
  // kCall: members `name` (or `tool_name`) and `arguments` (or `parameters`), `id` (or `tool_call_id`), and others.
  // kCallOnly: no other members but `type`, and both are there. kArguments: the object is the arguments.
  enum class Kind { kCall, kCallOnly, kArguments };
  explicit CallObject(Kind kind);
  ~CallObject();

  enum class Step { kMore, kDone, kBroken };
  Step step(char c);

  bool has_name() const;
  const std::string& name() const;
  const std::string& id() const;
  // Whether the last byte was one of the arguments' object.
  bool took_argument() const;
  // REQUIRES kDone: arguments that stood in a string, as the JSON object they are; empty where there were none.
  const std::string& quoted_arguments() const;

 private:
  class Handler;
  struct Parser;
  std::unique_ptr<Parser> parser_;
  bool took_argument_ = false;
};

}  // namespace llorch::text::formats
