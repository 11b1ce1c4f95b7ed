#include "text/formats/read/whole_calls.h"

#include <memory>

#include "base/utf8.h"
#include "text/formats/read/json_calls.h"
#include "text/formats/read/readers.h"
#include "text/formats/read/values.h"

namespace llorch::text::formats {

CallReader::Step WholeCalls::step(char c, CallOutput& out) {
  text_ += c;
  if (!may_begin()) {
    text_.pop_back();
    return Step::kBroken;
  }
  track_string(c);
  if (in_string_ || !text_.ends_with(syntax_.close)) return Step::kMore;
  const std::string_view all(text_);
  if (read(all.substr(0, all.size() - syntax_.close.size()), out)) return Step::kDone;
  return Step::kBroken;
}

bool WholeCalls::finish(CallOutput& out) { return syntax_.body != Body::kXml && read(text_, out); }

// Whether the text can still become a call, as far as its first bytes tell.
bool WholeCalls::may_begin() const {
  const bool has_opened = syntax_.body == Body::kXml && syntax_.open == "<function=";
  const std::string_view start = syntax_.body == Body::kBraces ? "call:" : "<function=";
  if (syntax_.body == Body::kPythonic || has_opened || text_.size() > 2 * start.size()) return true;
  Cursor cursor(text_);
  cursor.skip_space();
  return start.starts_with(cursor.rest()) || cursor.rest().starts_with(start);
}

void WholeCalls::track_string(char c) {
  switch (syntax_.body) {
    case Body::kPythonic:
      if (is_escaped_) {
        is_escaped_ = false;
      } else if (in_string_) {
        is_escaped_ = c == '\\';
        in_string_ = c != quote_;
      } else if (c == '"' || c == '\'') {
        in_string_ = true;
        quote_ = c;
      }
      return;
    case Body::kXml:
      if (text_.ends_with("<parameter=")) in_string_ = true;
      if (text_.ends_with("</parameter>")) in_string_ = false;
      return;
    default:
      if (text_.ends_with(syntax_.quote)) in_string_ = !in_string_;
  }
}

bool WholeCalls::read(std::string_view text, CallOutput& out) {
  if (!base::is_valid_utf8(text)) return false;
  WholeCallList calls;
  switch (syntax_.body) {
    case Body::kPythonic: calls = read_pythonic(text, tools_); break;
    case Body::kXml: calls = read_xml(text, tools_); break;
    default: calls = read_braces(text, syntax_.quote);
  }
  if (!calls) return false;
  for (WholeCall& call : *calls) {
    out.begin(std::move(call.name), {});
    out.arguments(call.arguments);
    out.end();
  }
  return true;
}

std::unique_ptr<CallReader> make_reader(const CallSyntax& syntax, const Tools& tools) {
  switch (syntax.body) {
    case Body::kJson: return std::make_unique<JsonCalls>(syntax, tools);
    case Body::kChannel: return std::make_unique<ChannelMessage>(syntax, tools);
    default: return std::make_unique<WholeCalls>(syntax, tools);
  }
}

}  // namespace llorch::text::formats
