#include "text/text_stream.h"

#include <fmt/format.h>

#include <utility>

#include "base/assert.h"
#include "base/utf8.h"

namespace llorch::text {
namespace {

tl::unexpected<base::Error> invalid(std::string message, std::string reason) {
  return tl::unexpected(base::Error{base::ErrorCode::kInvalidParams, std::move(message), {}}
                            .with("field", std::string("stop"))
                            .with("reason", std::move(reason)));
}

}  // namespace

base::Result<> validate_stop_strings(const Tokenizer& tokenizer, std::span<const std::string> stop_strings) {
  if (stop_strings.size() > kStopStringsMax) {
    return invalid(fmt::format("stop has {} strings, the limit is {}", stop_strings.size(), kStopStringsMax), "count");
  }
  for (std::size_t i = 0; i < stop_strings.size(); ++i) {
    if (stop_strings[i].empty()) return invalid(fmt::format("stop[{}] is empty; leave it out", i), "length");
    const std::size_t tokens_count = TRY(tokenizer.encode(stop_strings[i], {.add_special = false})).size();
    if (tokens_count > kStopStringTokensMax) {
      return invalid(fmt::format("stop[{}] is {} tokens long, the limit is {}", i, tokens_count, kStopStringTokensMax),
                     "length");
    }
  }
  return {};
}

std::string Utf8Assembler::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const base::Utf8Step step = base::next_code_point(rest);
    if (step.status == base::Utf8Status::kIncomplete) break;
    out += step.status == base::Utf8Status::kComplete ? rest.substr(0, step.bytes) : base::kReplacementCharacter;
    rest.remove_prefix(step.bytes);
  }
  pending_ = std::string(rest);
  return out;
}

std::string Utf8Assembler::finish() {
  // What is pending is one unfinished code point, hence one replacement.
  return std::exchange(pending_, {}).empty() ? std::string() : std::string(base::kReplacementCharacter);
}

TextStream::TextStream(const Tokenizer& tokenizer, Options options)
    : tokenizer_(&tokenizer),
      drop_space_(options.at_text_start && tokenizer.facts().drops_leading_space),
      matcher_(std::move(options.stop_strings)) {}

TextPiece TextStream::push(TokenId token) {
  std::string_view bytes = tokenizer_->token_bytes(token);
  // Some files mark their end token as a normal one; its spelling is still no text.
  if (tokenizer_->is_end_of_generation(token)) bytes = {};
  if (drop_space_ && !bytes.empty()) {
    drop_space_ = false;
    if (bytes.front() == ' ') bytes.remove_prefix(1);
  }
  auto [text, stopped] = matcher_.push(assembler_.push(bytes));
  return {std::move(text), stopped};
}

TextPiece TextStream::finish() {
  auto [text, stopped] = matcher_.push(assembler_.finish());
  text += matcher_.finish();
  return {std::move(text), stopped};
}

}  // namespace llorch::text
