#include "text/formats/read/json_calls.h"

#include <utility>

#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr std::size_t kHeadBytesMax = 512;
constexpr std::string_view kMessage = "<|message|>";

bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

CallReader::Step JsonCalls::step(char c, CallOutput& out) {
  switch (state_) {
    case State::kStart: return start(c, out);
    case State::kHead: return head(c, out);
    case State::kObject: return object(c, out);
    case State::kItem:
      if (is_json_space(c)) return Step::kMore;
      return c == '{' ? open(CallObject::Kind::kCall, out) : Step::kBroken;
    case State::kBehindItem:
      if (is_json_space(c)) return Step::kMore;
      if (c == ']') return Step::kDone;
      state_ = State::kItem;
      return c == ',' ? Step::kMore : Step::kBroken;
  }
  return Step::kBroken;
}

bool JsonCalls::finish(CallOutput&) { return state_ == State::kBehindItem; }

CallReader::Step JsonCalls::start(char c, CallOutput& out) {
  if (is_json_space(c)) return Step::kMore;
  const bool takes_list = syntax_.head == nullptr || syntax_.takes_list;
  if (c == '{' && takes_list) {
    return open(syntax_.is_bare ? CallObject::Kind::kCallOnly : CallObject::Kind::kCall, out);
  }
  if (c == '[' && takes_list) {
    in_list_ = true;
    state_ = State::kItem;
    return Step::kMore;
  }
  if (syntax_.head == nullptr) return Step::kBroken;
  state_ = State::kHead;
  return head(c, out);
}

CallReader::Step JsonCalls::head(char c, CallOutput& out) {
  if (c != '{') {
    head_text_ += c;
    return head_text_.size() <= kHeadBytesMax ? Step::kMore : Step::kBroken;
  }
  std::optional<Head> read = syntax_.head(head_text_);
  if (!read) return Step::kBroken;
  head_ = std::move(*read);
  return open(CallObject::Kind::kArguments, out);
}

CallReader::Step JsonCalls::open(CallObject::Kind kind, CallOutput& out) {
  object_.emplace(kind);
  state_ = State::kObject;
  return object('{', out);
}

CallReader::Step JsonCalls::object(char c, CallOutput& out) {
  const CallObject::Step step = object_->step(c);
  if (step == CallObject::Step::kBroken) return Step::kBroken;
  if (object_->took_argument()) {
    arguments_ += c;
    const bool has_name = object_->has_name() || !head_.name.empty();
    if (has_name && !syntax_.has_id && !begin(out)) return Step::kBroken;
  }
  if (step == CallObject::Step::kMore) return Step::kMore;
  if (!end(out)) return Step::kBroken;
  state_ = State::kBehindItem;
  return in_list_ ? Step::kMore : Step::kDone;
}

// Begins the call where it has not begun, and puts out what there is of its arguments.
bool JsonCalls::begin(CallOutput& out) {
  if (!out.is_open()) {
    const std::string& name = head_.name.empty() ? object_->name() : head_.name;
    if (syntax_.is_bare && tools_.find(name) == nullptr) return false;
    out.begin(name, head_.name.empty() ? object_->id() : head_.id);
  }
  out.arguments(std::exchange(arguments_, {}));
  return true;
}

bool JsonCalls::end(CallOutput& out) {
  if (!out.is_open() && arguments_.empty()) {
    arguments_ = object_->quoted_arguments().empty() ? "{}" : object_->quoted_arguments();
  }
  if (!begin(out)) return false;
  out.end();
  object_.reset();
  head_ = {};
  return true;
}

ChannelMessage::ChannelMessage(const CallSyntax& syntax, const Tools& tools)
    : has_tools_(!tools.empty()), header_(syntax.open) {
  if (syntax.is_bare) header_.pop_back();
}

CallReader::Step ChannelMessage::step(char c, CallOutput& out) {
  if (!arguments_) {
    if (c == '\n' || c == '{' || header_.size() == kHeadBytesMax) return Step::kBroken;
    header_ += c;
    return header_.ends_with(kMessage) ? header_end() : Step::kMore;
  }
  if (!out.is_open() && is_json_space(c)) return Step::kMore;
  if (!out.is_open() && c != '{') return Step::kBroken;
  const CallObject::Step step = arguments_->step(c);
  if (step == CallObject::Step::kBroken) return Step::kBroken;
  if (!out.is_open()) out.begin(name_, {});
  out.arguments({&c, 1});
  if (step == CallObject::Step::kMore) return Step::kMore;
  out.end();
  return Step::kDone;
}

bool ChannelMessage::finish(CallOutput&) { return false; }

// <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>, in this or another order.
CallReader::Step ChannelMessage::header_end() {
  constexpr std::string_view kTo = "to=", kFunctions = "functions.", kChannel = "<|channel|>";
  const std::string_view header(header_);
  if (const std::size_t to = header.find(kTo); to != std::string_view::npos) {
    if (!has_tools_) return Step::kContent;
    std::string_view name = header.substr(to + kTo.size());
    name = name.substr(0, name.find_first_of(" <"));
    if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
    if (!is_word(name)) return Step::kBroken;
    name_ = name;
    arguments_.emplace(CallObject::Kind::kArguments);
    return Step::kMore;
  }
  const std::size_t channel = header.find(kChannel);
  if (channel == std::string_view::npos) return Step::kContent;
  return header.substr(channel + kChannel.size()).starts_with("analysis") ? Step::kThought : Step::kContent;
}

}  // namespace llorch::text::formats
