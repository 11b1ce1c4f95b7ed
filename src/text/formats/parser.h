#pragma once
// The text of an output, as it arrives, to content, thoughts and tool calls.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/formats/format.h"
#include "text/formats/read/call_output.h"
#include "text/formats/syntax.h"
#include "text/formats/tools.h"

namespace llorch::text::formats {

// A call longer than this is no call; so much text is held while one is open.
inline constexpr std::size_t kCallBytesMax = 1 << 20;
// White space before a marker is the format's. A longer run is text.
inline constexpr std::size_t kSpaceBytesMax = 64;

// One per output, not thread-safe. The deltas depend on the whole text alone, not on how feed() cuts it, once
// neighbours of one kind and index are joined.
//
// Text is held only while it may still be a marker or white space before one. A call in JSON begins as soon as its name
// and the first byte of its arguments are there, and its arguments follow byte by byte. Calls in other notations, and
// those that carry their id behind the arguments, come at their end, in one piece.
//
// Nothing a model writes is lost but markers and white space next to them: text that turns out to be no call is content,
// unchanged. Where the call had begun, kCallBroken tells the reader to drop it, and all of its text follows as content.
class Parser {
 public:
  struct Options {
    Format format = Format::kGeneric;
    Tools tools;              // their schemas decide the types of untyped notations; without any, nothing is a call
    bool in_thought = false;  // prompt_opens_thought()
    // RequiredCall::answer: the output is calls, or content that nothing stands behind, whatever markers that content quotes.
    bool calls_or_answer = false;
  };
  explicit Parser(Options options);
  ~Parser();
  Parser(Parser&&) noexcept;
  Parser& operator=(Parser&&) noexcept;

  // Appends to `out`, and to the text of its last delta. `text` may be cut anywhere, also within a code point.
  void feed(std::string_view text, std::vector<Delta>& out);
  // The output is over. Call once; nothing may follow.
  void finish(std::vector<Delta>& out);
  // Of an output that is calls or an answer: the answer has begun.
  bool in_answer() const { return in_answer_; }

 private:
  enum class MarkKind { kThoughtOpen, kThoughtClose, kCallOpen, kCallClose, kSilent };
  struct Mark {
    std::string_view text;
    MarkKind kind;
    const CallSyntax* call = nullptr;
  };

  bool is_active(const Mark& mark) const;
  void text_byte(char c);
  void settle_mark();
  void matched(const Mark& mark);
  void open_call(const Mark& mark);
  void call_byte(char c);
  void leave_call();
  void break_call();
  void plain(char c);
  void emit(std::string_view text);
  void flush_space();

  std::unique_ptr<const Options> options_;  // readers keep a reference to its tools
  const Syntax* syntax_;
  std::vector<Mark> marks_;
  CallOutput calls_;
  std::unique_ptr<CallReader> reader_;  // of the open call
  std::string held_;                    // text since the last whole call, as the model wrote it
  std::string space_, mark_;            // what may belong to a marker, in this order
  bool in_thought_;
  bool at_start_ = true;     // no text since the beginning, the last thought or the last call
  bool after_call_ = false;  // no text since the last call
  bool skips_space_ = false;
  bool has_calls_ = false;  // or text that began as one
  bool in_answer_ = false;
};

}  // namespace llorch::text::formats
