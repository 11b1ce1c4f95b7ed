#include "orchestratord/http/chat/output_reader.h"

#include <algorithm>
#include <utility>

namespace llorch::orchestratord::http::chat {
namespace {

using text::formats::Delta;

void append(Part::Kind kind, std::string text, std::vector<Part>& out) {
  if (out.empty() || out.back().kind != kind) {
    out.push_back({.kind = kind, .text = std::move(text)});
  } else {
    out.back().text += text;
  }
}

// In JSON a line break that is not escaped is white space between two tokens.
void join_lines(std::string& json) {
  std::ranges::replace_if(
      json, [](char c) { return c == '\n' || c == '\r'; }, ' ');
}

}  // namespace

OutputReader::OutputReader(std::shared_ptr<const Reading> reading)
    : reading_(std::move(reading)),
      parser_({.format = reading_->format->format,
               .tools = reading_->tools,
               .in_thought = reading_->in_thought,
               .calls_or_answer = reading_->calls_or_answer}) {}

void OutputReader::take(const streams::TokenView& token, std::vector<Part>& out) {
  parser_.feed(token.t, deltas_);
  // The marker that ends an answer is no part of it.
  if (token.t.empty() && token.id && !parser_.in_answer()) parser_.feed(reading_->format->marker(*token.id), deltas_);
  settle(out);
}

void OutputReader::finish(std::vector<Part>& out) {
  parser_.finish(deltas_);
  settle(out);
}

void OutputReader::settle(std::vector<Part>& out) {
  for (Delta& delta : deltas_) {
    switch (delta.kind) {
      case Delta::Kind::kContent: append(Part::Kind::kContent, std::move(delta.text), out); break;
      case Delta::Kind::kReasoning: append(Part::Kind::kReasoning, std::move(delta.text), out); break;
      case Delta::Kind::kCallBegin:
        open_ = Part{.kind = Part::Kind::kCall, .text = {}, .name = std::move(delta.text), .id = std::move(delta.id)};
        break;
      case Delta::Kind::kArguments: open_->text += delta.text; break;
      case Delta::Kind::kCallEnd:
        open_->index = calls_++;
        join_lines(open_->text);
        if (open_->id.empty()) open_->id = std::move(delta.id);
        out.push_back(*std::exchange(open_, std::nullopt));
        break;
      case Delta::Kind::kCallBroken: open_.reset(); break;
    }
  }
  deltas_.clear();
}

}  // namespace llorch::orchestratord::http::chat
