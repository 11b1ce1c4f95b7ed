#pragma once
// What a Hugging Face tokenizer.json puts around its model, as plain data: the steps that text goes through before it
// and tokens after it. A GGUF file has none of this; its names stand for such steps.
#include <cstdint>
#include <string>
#include <vector>

namespace llorch::text {

struct TextPattern {
  std::string text;
  bool is_regex = false;  // else the text itself
  bool operator==(const TextPattern&) const = default;
};

// Values are on the wire (tokenizer_data.h): append only.
enum class NormalizerKind : std::uint8_t {
  kNfc,
  kNfd,
  kNfkc,
  kNfkd,
  kLowercase,
  kStrip,
  kReplace,
  kPrepend,
  kClean,           // drops controls, formats, private use and U+FFFD; tabs, line ends and spaces become U+0020
  kSpaceCjk,        // a space on either side of every CJK ideograph
  kDropNonspacing,  // drops \p{Mn}
};

struct NormalizerStep {
  NormalizerKind kind = NormalizerKind::kNfc;
  TextPattern pattern;               // kReplace: what is replaced
  std::string text;                  // kReplace: by what; kPrepend: what goes in front of non-empty text
  bool left = false, right = false;  // kStrip: on which side
  bool operator==(const NormalizerStep&) const = default;
};

enum class PreTokenizerKind : std::uint8_t { kSplit, kByteLevel, kMetaspace, kDigits, kPunctuation, kWhitespaceSplit };

// What becomes of the matches of a pattern.
enum class SplitBehavior : std::uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

enum class PrependScheme : std::uint8_t { kAlways, kFirst, kNever };

struct PreTokenizerStep {
  PreTokenizerKind kind = PreTokenizerKind::kSplit;
  TextPattern pattern;                                // kSplit
  SplitBehavior behavior = SplitBehavior::kIsolated;  // kSplit, kPunctuation
  bool invert = false;                                // kSplit: what the pattern does not match is the match
  bool add_prefix_space = false, use_regex = false;   // kByteLevel; the regex is gpt-2's
  std::string replacement;                            // kMetaspace: what stands for a space
  PrependScheme prepend = PrependScheme::kNever;      // kMetaspace
  bool split = true;                                  // kMetaspace: before every replacement
  bool individual_digits = false;                     // kDigits
  bool operator==(const PreTokenizerStep&) const = default;
};

enum class DecoderKind : std::uint8_t { kByteLevel, kMetaspace, kByteFallback, kFuse, kReplace, kStrip, kWordPiece };

struct DecoderStep {
  DecoderKind kind = DecoderKind::kByteLevel;
  TextPattern pattern;                            // kReplace: what is replaced
  std::string text;                               // kReplace: by what; kStrip: the character; kMetaspace: replacement
  std::uint32_t start = 0, stop = 0;              // kStrip: at most so many at each end; kWordPiece: start 1 cleans up
  PrependScheme prepend = PrependScheme::kNever;  // kMetaspace
  bool operator==(const DecoderStep&) const = default;
};

struct Pipeline {
  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizers;
  std::vector<DecoderStep> decoders;
  bool operator==(const Pipeline&) const = default;
};

}  // namespace llorch::text
