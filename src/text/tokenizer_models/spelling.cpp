#include "text/tokenizer_models/spelling.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"
#include "base/utf8.h"
#include "text/pre_tokenizer/pattern.h"
#include "text/tokenizer_models/wordpiece.h"

namespace llorch::text::model {
namespace {

constexpr std::string_view kSpmSpace = "\xE2\x96\x81";  // U+2581
// Bytes 33-126, 161-172, 174-255 stand for themselves; the other 68 are U+0100, U+0101, ... in byte order.
constexpr std::array<char32_t, 256> byte_bpe_chars() {
  std::array<char32_t, 256> chars{};
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    chars[b] = printable ? b : next++;
  }
  return chars;
}

constexpr std::size_t kByteBpeCharsEnd = 0x100 + 68;

constexpr std::array<std::int16_t, kByteBpeCharsEnd> byte_of_char() {
  std::array<std::int16_t, kByteBpeCharsEnd> bytes{};
  bytes.fill(-1);
  const auto chars = byte_bpe_chars();
  for (std::size_t b = 0; b < 256; ++b) bytes[chars[b]] = static_cast<std::int16_t>(b);
  return bytes;
}
constexpr auto kByteOfChar = byte_of_char();

// The byte of "<0xXX>".
std::optional<std::uint8_t> parse_byte_token(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<std::uint8_t>(value);
}

// True when the kind of token `i` settles what it adds to the output, which is appended.
bool append_fixed_output(const TokenizerData& data, std::size_t i, std::string& output) {
  switch (data.kinds[i]) {
    case TokenKind::kControl: return true;
    case TokenKind::kUnknown: output += base::kReplacementCharacter; return true;
    case TokenKind::kByte:
      if (const auto byte = parse_byte_token(data.tokens[i])) output += static_cast<char>(*byte);
      return true;
    case TokenKind::kNormal:
    case TokenKind::kUserDefined:
    case TokenKind::kUnused: break;
  }
  return false;
}

base::Error unsupported_decoder(std::string_view why) {
  return {base::ErrorCode::kUnsupportedTokenizer,
          fmt::format("the tokenizer's decoder {}; what a token adds to the text must not depend on its neighbours: "
                      "use the model's GGUF",
                      why),
          {}};
}

struct Replacement {
  pre_tokenizer::Pattern pattern;
  std::string by;
};

// A token inside of a word as it continues it, any other with a space in front, but for signs that cling to a word.
std::string word_piece_output(std::string_view text, bool cleans_up) {
  static constexpr std::array<std::string_view, 9> kClinging{".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
  if (text.starts_with(kWordPiecePrefix)) return std::string(text.substr(kWordPiecePrefix.size()));
  const auto clings = [text](std::string_view sign) { return text.starts_with(sign); };
  const bool joined = cleans_up && std::any_of(kClinging.begin(), kClinging.end(), clings);
  return (joined ? "" : " ") + std::string(text);
}

// A decoder chain as what it does to each token and to the start of the text.
struct DecoderPlan {
  std::vector<Replacement> replacements;
  LeadingSpace leading_space = LeadingSpace::kKeep;
  bool byte_level = false;
  bool word_piece = false, cleans_up = false;

  base::Result<std::string> decoded(std::string text, TextBudget& budget) const {
    if (word_piece) text = word_piece_output(text, cleans_up);
    for (const Replacement& replacement : replacements) {
      const std::size_t bytes_max = budget.bytes_max(text.size());
      std::string out;
      std::size_t done = 0;
      while (const auto match = TRY(replacement.pattern.find(text, done, budget))) {
        out.append(text, done, match->begin - done).append(replacement.by);
        if (out.size() > bytes_max) return base::fail(budget.too_long());
        done = match->end;
      }
      out.append(text, done);
      if (out.size() > bytes_max) return base::fail(budget.too_long());
      budget.spend_growth(text.size(), out.size());
      text = std::move(out);
    }
    return text;
  }
};

base::Result<> add_decoder(const DecoderStep& step, bool fused, DecoderPlan& plan) {
  switch (step.kind) {
    case DecoderKind::kByteLevel: plan.byte_level = true; return {};
    case DecoderKind::kMetaspace:
      plan.replacements.push_back({TRY(pre_tokenizer::Pattern::create({.text = step.text, .is_regex = false})), " "});
      if (step.prepend != PrependScheme::kNever) plan.leading_space = LeadingSpace::kDropInFirstToken;
      return {};
    case DecoderKind::kReplace:
      if (fused || step.pattern.is_regex) return base::fail(unsupported_decoder("replaces across tokens"));
      plan.replacements.push_back({TRY(pre_tokenizer::Pattern::create(step.pattern)), step.text});
      return {};
    case DecoderKind::kStrip:
      if (!fused || step.text != " " || step.start > 1 || step.stop > 0) {
        return base::fail(unsupported_decoder("strips more than one space at the start"));
      }
      if (step.start == 1) plan.leading_space = LeadingSpace::kDropOne;
      return {};
    case DecoderKind::kWordPiece:
      plan.word_piece = true;
      plan.cleans_up = step.start == 1;
      plan.leading_space = LeadingSpace::kDropOne;
      return {};
    case DecoderKind::kByteFallback:
    case DecoderKind::kFuse: break;
  }
  return {};
}

base::Result<DecoderPlan> plan_decoders(const std::vector<DecoderStep>& steps) {
  DecoderPlan plan;
  bool fused = false;
  if (steps.empty()) return base::fail(unsupported_decoder("is missing"));
  for (const DecoderStep& step : steps) {
    TRY(add_decoder(step, fused, plan));
    fused = fused || step.kind == DecoderKind::kFuse;
  }
  if ((plan.byte_level || plan.word_piece) && steps.size() > 1)
    return base::fail(unsupported_decoder("does more than map bytes or join pieces of words"));
  return plan;
}

}  // namespace

std::string spm_plain_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const std::size_t plain = text.find(kSpmSpace);
    out += text.substr(0, plain);
    if (plain == std::string_view::npos) return out;
    out += ' ';
    text.remove_prefix(plain + kSpmSpace.size());
  }
}

