#pragma once
// Calls in notations whose end must be seen before their arguments can be told.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/formats/read/call_output.h"
#include "text/formats/syntax.h"
#include "text/formats/tools.h"

namespace llorch::text::formats {

struct WholeCall {
  std::string name;
  std::string arguments;  // JSON object
};
using WholeCallList = std::optional<std::vector<WholeCall>>;  // nothing: the text is no such calls

// `[f(a=1, b="x"), g()]`, or one call without brackets. Arguments without a name take the tool's parameters in order.
WholeCallList read_pythonic(std::string_view text, const Tools& tools);
// `<function=f>\n<parameter=a>\n1\n</parameter>\n</function>`; `<function=` may be missing.
WholeCallList read_xml(std::string_view text, const Tools& tools);
// `call:f{a:1,b:QxQ,c:[1],d:{e:2}}`, Q being `quote`.
WholeCallList read_braces(std::string_view text, std::string_view quote);

// Body::kPythonic, kXml and kBraces.
class WholeCalls : public CallReader {
 public:
  WholeCalls(const CallSyntax& syntax, const Tools& tools) : syntax_(syntax), tools_(tools) {}

  Step step(char c, CallOutput& out) override;
  // Models that end with their calls leave the closing marker out; only kXml cannot tell a whole call without it.
  bool finish(CallOutput& out) override;

 private:
  bool may_begin() const;
  void track_string(char c);
  bool read(std::string_view text, CallOutput& out);

  const CallSyntax& syntax_;
  const Tools& tools_;
  std::string text_;
  bool in_string_ = false;  // where the closing marker means nothing
  char quote_ = 0;          // kPythonic
  bool is_escaped_ = false;
};

}  // namespace llorch::text::formats
