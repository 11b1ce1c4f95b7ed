#include "text/text_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"

namespace llorch::text {
namespace {

// The most that published tokenizers add to a byte is 13: NFKC and NFKD make 33 bytes of the 3 of U+FDFA, 4 of them spaces,
// each of which becomes a mark of 3. A mark in front of each word adds 3 to at least one byte; the byte-level alphabet adds
// nothing here, where pieces stay bytes.
constexpr std::size_t kGrowthPerByte = 16;
constexpr std::size_t kGrowthFree = 64u << 10;  // whatever is put in front of a short text
// Models index texts with 31 bits.
constexpr std::size_t kBytesMax = (std::size_t{1} << 31) - 1;

// Published patterns take up to 25 steps for a byte, 1 to 15 of long runs; a tokenizer may have several: the longest prompt by default,
// of 4 MiB, may take 64 for a byte. A step takes some 20 ns, so any text is refused after seconds. What is free lets a pattern that is
// quadratic in runs pass over runs of about 1500 characters.
constexpr std::uint64_t kStepsPerByte = 256, kStepsPerByteAtLeast = 32;
constexpr std::uint64_t kStepsFree = 1u << 22;
constexpr std::uint64_t kStepsMax = 1u << 28;  // where that leaves fewer for a byte than the least, those

std::uint64_t steps_of(std::size_t bytes) {
  return std::min(kStepsPerByte * bytes + kStepsFree, std::max(kStepsMax, kStepsPerByteAtLeast * bytes));
}

}  // namespace

TextBudget::TextBudget(std::size_t bytes, base::ErrorCode code)
    : bytes_(bytes),
      code_(code),
      growth_left_(std::min(kGrowthPerByte * bytes + kGrowthFree, kBytesMax - std::min(bytes, kBytesMax))),
      steps_left_(steps_of(bytes)) {}

TextBudget TextBudget::of_tokens(const std::vector<std::string>& tokens) {
  std::size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  return {bytes, base::ErrorCode::kUnsupportedTokenizer};
}

void TextBudget::add_text(std::size_t bytes) {
  ASSERT(bytes <= kBytesMax, "bytes={}", bytes);
  growth_left_ = std::min(growth_left_ + kGrowthPerByte * bytes, kBytesMax - bytes);
  steps_left_ += steps_of(bytes_ + bytes) - steps_of(bytes_);
  bytes_ += bytes;
  ++texts_count_;
}

std::string_view TextBudget::whose() const {
  if (code_ == base::ErrorCode::kUnsupportedTokenizer) return "its own tokens";
  return texts_count_ > 1 ? "these texts" : "this text";
}

void TextBudget::spend_growth(std::size_t before, std::size_t after) {
  ASSERT(after <= bytes_max(before), "after={} before={} left={}", after, before, growth_left_);
  if (after > before) growth_left_ -= after - before;
}

bool TextBudget::spend_steps(std::uint64_t steps) {
  if (steps > steps_left_) steps_left_ = 0;
  if (steps_left_ == 0) return false;
  steps_left_ -= steps;
  return true;
}

base::Error TextBudget::too_long() const {
  const bool at_load = code_ == base::ErrorCode::kUnsupportedTokenizer;
  return {
      code_,
      fmt::format("the steps of the model's tokenizer make {} of {} bytes longer than {} times as long and {} bytes; "
                  "{}use the model's GGUF, whose tokenizer has no such steps",
                  whose(), bytes_, kGrowthPerByte + 1, kGrowthFree, at_load ? "" : "send another text, or "),
      {}};
}

base::Error TextBudget::too_slow() const {
  const bool at_load = code_ == base::ErrorCode::kUnsupportedTokenizer;
  return {
      code_,
      fmt::format("the pipeline and the long tokens of the model's tokenizer take more than {} steps for the {} bytes "
                  "of {}, or more memory than they may; {}use another file of the model: a GGUF whose pre-tokenizer "
                  "has a name has few steps and fast patterns",
                  steps_of(bytes_), bytes_, whose(),
                  at_load            ? ""
                  : texts_count_ > 1 ? "send fewer or shorter texts, or "
                                     : "send a shorter text, or "),
      {}};
}

}  // namespace llorch::text
