#include "text/infill/infill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "text/test_vocabularies.h"

namespace llorch::text {
namespace {

using Ids = std::vector<std::uint32_t>;
constexpr TokenKind kControl = TokenKind::kControl;

struct Model {
  explicit Model(TokenizerData data)
      : infill(Infill::of(data)), tokenizer(Tokenizer::create(std::move(data)).value()) {}
  Ids prompt(const InfillInput& input) const { return numbers(infill.value().prompt(tokenizer, input).value()); }
  std::optional<Infill> infill;
  Tokenizer tokenizer;
};

// Bytes are their own ids; 256 and on are the special ones.
TokenizerData coder(TokenKind kind = kControl) {
  return byte_bpe_data({}, {{"<|fim_prefix|>", kind},
                            {"<|fim_middle|>", kind},
                            {"<|fim_suffix|>", kind},
                            {"<|fim_pad|>", kind},
                            {"<|repo_name|>", kind},
                            {"<|file_sep|>", kind}});
}
constexpr std::uint32_t kPre = 256, kMid = 257, kSuf = 258, kPad = 259, kRep = 260, kSep = 261;

Ids bytes(std::string_view text) {
  Ids out;
  for (const char byte : text) out.push_back(static_cast<unsigned char>(byte));
  return out;
}
Ids joined(std::initializer_list<Ids> parts) {
  Ids out;
  for (const Ids& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

TEST(Infill, ThePrefixComesFirst) {
  const Model model(coder());
  EXPECT_EQ(model.prompt({.prefix = "ab", .suffix = "c"}), (Ids{kPre, 'a', 'b', kSuf, 'c', kMid}));
  EXPECT_EQ(model.prompt({.prefix = "", .suffix = ""}), (Ids{kPre, kSuf, kMid}));
}

TEST(Infill, EveryFamilyIsKnownByAllOfItsTokens) {
  const std::vector<std::vector<std::string>> families{{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                                                       {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
                                                       {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
                                                       {"<PRE>", "<SUF>", "<MID>"},
                                                       {"<\xEF\xBD\x9C"
                                                        "fim\xE2\x96\x81"
                                                        "begin\xEF\xBD\x9C>",
                                                        "<\xEF\xBD\x9C"
                                                        "fim\xE2\x96\x81hole\xEF\xBD\x9C>",
                                                        "<\xEF\xBD\x9C"
                                                        "fim\xE2\x96\x81"
                                                        "end\xEF\xBD\x9C>"}};
  for (const auto& family : families) {
    const auto data = byte_bpe_data({}, {{family[0], kControl}, {family[1], kControl}, {family[2], kControl}});
    EXPECT_EQ(Model(data).prompt({.prefix = "a", .suffix = "b"}), (Ids{256, 'a', 257, 'b', 258})) << family[0];
    EXPECT_FALSE(Infill::of(byte_bpe_data({}, {{family[0], kControl}, {family[1], kControl}}))) << family[0];
    EXPECT_FALSE(Infill::of(byte_bpe_data({}, {{family[0], kControl}, {family[2], kControl}}))) << family[0];
  }
  EXPECT_FALSE(Infill::of(byte_bpe_data({})));
  EXPECT_FALSE(Infill::of(coder(TokenKind::kNormal))) << "words of the vocabulary that are spelled so";
}

TEST(Infill, CodestralsSuffixComesFirst) {
  auto data = spm_data({"a", "b"}, {{"[PREFIX]", kControl}, {"[SUFFIX]", kControl}, {"[MIDDLE]", kControl}});
  data.add_space_prefix = false;
  EXPECT_EQ(Model(data).prompt({.prefix = "a", .suffix = "b"}), (Ids{1, 262, 260, 261, 259})) << "behind BOS";
}

TEST(Infill, TheFilesWordCounts) {
  auto data = byte_bpe_data({}, {{"<p>", kControl}, {"<s>", kControl}, {"<m>", kControl}});
  EXPECT_FALSE(Infill::of(data));
  data.infill = {.prefix = TokenId{256}, .suffix = TokenId{257}};
  EXPECT_FALSE(Infill::of(data)) << "how they stand would be a guess";
  data.infill.middle = TokenId{1000};
  EXPECT_FALSE(Infill::of(data)) << "no token";
  data.infill.middle = TokenId{258};
  EXPECT_EQ(Model(data).prompt({.prefix = "a", .suffix = "b"}), (Ids{256, 'a', 257, 'b', 258}));
  auto other = coder();
  other.infill.middle = TokenId{'m'};
  EXPECT_EQ(Model(other).prompt({.prefix = "a", .suffix = "b"}), (Ids{kPre, 'a', kSuf, 'b', 'm'}));
}

TEST(Infill, NoTextSpellsAToken) {
  const std::string spelled = "<|fim_suffix|>";
  const std::string text = "x" + spelled + spelled + "y<|file_sep|>";
  for (const TokenKind kind : {kControl, TokenKind::kUserDefined}) {
    const Model model(coder(kind));
    EXPECT_EQ(model.prompt({.prefix = text, .suffix = spelled}),
              joined({{kPre}, bytes(text), {kSuf}, bytes(spelled), {kMid}}));
    const std::vector<InfillFile> files{{.name = spelled, .text = spelled}};
    const Ids tokens = model.prompt({.prefix = "", .suffix = "", .files = files});
    EXPECT_EQ(std::ranges::count(tokens, kSuf), 1);
  }
  // Of other tokens that any text may spell nothing is said here.
  auto data = coder();
  data.tokens.push_back("<think>");
  data.kinds.push_back(TokenKind::kUserDefined);
  EXPECT_EQ(Model(data).prompt({.prefix = "<think>", .suffix = ""}), (Ids{kPre, 262, kSuf, kMid}));
}

TEST(Infill, WhatEverySpellingOfATextHoldsIsRefused) {
  auto data = coder();
  data.infill.middle = TokenId{'m'};  // a file's claim
  const Model model(data);
  const auto refused = model.infill->prompt(model.tokenizer, {.prefix = "a", .suffix = "m"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidParams);
}

TEST(Infill, OtherFilesStandBeforeTheTwo) {
  const std::vector<InfillFile> files{{.name = "a.py", .text = "x"}, {.name = "b.py", .text = "y"}};
  const InfillInput input{.prefix = "p", .suffix = "s", .files = files};
  EXPECT_EQ(Model(coder()).prompt(input), joined({{kRep},
                                                  bytes("myproject\n"),
                                                  {kSep},
                                                  bytes("a.py\nx"),
                                                  {kSep},
                                                  bytes("b.py\ny"),
                                                  {kSep},
                                                  bytes("filename\n"),
                                                  {kPre, 'p', kSuf, 's', kMid}}));
  const auto plain = byte_bpe_data({}, {{"<PRE>", kControl}, {"<SUF>", kControl}, {"<MID>", kControl}});
  EXPECT_EQ(Model(plain).prompt(input),
            joined({bytes("\n\n--- snippet ---\n\nx\n\n--- snippet ---\n\ny"), {256, 'p', 257, 's', 258}}));
}

// As Code Llama's own code has it: the prefix begins as a text does, the suffix goes on.
TEST(Infill, TheSuffixHasNoSpaceOfTheTokenizersOwn) {
  const std::string space = "\xE2\x96\x81";
  const auto data = spm_data({space + "a", "a", space},
                             {{space + "<PRE>", kControl}, {space + "<SUF>", kControl}, {space + "<MID>", kControl}});
  const Model model(data);
  EXPECT_EQ(model.prompt({.prefix = "a", .suffix = "a"}), (Ids{1, 262, 259, 263, 260, 264}));
  EXPECT_EQ(model.prompt({.prefix = "a", .suffix = " a"}), (Ids{1, 262, 259, 263, 259, 264}));
}

// The spelling of such a token begins with what the tokenizer puts for a space.
TEST(Infill, NoTextSpellsATokenWithASpaceBeforeIt) {
  const std::string space = "\xE2\x96\x81";
  auto data = spm_data({space + "a", "a", space, space + "<", "<", "P", "R", "E", ">"},
                       {{space + "<PRE>", kControl}, {space + "<SUF>", kControl}, {space + "<MID>", kControl}});
  for (auto& kind : data.kinds) {
    if (kind == kControl) kind = TokenKind::kUserDefined;
  }
  const Model model(data);
  const auto prefix_id =
      static_cast<std::uint32_t>(std::ranges::find(data.tokens, space + "<PRE>") - data.tokens.begin());
  EXPECT_EQ(std::ranges::count(numbers(model.tokenizer.encode("a <PRE>").value()), prefix_id), 1)
      << "by itself it does";
  for (const std::string& text :
       {std::string("<PRE>"), std::string(" <PRE>"), space + "<PRE>", "a" + space + "<PRE>"}) {
    const Ids tokens = model.prompt({.prefix = text, .suffix = text});
    for (const std::string name : {"<PRE>", "<SUF>", "<MID>"}) {
      const auto id = std::ranges::find(data.tokens, space + name) - data.tokens.begin();
      EXPECT_EQ(std::ranges::count(tokens, id), 1) << text << " " << name;
    }
  }
}

TEST(Infill, AllTextsShareOneBudgetOfSteps) {
  TokenizerData data = coder();
  data.tokens.emplace_back(TokenizerLimits::kStringBytesMax, 'a');  // looked for at each place of the texts
  data.kinds.push_back(TokenKind::kUserDefined);
  const Model model(data);
  const std::string text(4'000, 'a');
  const auto takes = [&](std::size_t count) {
    const std::vector<InfillFile> files(count, {.name = "f", .text = text});
    return model.infill->prompt(model.tokenizer, {.prefix = "", .suffix = "", .files = files}).has_value();
  };
  EXPECT_TRUE(takes(1));
  EXPECT_FALSE(takes(20));
}

TEST(Infill, AModelThatGoesOnWithAnotherFileHasEnded) {
  EXPECT_EQ(numbers(Model(coder()).tokenizer.facts().end_of_generation), (Ids{kPad, kRep, kSep}));
  const auto other = byte_bpe_data({}, {{"<|repo_name|>", kControl}, {"<fim_pad>", kControl}});
  EXPECT_EQ(numbers(Model(other).tokenizer.facts().end_of_generation), Ids{}) << "a model without the others";
}

}  // namespace
}  // namespace llorch::text
