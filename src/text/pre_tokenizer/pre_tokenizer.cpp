#include "text/pre_tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace llorch::text::pre_tokenizer {
namespace {

// A piece that is cut again takes the time of so many steps of a pattern, and so many of its bytes that of one more.
constexpr std::uint64_t kStepsPerPiece = 4;
constexpr std::size_t kBytesPerStep = 16;

base::Result<std::optional<Pattern>> pattern_of(const PreTokenizerStep& step) {
  switch (step.kind) {
    case PreTokenizerKind::kSplit: return std::optional(TRY(Pattern::create(step.pattern)));
    case PreTokenizerKind::kByteLevel:
      return step.use_regex ? std::optional(Pattern(Scanner::kGpt2)) : std::optional<Pattern>();
    case PreTokenizerKind::kMetaspace:
      if (!step.split) return std::optional<Pattern>();
      return std::optional(TRY(Pattern::create({.text = step.replacement, .is_regex = false})));
    case PreTokenizerKind::kDigits: return std::optional(Pattern(Scanner::kOneNumber));
    case PreTokenizerKind::kPunctuation: return std::optional(Pattern(Scanner::kOnePunctuation));
    case PreTokenizerKind::kWhitespaceSplit: break;
  }
  return std::optional(Pattern(Scanner::kOneSpace));
}

SplitBehavior behavior_of(const PreTokenizerStep& step) {
  switch (step.kind) {
    case PreTokenizerKind::kSplit:
    case PreTokenizerKind::kPunctuation: return step.behavior;
    case PreTokenizerKind::kByteLevel: return SplitBehavior::kIsolated;
    case PreTokenizerKind::kMetaspace: return SplitBehavior::kMergedWithNext;
    case PreTokenizerKind::kDigits:
      return step.individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    case PreTokenizerKind::kWhitespaceSplit: break;
  }
  return SplitBehavior::kRemoved;
}

// The text of a piece as this step sees it: with what the step puts in front or in the place of spaces.
base::Result<std::string> prepared(const PreTokenizerStep& step, std::string_view piece, bool at_text_start,
                                   TextBudget& budget) {
  const bool is_metaspace = step.kind == PreTokenizerKind::kMetaspace;
  const std::size_t bytes_max = budget.bytes_max(piece.size());
  std::string text;
  if (is_metaspace) {
    for (const char c : piece) {
      text += c == ' ' ? std::string_view(step.replacement) : std::string_view(&c, 1);
      if (text.size() > bytes_max) return base::fail(budget.too_long());
    }
  } else {
    text = piece;
  }
  const bool wants =
      is_metaspace ? step.prepend == PrependScheme::kAlways || (step.prepend == PrependScheme::kFirst && at_text_start)
                   : step.kind == PreTokenizerKind::kByteLevel && step.add_prefix_space;
  const std::string_view prefix = is_metaspace ? std::string_view(step.replacement) : " ";
  if (wants && !text.starts_with(prefix)) text.insert(0, prefix);
  if (text.size() > bytes_max) return base::fail(budget.too_long());
  budget.spend_growth(piece.size(), text.size());
  return text;
}

struct Part {
  std::size_t begin, end;
  bool is_match;
};

// Matches and what lies between them, without gaps.
base::Result<std::vector<Part>> parts_of(const Pattern& pattern, std::string_view text, bool invert,
                                         TextBudget& budget) {
  std::vector<Part> parts;
  std::size_t done = 0;
  while (const auto match = TRY(pattern.find(text, done, budget))) {
    if (match->begin > done) parts.push_back({done, match->begin, invert});
    parts.push_back({match->begin, match->end, !invert});
    done = match->end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), invert});
  return parts;
}

// Joins parts in the order given: a match that does not follow a match is added to the part before it.
std::vector<Part> merged_with_previous(const std::vector<Part>& parts) {
  std::vector<Part> out;
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.is_match && !after_match && !out.empty()) {
      out.back().begin = std::min(out.back().begin, part.begin);
      out.back().end = std::max(out.back().end, part.end);
    } else {
      out.push_back(part);
    }
    after_match = part.is_match;
  }
  return out;
}

std::vector<Part> arranged(std::vector<Part> parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kIsolated: break;
    case SplitBehavior::kRemoved: std::erase_if(parts, [](const Part& part) { return part.is_match; }); break;
    case SplitBehavior::kMergedWithPrevious: return merged_with_previous(parts);
    case SplitBehavior::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      parts = merged_with_previous(parts);
      std::reverse(parts.begin(), parts.end());
      break;
    case SplitBehavior::kContiguous: {
      std::vector<Part> out;
      for (const Part& part : parts) {
        if (!out.empty() && out.back().is_match == part.is_match) {
          out.back().end = part.end;
        } else {
          out.push_back(part);
        }
      }
      return out;
    }
  }
  return parts;
}