std::optional<std::string> bytes_of_byte_bpe(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const base::Utf8Step step = base::next_code_point(text);
    if (step.status != base::Utf8Status::kComplete || step.code_point >= kByteBpeCharsEnd) return std::nullopt;
    const int byte = kByteOfChar[step.code_point];
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    text.remove_prefix(step.bytes);
  }
  return out;
}

std::vector<TokenSpelling> spm_spellings(const TokenizerData& data) {
  std::vector<TokenSpelling> spellings(data.tokens.size());
  for (std::size_t i = 0; i < spellings.size(); ++i) {
    if (append_fixed_output(data, i, spellings[i].output)) continue;
    spellings[i].output = spellings[i].key = spm_plain_spaces(data.tokens[i]);
  }
  return spellings;
}

std::vector<TokenSpelling> byte_bpe_spellings(const TokenizerData& data) {
  std::vector<TokenSpelling> spellings(data.tokens.size());
  for (std::size_t i = 0; i < spellings.size(); ++i) {
    if (append_fixed_output(data, i, spellings[i].output)) continue;
    const std::string& text = data.tokens[i];
    // A user-defined token is written as it is.
    const auto bytes = data.kinds[i] == TokenKind::kUserDefined ? std::nullopt : bytes_of_byte_bpe(text);
    spellings[i].output = bytes.value_or(text);
    spellings[i].key = bytes.value_or("");
  }
  return spellings;
}

base::Result<DecodedSpellings> decoded_spellings(const TokenizerData& data, const normalizer::Normalizer& normalizer) {
  const DecoderPlan plan = TRY(plan_decoders(data.json.pipeline.decoders));
  TextBudget budget = TextBudget::of_tokens(data.tokens);
  DecodedSpellings decoded{std::vector<TokenSpelling>(data.tokens.size()), plan.leading_space, plan.byte_level};
  for (std::size_t i = 0; i < data.tokens.size(); ++i) {
    TokenSpelling& spelling = decoded.spellings[i];
    if (append_fixed_output(data, i, spelling.output)) continue;
    const std::string& text = data.tokens[i];
    if (plan.byte_level) {
      const auto bytes = bytes_of_byte_bpe(text);
      spelling.key = bytes.value_or("");
      spelling.output = data.kinds[i] == TokenKind::kUserDefined ? text : bytes.value_or(text);
    } else {
      spelling.key = text;
      spelling.output = TRY(plan.decoded(text, budget));
    }
  }
  std::vector<bool> is_told(data.tokens.size());  // by a rule before: a list may name one token a million times
  for (const AddedTokenRule& rule : data.json.added) {
    if (rule.outside_model) decoded.spellings[index(rule.id)].key.clear();
    if (!rule.normalized || data.kinds[index(rule.id)] != TokenKind::kUserDefined || is_told[index(rule.id)]) continue;
    is_told[index(rule.id)] = true;
    const std::string text = TRY(normalizer.apply(data.tokens[index(rule.id)], budget));
    decoded.spellings[index(rule.id)].output = plan.byte_level ? text : TRY(plan.decoded(text, budget));
  }
  return decoded;
}

std::array<std::optional<TokenId>, 256> byte_tokens(const TokenizerData& data) {
  std::array<std::optional<TokenId>, 256> tokens{};
  for (std::uint32_t i = 0; i < data.tokens.size(); ++i) {
    if (data.kinds[i] != TokenKind::kByte) continue;
    const auto byte = parse_byte_token(data.tokens[i]);
    if (byte && !tokens[*byte]) tokens[*byte] = TokenId{i};
  }
  return tokens;
}

Fallback byte_level_fallback(const Vocabulary& vocabulary, std::optional<TokenId> unknown) {
  Fallback fallback{.byte_tokens = {}, .unknown = unknown};
  for (std::size_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    fallback.byte_tokens[b] = vocabulary.find({&byte, 1});
  }
  return fallback;
}

}  // namespace llorch::text::model
