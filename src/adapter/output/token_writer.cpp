#include "adapter/output/token_writer.h"

#include <algorithm>
#include <utility>

#include "net/sse/sse.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace llorch::adapter::output {
namespace {

// The longest part of valid UTF-8 that has at most `bytes_max` bytes and ends with a whole code point.
std::string_view head_of(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

auto too_much() {
  return base::fail(base::ErrorCode::kInternal, "the engine sent more text than the tokens it was asked for have");
}

}  // namespace

void TokenWriter::event(std::string_view text, std::optional<wire::TokenLogprobs> logprobs, std::string& out) {
  hash_.update(text);
  const wire::WorkerTokenEvent token{
      .t = std::string(text), .i = tokens_out_, .id = std::nullopt, .logprobs = std::move(logprobs)};
  net::sse::append_event(out, {.event = "token", .data = wire::encode(token)});
  ++tokens_out_;
}

base::Result<> TokenWriter::add(std::string_view text, std::int64_t tokens,
                                std::span<const wire::TokenLogprobs> logprobs, std::string& out) {
  const auto next = [&logprobs] {
    std::optional<wire::TokenLogprobs> first;
    if (!logprobs.empty()) first = logprobs.front();
    logprobs = logprobs.subspan(first ? 1 : 0);
    return first;
  };
  tokens = std::min(tokens, std::max(kEmptyEventsMax, static_cast<std::int64_t>(logprobs.size())));
  while (!text.empty() && tokens_out_ + 1 < tokens_max_) {
    const std::string_view part = head_of(text, kTextBytesMax);
    event(part, next(), out);
    --tokens;
    text.remove_prefix(part.size());
  }
  for (; text.empty() && tokens > 0 && tokens_out_ + 1 < tokens_max_; --tokens) event({}, next(), out);
  if (text.size() > kHeldBytesMax - held_.size()) return too_much();
  held_ += text;
  if (!held_logprobs_ && tokens_out_ + 1 >= tokens_max_) held_logprobs_ = next();
  return {};
}

base::Result<bool> TokenWriter::finish(std::int64_t counted, std::string& out) {
  std::string_view held = held_;
  while (!held.empty()) {
    if (tokens_out_ >= tokens_max_) return too_much();
    const std::string_view part = head_of(held, tokens_out_ + 1 < tokens_max_ ? kTextBytesMax : held.size());
    event(part, std::exchange(held_logprobs_, std::nullopt), out);
    held.remove_prefix(part.size());
  }
  held_.clear();
  const std::int64_t wanted = std::min(counted, tokens_max_);
  const std::int64_t until = std::min(wanted, tokens_out_ + kEmptyEventsMax);
  while (tokens_out_ < until) event({}, std::exchange(held_logprobs_, std::nullopt), out);
  return tokens_out_ >= wanted;
}

}  // namespace llorch::adapter::output
