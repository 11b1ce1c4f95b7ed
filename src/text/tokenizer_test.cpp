#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <map>

#include "text/test_vocabularies.h"

namespace llorch::text {
namespace {

using base::ErrorCode;
using Ids = std::vector<std::uint32_t>;

const EncodeOptions kPlain{.add_special = false};
const std::string kSpace = "\xE2\x96\x81";  // U+2581

Tokenizer make(const TokenizerData& data) { return Tokenizer::create(data).value(); }

Ids encode(const TokenizerData& data, std::string_view text, EncodeOptions options = kPlain) {
  return numbers(make(data).encode(text, options).value());
}

// One merge at a time over the whole piece: best rank, leftmost first.
template <class Rank>
std::vector<std::string> naive_merge(std::vector<std::string> symbols, const Rank& rank_of) {
  while (true) {
    std::size_t best = symbols.size();
    std::size_t best_rank = std::numeric_limits<std::size_t>::max();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rank = rank_of(symbols[i], symbols[i + 1]);
      if (rank && *rank < best_rank) {
        best_rank = *rank;
        best = i;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::vector<std::string> single_bytes(std::string_view text) {
  std::vector<std::string> out;
  for (const char byte : text) out.emplace_back(1, byte);
  return out;
}

TEST(ByteBpe, EqualsOneMergeAtATime) {
  EXPECT_TRUE(rc::check("byte bpe == naive", [] {
    // Merges of what exists, as training makes them. One word, so that there is one piece.
    std::vector<std::string> known{"a", "b", "c"};
    std::vector<MergePair> merges;
    std::map<std::pair<std::string, std::string>, std::size_t> ranks;
    for (int i = *rc::gen::inRange(0, 12); i > 0; --i) {
      const MergePair merge{*rc::gen::elementOf(known), *rc::gen::elementOf(known)};
      if (!ranks.try_emplace({merge.left, merge.right}, merges.size()).second) continue;
      merges.push_back(merge);
      known.push_back(merge.left + merge.right);
    }
    const auto text = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
    const Tokenizer tokenizer = make(byte_bpe_data(merges));
    std::vector<std::string> pieces;
    const auto ids = tokenizer.encode(text, kPlain).value();
    for (const TokenId id : ids) pieces.emplace_back(tokenizer.token_bytes(id));
    RC_ASSERT(pieces == naive_merge(single_bytes(text), [&](const auto& left, const auto& right) {
                const auto it = ranks.find({left, right});
                return it == ranks.end() ? std::nullopt : std::optional(it->second);
              }));
  }));
}

TEST(Spm, EqualsOneMergeAtATime) {
  EXPECT_TRUE(rc::check("spm == naive", [] {
    const auto pieces = *rc::gen::unique<std::vector<std::string>>(
        rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'))));
    const auto text = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
    TokenizerData data = spm_data(pieces);
    data.add_space_prefix = false;
    // Few distinct scores, so that ties happen.
    for (std::size_t i = 0; i < pieces.size(); ++i) data.scores[259 + i] = static_cast<float>(*rc::gen::inRange(-2, 3));
    const auto expected = naive_merge(single_bytes(text), [&](const auto& left, const auto& right) {
      const auto it = std::find(pieces.begin(), pieces.end(), left + right);
      if (it == pieces.end()) return std::optional<std::size_t>();
      return std::optional(
          static_cast<std::size_t>(10.0f - data.scores[259 + static_cast<std::size_t>(it - pieces.begin())]));
    });
    const Tokenizer tokenizer = make(data);
    std::vector<std::string> got;
    const auto ids = tokenizer.encode(text, kPlain).value();
    for (const TokenId id : ids) got.emplace_back(tokenizer.token_bytes(id));
    RC_ASSERT(got == expected);
  }));
}

TEST(Tokenizer, AnyBytesComeBack) {
  const Tokenizer bpe = make(byte_bpe_data({{"h", "e"}, {" ", "he"}, {"\xC3", "\xA9"}}));
  const Tokenizer spm = make(spm_data({kSpace + "a", "\xC3\xA9", "a", kSpace, "aa"}));
  EXPECT_TRUE(rc::check("decode(encode(x)) == x", [&] {
    const auto bytes = *rc::gen::container<std::string>(rc::gen::oneOf(
        rc::gen::element('h', 'e', ' ', 'a', '\n', '\xC3', '\xA9', '\xE2', '1'), rc::gen::arbitrary<char>()));
    RC_ASSERT(bpe.decode(bpe.encode(bytes).value()) == bytes);
    if (bytes.find(kSpace) == std::string::npos) RC_ASSERT(spm.decode(spm.encode(bytes).value()) == bytes);
  }));
}

// Merging is O(n log n): with anything quadratic this takes hours.
TEST(Tokenizer, OneLongWordStaysCheap) {
  std::vector<MergePair> doubling;
  std::vector<std::string> pieces;
  for (std::string half = "a"; half.size() < 64; half += half) {
    doubling.push_back({half, half});
    pieces.push_back(half + half);
  }
  pieces.push_back("a");
  TokenizerData spm = spm_data(pieces, {{"aaaaaaaaaaab", TokenKind::kUserDefined}});
  spm.add_space_prefix = false;
  const std::string word(1 << 18, 'a'), spaces(1 << 18, ' '), newlines(1 << 18, '\n');
  EXPECT_EQ(encode(byte_bpe_data(doubling), word).size(), word.size() / 64);
  EXPECT_EQ(encode(spm, word).size(), word.size() / 64);
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2"}) {
    TokenizerData data = byte_bpe_data({}, {{"\n\n", TokenKind::kUserDefined}, {"\n\n\n", TokenKind::kUserDefined}});
    data.pre = pre;
    EXPECT_EQ(encode(data, spaces + "x").size(), spaces.size() + 1);
    EXPECT_EQ(encode(data, newlines).size(), (newlines.size() + 2) / 3);
  }
}

TEST(ByteBpe, WholePieceFirstOnlyWhereTheFamilyDoesSo) {
  TokenizerData data = byte_bpe_data({{"a", "b"}});
  data.tokens.push_back("abc");  // no merge leads to it
  data.kinds.push_back(TokenKind::kNormal);
  EXPECT_EQ(encode(data, "abc"), (Ids{256, 'c'}));
  data.pre = "llama-bpe";
  EXPECT_EQ(encode(data, "abc"), (Ids{257}));
}

// M0-W-1361: BOS, EOS and specials.
TEST(Tokenizer, AddsSpecialTokensAsTheFileOrTheFamilySays) {
  const EncodeOptions with_special;
  TokenizerData spm = spm_data({"a", kSpace + "a"});
  EXPECT_EQ(encode(spm, "a", with_special), (Ids{1, 260}));
  EXPECT_EQ(encode(spm, "", with_special), (Ids{1}));
  EXPECT_EQ(encode(spm, "a"), (Ids{260}));
  spm.add_bos = false;
  spm.add_eos = true;
  spm.add_space_prefix = false;
  EXPECT_EQ(encode(spm, "a", with_special), (Ids{259, 2}));
  spm.add_bos = true;
  spm.bos.reset();
  EXPECT_EQ(Tokenizer::create(spm).error().code, ErrorCode::kConfigKeyInvalid);

  TokenizerData bpe = byte_bpe_data({}, {{"<b>", TokenKind::kControl}});
  bpe.bos = TokenId{256};
  EXPECT_EQ(encode(bpe, "a", with_special), (Ids{'a'}));
  bpe.pre = "llama-bpe";
  EXPECT_EQ(encode(bpe, "a", with_special), (Ids{256, 'a'}));
}

// Text of a user cannot spell a control token.
TEST(Tokenizer, ControlTokensOnlyWhenAskedUserDefinedAlways) {
  const TokenizerData bpe = byte_bpe_data(
      {{"<", "="}, {"<=", ">"}},
      {{"<s>", TokenKind::kControl}, {"<u>", TokenKind::kUserDefined}, {"<u>!", TokenKind::kUserDefined}});
  EXPECT_EQ(encode(bpe, "<s><u>"), (Ids{'<', 's', '>', 259}));
  EXPECT_EQ(encode(bpe, "<s><u>!<=>", {.add_special = false, .parse_special = true}), (Ids{258, 260, 257}));
  // A piece that merges could form is a control token: they stop short of it.
  TokenizerData spm = spm_data({"<", "s", ">", "<s"});
  spm.add_space_prefix = false;
  EXPECT_EQ(encode(spm, "<s>"), (Ids{262, 261}));
  EXPECT_EQ(encode(spm, "a<s>", {.add_special = false, .parse_special = true}), (Ids{'a' + 3, 1}));
}

// A template's text may hold control tokens, a user's never; the borders between the two change nothing else.
TEST(Tokenizer, RunsKeepTheOriginOfEveryByte) {
  const Tokenizer bpe =
      make(byte_bpe_data({{"h", "i"}, {"\n", "\n"}}, {{"<s>", TokenKind::kControl}, {"<u>", TokenKind::kUserDefined}}));
  const auto ids = [&](const std::vector<TextRun>& runs) { return numbers(bpe.encode(runs, false).value()); };
  constexpr auto kT = TextOrigin::kTemplate, kD = TextOrigin::kData;
  EXPECT_EQ(ids({{"<s>h", kT}, {"i<s><u>", kD}, {"<s>", kT}}), (Ids{258, 256, '<', 's', '>', 259, 258}));
  EXPECT_EQ(ids({{"<s", kT}, {">", kD}}), (Ids{'<', 's', '>'}));
  EXPECT_EQ(ids({{"<", kD}, {"s>", kT}}), (Ids{'<', 's', '>'}));
  EXPECT_EQ(ids({{"<", kT}, {"", kD}, {"s", kT}, {">", kT}}), (Ids{258}));
  EXPECT_EQ(ids({{"<u", kD}, {">", kT}}), (Ids{259}));
  EXPECT_EQ(ids({{"\n", kT}, {"\n", kD}}), (Ids{257}));
  EXPECT_EQ(ids({}), (Ids{}));
}

TEST(Spm, SpacePrefixAtTheStartAndAfterSpecialTokens) {
  const TokenizerData data = spm_data({"a", kSpace + "a", kSpace}, {{"<u>", TokenKind::kUserDefined}});
  EXPECT_EQ(encode(data, "a<u>a"), (Ids{260, 262, 260}));
  EXPECT_EQ(encode(data, " a"), (Ids{261, 260}));
  const Tokenizer tokenizer = make(data);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a").value()), "a");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(" a").value()), " a");
}

TEST(Spm, UnknownCharactersFallBackToBytesElseToUnknown) {
  TokenizerData data = spm_data({kSpace});
  data.add_space_prefix = false;
  EXPECT_EQ(encode(data, "\xC3\xA9"), (Ids{0xC3 + 3, 0xA9 + 3}));
  data.kinds[0xA9 + 3] = TokenKind::kUnused;
  EXPECT_EQ(encode(data, "\xC3\xA9"), (Ids{0}));
  data.unknown.reset();
  EXPECT_EQ(Tokenizer::create(data).error().code, ErrorCode::kUnsupportedTokenizer);
}

TEST(Tokenizer, TokenBytesByKind) {
  const Tokenizer spm = make(spm_data({kSpace + "a" + kSpace}, {{"<u>", TokenKind::kUserDefined}}));
  EXPECT_EQ(spm.token_bytes(TokenId{0}), "\xEF\xBF\xBD");
  EXPECT_EQ(spm.token_bytes(TokenId{1}), "");
  EXPECT_EQ(spm.token_bytes(TokenId{3 + 0xE2}), "\xE2");
  EXPECT_EQ(spm.token_bytes(TokenId{259}), " a ");
  EXPECT_EQ(spm.token_bytes(TokenId{260}), "<u>");
  const Tokenizer bpe = make(byte_bpe_data({{" ", "\xFF"}}, {{"\xC3\xA9", TokenKind::kUserDefined}}));
  EXPECT_EQ(bpe.token_bytes(TokenId{256}), " \xFF");
  EXPECT_EQ(bpe.token_bytes(TokenId{257}), "\xC3\xA9");  // as written, not a byte's name
}

TEST(Tokenizer, EndOfGenerationIsWhatTheFileNamesAndWhatIsSpelledSo) {
  TokenizerData data = byte_bpe_data({}, {{"<|end|>", TokenKind::kControl},
                                          {"<|im_end|>", TokenKind::kControl},
                                          {"<EOT>", TokenKind::kNormal},
                                          {"stop", TokenKind::kControl}});
  data.eos = TokenId{259};
  data.more_end_of_generation = {TokenId{7}};
  EXPECT_EQ(numbers(make(data).facts().end_of_generation), (Ids{7, 256, 257, 259}));
  EXPECT_TRUE(make(data).is_end_of_generation(TokenId{257}));
  EXPECT_FALSE(make(data).is_end_of_generation(TokenId{258}));
  TokenizerData harmony = byte_bpe_data(
      {}, {{"<|end|>", TokenKind::kControl}, {"<|return|>", TokenKind::kControl}, {"<|call|>", TokenKind::kControl}});
  EXPECT_EQ(numbers(make(harmony).facts().end_of_generation), (Ids{257, 258}));
}

// M0-W-1360, M0-W-1364: the facts a worker reports.
TEST(Tokenizer, Facts) {
  const Tokenizer tokenizer = make(spm_data({"a"}));
  EXPECT_EQ(tokenizer.facts().kind, "gguf-spm");
  EXPECT_EQ(tokenizer.facts().vocab_size, 260u);
  EXPECT_TRUE(tokenizer.facts().bos == TokenId{1});
  EXPECT_TRUE(tokenizer.facts().eos == TokenId{2});
  EXPECT_EQ(make(byte_bpe_data({})).facts().kind, "gguf-bpe");
}

TEST(Tokenizer, RefusesWhatItCannotDoExactlyAndSaysWhatToDo) {
  const auto error = [](TokenizerData data) { return Tokenizer::create(std::move(data)).error(); };
  TokenizerData other_model = byte_bpe_data({});
  other_model.model = "bert";
  EXPECT_EQ(error(other_model).code, ErrorCode::kUnsupportedTokenizer);
  EXPECT_NE(error(other_model).message.find("\"bert\""), std::string::npos);
  for (const char* pre : {"", "some-new-model"}) {
    TokenizerData data = byte_bpe_data({});
    data.pre = pre;
    EXPECT_EQ(error(data).code, ErrorCode::kUnsupportedTokenizer);
    EXPECT_NE(error(data).message.find("llama-bpe"), std::string::npos) << "names what there is";
  }
  TokenizerData byte_missing = byte_bpe_data({});
  byte_missing.tokens[65] = "??";
  EXPECT_EQ(error(byte_missing).code, ErrorCode::kUnsupportedTokenizer);
}

TEST(Tokenizer, RefusesDataThatContradictsItself) {
  const auto code = [](TokenizerData data) { return Tokenizer::create(std::move(data)).error().code; };
  EXPECT_EQ(code({}), ErrorCode::kConfigKeyInvalid);
  TokenizerData bpe = byte_bpe_data({{"a", "b"}});
  for (const std::string merge : {"a", "", "a c", "ab", "a  b", "zz b", " ", "a "}) {
    TokenizerData data = bpe;
    data.merges.push_back(merge);
    EXPECT_EQ(code(data), ErrorCode::kConfigKeyInvalid) << merge;
  }
  TokenizerData long_tokens = bpe;
  constexpr std::size_t kLongest = TokenizerLimits::kStringBytesMax;
  long_tokens.tokens.resize(bpe.tokens.size() + TokenizerLimits::kTokensBytesMax / kLongest,
                            std::string(kLongest, 'a'));
  long_tokens.kinds.resize(long_tokens.tokens.size(), TokenKind::kUserDefined);
  EXPECT_EQ(code(long_tokens), ErrorCode::kConfigKeyInvalid) << "together";
  TokenizerData kinds = bpe;
  kinds.kinds.pop_back();
  EXPECT_EQ(code(kinds), ErrorCode::kConfigKeyInvalid);
  TokenizerData outside = bpe;
  outside.eot = TokenId{257};
  EXPECT_EQ(code(outside), ErrorCode::kConfigKeyInvalid);
  TokenizerData scores = spm_data({"a"});
  scores.scores.pop_back();
  EXPECT_EQ(code(scores), ErrorCode::kConfigKeyInvalid);
  scores.scores.push_back(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(code(scores), ErrorCode::kConfigKeyInvalid);
}

}  // namespace
}  // namespace llorch::text
