#pragma once
// What a parser puts out, and the side of it that readers of calls write to.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace llorch::text::formats {

struct Delta {
  enum class Kind {
    kContent,
    kReasoning,
    kCallBegin,   // text: the function's name; id: where the format carries one
    kArguments,   // text: the next part of the arguments' JSON object
    kCallEnd,     // the arguments are whole
    kCallBroken,  // it was no call after all: its text follows as content
  };
  Kind kind;
  std::size_t index = 0;  // of the call within the output, counted from 0 in the order they begin
  std::string text = {};
  std::string id = {};
  bool operator==(const Delta&) const = default;
};

class CallOutput {
 public:
  void write_to(std::vector<Delta>* out) { out_ = out; }

  void text(Delta::Kind kind, std::string_view text) { append(kind, 0, text); }
  void begin(std::string name, std::string id) {
    out_->push_back({Delta::Kind::kCallBegin, begun_++, std::move(name), std::move(id)});
    is_open_ = true;
  }
  void arguments(std::string_view json) { append(Delta::Kind::kArguments, begun_ - 1, json); }
  void end() { close(Delta::Kind::kCallEnd); }
  void break_off() { close(Delta::Kind::kCallBroken); }
  bool is_open() const { return is_open_; }
  std::size_t ended() const { return ended_; }

 private:
  void append(Delta::Kind kind, std::size_t index, std::string_view text) {
    if (text.empty()) return;
    if (out_->empty() || out_->back().kind != kind || out_->back().index != index) out_->push_back({kind, index});
    out_->back().text += text;
  }
  void close(Delta::Kind kind) {
    out_->push_back({kind, begun_ - 1});
    is_open_ = false;
    ended_ += kind == Delta::Kind::kCallEnd;
  }

  std::vector<Delta>* out_ = nullptr;
  std::size_t begun_ = 0, ended_ = 0;
  bool is_open_ = false;
};

// Reads what stands behind an opening marker, byte by byte.
class CallReader {
 public:
  virtual ~CallReader() = default;

  enum class Step {
    kMore,
    kDone,     // `c` was the last byte of the calls
    kBroken,   // `c` cannot follow; it is not taken
    kThought,  // `c` was the last byte of a header: a thought follows
    kContent,  // the same: content follows
  };
  virtual Step step(char c, CallOutput& out) = 0;
  // The output is over: whether all calls are whole.
  virtual bool finish(CallOutput& out) = 0;
};

}  // namespace llorch::text::formats
