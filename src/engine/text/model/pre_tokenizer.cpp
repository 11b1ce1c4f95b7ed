#include "engine/text/model/pre_tokenizer.h"

#include <array>

#include "engine/text/model/unicode_class.h"

namespace llorch::engine::text::model {
namespace {

struct NamedPreTokenizer {
  std::string_view name;
  PreTokenizer pre;
};

constexpr PreTokenizer kGpt2{PrePattern::kGpt2, false, false};
constexpr PreTokenizer kLlamaBpe{PrePattern::kCl100k, true, true};
constexpr PreTokenizer kCl100k{PrePattern::kCl100k, false, false};
constexpr PreTokenizer kQwen2{PrePattern::kOneDigit, false, false};

constexpr auto kPreTokenizers = std::to_array<NamedPreTokenizer>({
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"granite-docling", kGpt2},
    {"llama-bpe", kLlamaBpe},
    {"llama3", kLlamaBpe},
    {"llama-v3", kLlamaBpe},
    {"lfm2", kLlamaBpe},
    {"falcon3", kLlamaBpe},
    {"pixtral", kLlamaBpe},
    {"dbrx", kCl100k},
    {"smaug-bpe", kCl100k},
    {"glm4", kCl100k},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"megrez", kQwen2},
    {"stablelm2", kQwen2},
});

bool is_newline(char c) { return c == '\r' || c == '\n'; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Bytes of 's 't 're 've 'm 'll 'd at the start of `text`; 0 if there is none.
std::size_t contraction_bytes(std::string_view text, bool either_case) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto letter = [&](std::size_t i) {
    if (i >= text.size()) return '\0';
    return either_case ? lower(text[i]) : text[i];
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
  return 0;
}

// End of the run of `char_class` that starts at `begin`.
std::size_t run_end(std::string_view text, std::size_t begin, CharClass char_class) {
  while (begin < text.size()) {
    const Char c = next_char(text.substr(begin));
    if (c.char_class != char_class) break;
    begin += c.bytes;
  }
  return begin;
}

struct SpaceRun {
  std::size_t end = 0;
  std::size_t last_char = 0;      // where its last character begins
  std::size_t after_newline = 0;  // end of its last \r or \n; 0 if it has none
};

SpaceRun scan_spaces(std::string_view text) {
  SpaceRun run;
  while (run.end < text.size()) {
    const Char c = next_char(text.substr(run.end));
    if (c.char_class != CharClass::kSpace) break;
    run.last_char = run.end;
    run.end += c.bytes;
    if (is_newline(text[run.last_char])) run.after_newline = run.end;
  }
  return run;
}

// \s+(?!\S)|\s+ : spaces before a word leave it the last one, unless that is the only one.
std::size_t spaces_piece(std::string_view text, const SpaceRun& run) {
  return run.end == text.size() || run.last_char == 0 ? run.end : run.last_char;
}

std::size_t gpt2_piece(std::string_view text) {
  if (const std::size_t bytes = contraction_bytes(text, false)) return bytes;
  const std::size_t begin = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const CharClass char_class = next_char(text.substr(begin)).char_class;
  if (char_class != CharClass::kSpace) return run_end(text, begin, char_class);
  return spaces_piece(text, scan_spaces(text));
}

std::size_t number_piece(std::string_view text, int chars_max) {
  std::size_t end = 0;
  for (int i = 0; i < chars_max && end < text.size(); ++i) {
    const Char c = next_char(text.substr(end));
    if (c.char_class != CharClass::kNumber) break;
    end += c.bytes;
  }
  return end;
}

std::size_t cl100k_piece(std::string_view text, int digits_max) {
  if (const std::size_t bytes = contraction_bytes(text, true)) return bytes;
  const Char first = next_char(text);
  if (first.char_class == CharClass::kLetter) return run_end(text, 0, CharClass::kLetter);
  if (first.char_class == CharClass::kNumber) return number_piece(text, digits_max);
  if (!is_newline(text[0])) {
    const std::size_t end = run_end(text, first.bytes, CharClass::kLetter);
    if (end > first.bytes) return end;
  }
  const std::size_t begin = text[0] == ' ' ? 1 : 0;
  std::size_t end = run_end(text, begin, CharClass::kOther);
  if (end > begin) {
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  const SpaceRun run = scan_spaces(text);
  return run.after_newline > 0 ? run.after_newline : spaces_piece(text, run);
}

}  // namespace

std::optional<PreTokenizer> pre_tokenizer_by_name(std::string_view name) {
  for (const NamedPreTokenizer& row : kPreTokenizers) {
    if (row.name == name) return row.pre;
  }
  return std::nullopt;
}

std::string pre_tokenizer_names() {
  std::string names;
  for (const NamedPreTokenizer& row : kPreTokenizers) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

std::size_t first_piece_bytes(PrePattern pattern, std::string_view text) {
  switch (pattern) {
    case PrePattern::kGpt2: return gpt2_piece(text);
    case PrePattern::kCl100k: return cl100k_piece(text, 3);
    case PrePattern::kOneDigit: break;
  }
  return cl100k_piece(text, 1);
}

}  // namespace llorch::engine::text::model
