#include "text/formats/parser.h"

#include <algorithm>
#include <utility>

#include "text/formats/read/readers.h"

namespace llorch::text::formats {

namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

Parser::Parser(Options options)
    : options_(std::make_unique<const Options>(std::move(options))),
      syntax_(&syntax_of(options_->format)),
      in_thought_(options_->in_thought),
      skips_space_(options_->in_thought) {
  const ThoughtSyntax& thought = syntax_->thought;
  if (!thought.open.empty()) marks_.push_back({thought.open, MarkKind::kThoughtOpen});
  if (!thought.close.empty()) marks_.push_back({thought.close, MarkKind::kThoughtClose});
  for (const CallSyntax& call : syntax_->calls) {
    if (!options_->tools.empty() || call.body == Body::kChannel)
      marks_.push_back({call.open, MarkKind::kCallOpen, &call});
  }
  for (const std::string_view closer : syntax_->call_closers) marks_.push_back({closer, MarkKind::kCallClose});
  for (const std::string_view silent : syntax_->silent) marks_.push_back({silent, MarkKind::kSilent});
}

Parser::~Parser() = default;
Parser::Parser(Parser&&) noexcept = default;
Parser& Parser::operator=(Parser&&) noexcept = default;

void Parser::feed(std::string_view text, std::vector<Delta>& out) {
  calls_.write_to(&out);
  for (const char c : text) {
    if (reader_ != nullptr) {
      call_byte(c);
    } else {
      text_byte(c);
    }
  }
}

void Parser::finish(std::vector<Delta>& out) {
  calls_.write_to(&out);
  if (reader_ != nullptr) {
    if (reader_->finish(calls_)) {
      reader_.reset();
    } else {
      break_call();
    }
  }
  flush_space();
  emit(std::exchange(mark_, {}));
}

bool Parser::is_active(const Mark& mark) const {
  if (in_answer_) return false;
  switch (mark.kind) {
    case MarkKind::kThoughtOpen: return !in_thought_ && at_start_;
    case MarkKind::kThoughtClose: return in_thought_;
    case MarkKind::kCallOpen:
      return (!in_thought_ || syntax_->has_channels) && (!mark.call->is_bare || (at_start_ && !in_thought_));
    case MarkKind::kCallClose: return !in_thought_ && after_call_;
    case MarkKind::kSilent: return !in_thought_;
  }
  return false;
}

void Parser::text_byte(char c) {
  mark_ += c;
  settle_mark();
}

// A marker ends here, may still become one, or its first byte is text and the rest is looked at again.
void Parser::settle_mark() {
  while (!mark_.empty()) {
    bool may_follow = false;
    for (const Mark& mark : marks_) {
      if (!mark.text.starts_with(mark_) || !is_active(mark)) continue;
      if (mark.text.size() == mark_.size()) {
        mark_.clear();
        matched(mark);
        return;
      }
      may_follow = true;
    }
    if (may_follow) return;
    plain(mark_.front());
    mark_.erase(0, 1);
  }
}

void Parser::matched(const Mark& mark) {
  switch (mark.kind) {
    case MarkKind::kThoughtOpen:
    case MarkKind::kThoughtClose:
      space_.clear();
      in_thought_ = mark.kind == MarkKind::kThoughtOpen;
      at_start_ = skips_space_ = true;
      return;
    case MarkKind::kCallOpen: open_call(mark); return;
    case MarkKind::kCallClose: skips_space_ = true; return;
    case MarkKind::kSilent: skips_space_ = at_start_; return;
  }
}

void Parser::open_call(const Mark& mark) {
  held_ = std::exchange(space_, {});
  held_ += mark.text;
  reader_ = make_reader(*mark.call, options_->tools);
  // A bare opener and a header may begin an answer as well.
  if (!mark.call->is_bare && mark.call->body != Body::kChannel) has_calls_ = true;
  if (!mark.call->is_bare) return;
  held_.pop_back();  // the reader takes it
  call_byte(mark.text.back());
}

void Parser::call_byte(char c) {
  const std::size_t ended = calls_.ended();
  const CallReader::Step step = held_.size() < kCallBytesMax ? reader_->step(c, calls_) : CallReader::Step::kBroken;
  if (step == CallReader::Step::kBroken) {
    break_call();
    text_byte(c);
    return;
  }
  held_ += c;
  if (calls_.ended() != ended) {
    held_.clear();
    has_calls_ = true;
  }
  if (step == CallReader::Step::kMore) return;
  if (step != CallReader::Step::kDone) in_thought_ = step == CallReader::Step::kThought;
  leave_call();
}

void Parser::leave_call() {
  reader_.reset();
  held_.clear();
  at_start_ = after_call_ = skips_space_ = true;
}

void Parser::break_call() {
  reader_.reset();
  if (calls_.is_open()) calls_.break_off();
  emit(std::exchange(held_, {}));
}

// One byte of text that begins no marker.
void Parser::plain(char c) {
  if (is_space(c)) {
    if (skips_space_) return;
    if (space_.size() == kSpaceBytesMax) flush_space();
    space_ += c;
    return;
  }
  flush_space();
  emit({&c, 1});
}

void Parser::flush_space() { emit(std::exchange(space_, {})); }

void Parser::emit(std::string_view text) {
  if (text.empty()) return;
  calls_.text(in_thought_ ? Delta::Kind::kReasoning : Delta::Kind::kContent, text);
  in_answer_ = options_->calls_or_answer && !in_thought_ && !has_calls_;
  at_start_ = after_call_ = skips_space_ = false;
}

}  // namespace llorch::text::formats
