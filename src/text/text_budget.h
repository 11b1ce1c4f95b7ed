#pragma once
// What a text may cost in a tokenizer, whose author may be anybody: how much longer normalizer, pre-tokenizer and decoder of a
// tokenizer.json make it, how often they go over it, how far patterns search it, and at how many of its places long tokens are looked
// for. A step asks before it takes memory or time.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace llorch::text {

// One per text, or for all texts of a request, and for all steps together. Not thread-safe.
class TextBudget {
 public:
  // Refuses with INVALID_PARAMS, as the next one.
  static TextBudget of_text(std::size_t bytes) {
    TextBudget out = of_texts();
    out.add_text(bytes);
    return out;
  }
  // What is free is there once; each text adds what its bytes may cost.
  static TextBudget of_texts() { return {0, base::ErrorCode::kInvalidParams}; }
  void add_text(std::size_t bytes);
  // One for all tokens, when a tokenizer is made. Refuses with UNSUPPORTED_TOKENIZER.
  static TextBudget of_tokens(const std::vector<std::string>& tokens);

  // The most bytes that a step may make of `bytes`.
  std::size_t bytes_max(std::size_t bytes) const { return bytes + growth_left_; }
  // A step made `after` bytes of `before`; one that shortens a text gives nothing back. REQUIRES after <= bytes_max(before).
  void spend_growth(std::size_t before, std::size_t after);
  // False: there are not so many left, and none are from now on, unless a text is added.
  bool spend_steps(std::uint64_t steps);
  // The same of looking for tokens: so many of their bytes were passed one by one, or hashed as one key.
  bool spend_walk(std::size_t bytes) { return spend_steps(bytes / kWalkedBytesPerStep); }
  bool spend_hash(std::size_t bytes) { return spend_steps(bytes / kHashedBytesPerStep); }
  std::uint64_t steps_left() const { return steps_left_; }

  base::Error too_long() const;
  base::Error too_slow() const;

 private:
  // What is done in the time of a step. Words take 1 or 2 for a byte of a text. A run of one character takes the most, as its longest
  // token is looked for at each place: 23 for spaces, of which Gemma has tokens of up to 31, written as 93 bytes.
  static constexpr std::size_t kWalkedBytesPerStep = 4, kHashedBytesPerStep = 32;

  TextBudget(std::size_t bytes, base::ErrorCode code);

  std::string_view whose() const;

  std::size_t bytes_;
  base::ErrorCode code_;
  std::size_t texts_count_ = 0;
  std::size_t growth_left_;
  std::uint64_t steps_left_;
};

}  // namespace llorch::text
