#pragma once
// Strings of a running template: immutable UTF-8 with the origin of every byte.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/chat_template.h"

namespace llorch::text::jinja {

// Counts what a render uses. Everything that allocates or repeats reports here first; the first limit passed is kept
// and fails every later check, so that code without a Result may report too.
class Budget {
 public:
  // `steps_before`: what was taken of the limit's steps before.
  explicit Budget(const RenderLimits& limits, std::uint64_t steps_before = 0) : limits_(limits), steps_(steps_before) {}
  Budget(const Budget&) = delete;

  // False when a limit is passed; then failure() says which.
  bool step(std::uint64_t count = 1);
  bool text_work(std::size_t bytes) { return step(1 + bytes / 64); }
  bool allocate(std::size_t bytes);
  void release(std::size_t bytes) { memory_bytes_ -= bytes; }
  bool output(std::size_t bytes);
  bool ok() const { return failed_.empty(); }
  std::uint64_t steps() const { return steps_; }
  base::Error failure() const;
  const RenderLimits& limits() const { return limits_; }

 private:
  bool fail(std::string_view what, std::uint64_t limit);

  const RenderLimits& limits_;
  std::uint64_t steps_;
  std::size_t memory_bytes_ = 0;
  std::string_view failed_;
  std::uint64_t failed_limit_ = 0;
};

// Memory that a function needs for as long as it runs, beside texts and containers.
class HeldMemory {
 public:
  explicit HeldMemory(Budget& budget) : budget_(budget) {}
  ~HeldMemory() { budget_.release(bytes_); }
  HeldMemory(const HeldMemory&) = delete;
  bool grow(std::size_t bytes) {
    bytes_ += bytes;
    return budget_.allocate(bytes);
  }

 private:
  Budget& budget_;
  std::size_t bytes_ = 0;
};

struct OriginRun {
  std::size_t end;  // byte offset after the run
  Origin origin;
};

class Text {
 public:
  // `runs`: ascending, neighbours differ, the last ends the text; none for an empty text. `budget` (may be null: not
  // counted) must outlive the text.
  Text(std::string bytes, std::vector<OriginRun> runs, Budget* budget);
  ~Text();
  Text(const Text&) = delete;

  const std::string& bytes() const { return bytes_; }
  const std::vector<OriginRun>& runs() const { return runs_; }
  bool empty() const { return bytes_.empty(); }
  std::size_t length() const { return length_; }  // code points
  // Byte offset of code point `index`; index <= length(). Walks at most offset_bytes() of the text.
  std::size_t offset(std::size_t index) const;
  std::size_t offset_bytes() const { return length_ == bytes_.size() ? 0 : bytes_.size(); }
  Origin origin_at(std::size_t byte) const;
  // kData when any byte is.
  Origin origin() const;

 private:
  std::string bytes_;
  std::vector<OriginRun> runs_;
  std::size_t length_;
  Budget* budget_;
};

using TextPtr = std::shared_ptr<const Text>;

// Builds a text piece by piece. Past the budget it stops growing; take() then fails.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(budget) {}
  ~TextBuilder() { budget_.release(reserved_); }
  TextBuilder(const TextBuilder&) = delete;

  void append(std::string_view bytes, Origin origin);
  void append(const Text& text) { append(text, 0, text.bytes().size()); }
  void append(const Text& text, std::size_t begin, std::size_t end);  // bytes
  std::size_t size() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }
  std::vector<OriginRun>& runs() { return runs_; }

  base::Result<TextPtr> take();

 private:
  Budget& budget_;
  std::string bytes_;
  std::vector<OriginRun> runs_;
  std::size_t reserved_ = 0;
};

base::Result<TextPtr> make_text(Budget& budget, std::string_view bytes, Origin origin);
// A text of the template itself, not counted.
TextPtr literal_text(std::string_view bytes);
base::Result<TextPtr> sub_text(Budget& budget, const Text& text, std::size_t begin, std::size_t end);  // bytes

}  // namespace llorch::text::jinja
