#pragma once
#include "text/formats/syntax.h"

namespace llorch::text::formats {

extern const Syntax kGenericSyntax;
extern const Syntax kHermesSyntax;
extern const Syntax kQwen3CoderSyntax;
extern const Syntax kLlama3Syntax;
extern const Syntax kMistralSyntax;
extern const Syntax kMistralV11Syntax;
extern const Syntax kGptOssSyntax;
extern const Syntax kDeepseekSyntax;
extern const Syntax kDeepseekV31Syntax;
extern const Syntax kGraniteSyntax;
extern const Syntax kLfm2Syntax;
extern const Syntax kPhiSyntax;
extern const Syntax kGemma3Syntax;
extern const Syntax kFunctionGemmaSyntax;
extern const Syntax kGemma4Syntax;
extern const Syntax kCommandSyntax;
extern const Syntax kKimiSyntax;

// The thought of most models.
inline constexpr ThoughtSyntax kThinkTags{"<think>", "</think>"};

// Whether `text` may stand for a function's name or a call's id outside of JSON.
bool is_word(std::string_view text);

}  // namespace llorch::text::formats
