#include "text/formats/format.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/assert.h"
#include "base/utf8.h"
#include "text/formats/known/known.h"
#include "text/formats/syntax.h"

namespace llorch::text::formats {
namespace {

constexpr const Syntax* kSyntaxes[] = {
    &kGenericSyntax, &kHermesSyntax,        &kQwen3CoderSyntax,  &kLlama3Syntax,  &kMistralSyntax, &kMistralV11Syntax,
    &kGptOssSyntax,  &kDeepseekSyntax,      &kDeepseekV31Syntax, &kGraniteSyntax, &kLfm2Syntax,    &kPhiSyntax,
    &kGemma3Syntax,  &kFunctionGemmaSyntax, &kGemma4Syntax,      &kCommandSyntax, &kKimiSyntax,
};

// Formats whose signs are part of another's come before it.
constexpr Format kDetectionOrder[] = {
    Format::kQwen3Coder, Format::kGptOss,  Format::kDeepseek, Format::kDeepseekV31,
    Format::kKimi,       Format::kCommand, Format::kGemma4,   Format::kFunctionGemma,
    Format::kMistralV11, Format::kMistral, Format::kHermes,   Format::kLfm2,
    Format::kGranite,    Format::kPhi,     Format::kLlama3,   Format::kGemma3,
};

bool is_marker(std::string_view text) { return text.starts_with('<') || text.starts_with('['); }

}  // namespace

std::span<const Format> all_formats() {
  static const auto kAll = [] {
    std::array<Format, std::size(kSyntaxes)> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Format>(i);
    return all;
  }();
  return kAll;
}

const Syntax& syntax_of(Format format) {
  const Syntax& syntax = *kSyntaxes[static_cast<std::size_t>(format)];
  ASSERT(syntax.format == format, "{}", syntax.name);
  return syntax;
}

std::string_view name_of(Format format) { return syntax_of(format).name; }

std::optional<Format> parse_format(std::string_view name) {
  for (const Format format : all_formats()) {
    if (name_of(format) == name) return format;
  }
  return std::nullopt;
}

Format detect(std::string_view source) {
  for (const Format format : kDetectionOrder) {
    const auto is_spelled = [&](std::string_view sign) { return source.find(sign) != std::string_view::npos; };
    if (std::ranges::all_of(signs(format), is_spelled)) return format;
  }
  return Format::kGeneric;
}

std::span<const std::string_view> signs(Format format) { return syntax_of(format).signs; }

std::vector<std::string_view> markers(Format format) {
  const Syntax& syntax = syntax_of(format);
  std::vector<std::string_view> out;
  const auto add = [&](std::string_view text) {
    if (is_marker(text) && std::find(out.begin(), out.end(), text) == out.end()) out.push_back(text);
  };
  for (const std::string_view text : {syntax.thought.open, syntax.thought.close}) add(text);
  for (const CallSyntax& call : syntax.calls) {
    for (const std::string_view text : {call.open, call.close, call.quote}) add(text);
  }
  for (const std::string_view text : syntax.call_closers) add(text);
  for (const std::string_view text : syntax.silent) add(text);
  for (const std::string_view text : syntax.inner) add(text);
  return out;
}

bool knows_thoughts(Format format) {
  const Syntax& syntax = syntax_of(format);
  return !syntax.thought.close.empty() || syntax.has_channels;
}

std::string_view thought_end(Format format) { return syntax_of(format).thought.close; }

bool prompt_opens_thought(Format format, std::string_view prompt) {
  prompt = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
  const std::string_view open = syntax_of(format).thought.open;
  return !open.empty() && prompt.ends_with(open);
}

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 256 && base::is_valid_utf8(text) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte > ' ' && byte != 0x7F && c != '<' && c != '>' && c != '[' && c != ']' && c != '"';
         });
}

}  // namespace llorch::text::formats