struct Row {
  std::string_view name;
  std::span<const Scanner> scanners;
  bool whole_piece_first = false, add_bos = false;
};

constexpr Scanner kGpt2[] = {Scanner::kGpt2};
constexpr Scanner kCl100k[] = {Scanner::kCl100k};
constexpr Scanner kQwen2[] = {Scanner::kCl100kOneDigit};
constexpr Scanner kRefact[] = {Scanner::kOneNumber, Scanner::kGpt2};
constexpr Scanner kGpt4o[] = {Scanner::kO200k};
constexpr Scanner kTekken[] = {Scanner::kTekken};
constexpr Scanner kDeepseekV3[] = {Scanner::kUpToThreeNumbers, Scanner::kCjkOrKana, Scanner::kDeepseekV3Words};
constexpr Scanner kDeepseekLlm[] = {
    Scanner::kOneNewline,     Scanner::kDeepseekLlmWord, Scanner::kDeepseekLlmPunctuation,
    Scanner::kTrailingSpaces, Scanner::kDeepseekLlmCjk,  Scanner::kNumbers};
constexpr Scanner kDefault[] = {Scanner::kPunctuationRun, Scanner::kGpt2, Scanner::kNumbers,
                                Scanner::kThreeAsciiDigits};

constexpr Row kRows[] = {
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"granite-docling", kGpt2},
    {"llama-bpe", kCl100k, true, true},
    {"llama3", kCl100k, true, true},
    {"llama-v3", kCl100k, true, true},
    {"lfm2", kCl100k, true, true},
    {"falcon3", kCl100k, true, true},
    {"pixtral", kCl100k, true, true},
    {"dbrx", kCl100k},
    {"smaug-bpe", kCl100k},
    {"glm4", kCl100k},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"megrez", kQwen2},
    {"stablelm2", kQwen2},
    {"refact", kRefact},
    {"starcoder", kRefact},
    {"command-r", kRefact},
    {"smollm", kRefact},
    {"gpt-4o", kGpt4o},
    {"llama4", kGpt4o},
    {"tekken", kTekken, true, true},
    {"deepseek-v3", kDeepseekV3},
    {"deepseek-llm", kDeepseekLlm},
    {"default", kDefault},
};

}  // namespace

void Pieces::add(std::string_view piece) {
  if (piece.empty()) return;
  text += piece;
  ends.push_back(text.size());
}

PreTokenizer::PreTokenizer(std::span<const Scanner> scanners) {
  for (const Scanner scanner : scanners) steps_.push_back({PreTokenizerStep{}, Pattern(scanner)});
}

base::Result<PreTokenizer> PreTokenizer::create(std::span<const PreTokenizerStep> steps) {
  PreTokenizer pre_tokenizer;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind == PreTokenizerKind::kByteLevel && i + 1 < steps.size()) {
      return base::fail(base::ErrorCode::kUnsupportedTokenizer,
                        "the tokenizer cuts text after its byte-level step, hence inside of characters; this build "
                        "takes that step only as the last: use the model's GGUF");
    }
    std::optional<Pattern> pattern = TRY(pattern_of(steps[i]));
    pre_tokenizer.steps_.push_back({steps[i], std::move(pattern)});
  }
  return pre_tokenizer;
}

base::Result<Pieces> PreTokenizer::split(std::string_view text, bool at_text_start, TextBudget& budget) const {
  Pieces pieces;
  pieces.add(text);
  for (const Step& step : steps_) {
    const Pieces from = std::exchange(pieces, {});
    std::size_t begin = 0;
    for (const std::size_t end : from.ends) {
      if (!budget.spend_steps(kStepsPerPiece + (end - begin) / kBytesPerStep)) return base::fail(budget.too_slow());
      const std::string piece = TRY(prepared(step.data, std::string_view(from.text).substr(begin, end - begin),
                                             at_text_start && begin == 0, budget));
      begin = end;
      if (!step.pattern) {
        pieces.add(piece);
        continue;
      }
      std::vector<Part> parts = TRY(parts_of(*step.pattern, well_formed(piece), step.data.invert, budget));
      for (const Part& part : arranged(std::move(parts), behavior_of(step.data))) {
        pieces.add(std::string_view(piece).substr(part.begin, part.end - part.begin));
      }
    }
  }
  return pieces;
}

std::optional<NamedPreTokenizer> pre_tokenizer_by_name(std::string_view name) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; });
  if (row == std::end(kRows)) return std::nullopt;
  return NamedPreTokenizer{PreTokenizer(row->scanners), row->whole_piece_first, row->add_bos};
}

std::string pre_tokenizer_names() {
  std::string names;
  for (const Row& row : kRows) names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  return names;
}

}  // namespace llorch::text::pre_tokenizer
