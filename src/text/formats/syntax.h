#pragma once
// A format as data. known/ holds one per file.
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/formats/format.h"

namespace llorch::text::formats {

// Of a call whose name stands before its arguments and not inside of them.
struct Head {
  std::string name;
  std::string id;
};
// `text` is everything between the opening marker and the `{` of the arguments.
using ReadHead = std::optional<Head> (*)(std::string_view text);

enum class Body {
  kJson,      // an object with name and arguments, an array of them, or a head and an object of arguments
  kPythonic,  // f(a=1), or a list of such calls
  kXml,       // <function=f><parameter=a>1</parameter></function>
  kBraces,    // call:f{a:1}
  kChannel,   // a header that says where the message goes
};

struct CallSyntax {
  std::string_view open;
  Body body = Body::kJson;
  std::string_view close = {};  // ends the text of kPythonic and kBraces
  ReadHead head = nullptr;      // kJson; without one the text is an object or an array
  bool takes_list = true;       // kJson with a head: whether an object or an array may stand there as well
  bool is_bare = false;         // `open` belongs to the call, which stands only where no text precedes it
  bool has_id = false;          // kJson: the id may follow the arguments
  std::string_view quote = {};  // kBraces: on both sides of a string
};

struct ThoughtSyntax {
  std::string_view open = {};   // empty: a channel opens it
  std::string_view close = {};  // empty: the format knows no thoughts
};

// How required_call() spells calls: list_open, then per call open NAME behind_name ARGUMENTS close, then list_close.
struct Spelling {
  std::string_view list_open = {}, open, behind_name, close, separator = {}, list_close = {};
  Body arguments = Body::kJson;
  bool allows_several = true;
  std::string_view thought_open = {}, behind_thought = {};  // where `thought` does not say it
  std::string_view answer_open = {};                        // before a text that stands instead of calls
};

struct Syntax {
  Format format;
  std::string_view name;
  // A template that holds all of one of them teaches this format.
  std::span<const std::string_view> signs;
  ThoughtSyntax thought;
  std::span<const CallSyntax> calls;
  std::span<const std::string_view> call_closers;  // stand behind calls and mean nothing else
  std::span<const std::string_view> silent;        // stand anywhere and mean nothing
  std::span<const std::string_view> inner;         // stand within calls
  bool has_channels = false;                       // a header ends a thought
  Spelling spelling;
};

const Syntax& syntax_of(Format format);

}  // namespace llorch::text::formats
