#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "text/test_vocabularies.h"
#include "text/tokenizer.h"

namespace llorch::text {
namespace {

base::Result<TokenizerData> parse(std::string_view blob) {
  return parse_tokenizer_data(std::as_bytes(std::span(blob.data(), blob.size())));
}

TokenizerData full_data() {
  TokenizerData data = spm_data({"a", "b", "ab"}, {{"<|end|>", TokenKind::kControl}});
  data.pre = "default";
  data.merges = {"a b", ""};
  data.eot = TokenId{5};
  data.more_end_of_generation = {TokenId{7}, TokenId{1}};
  data.add_bos = true;
  data.add_eos = false;
  data.chat_template = std::string(100'000, 'x');
  data.named_chat_templates = {{"tool_use", "{{ tools }}"}, {"", ""}};
  data.infill = {.prefix = TokenId{3}, .middle = TokenId{4}, .separator = TokenId{5}};
  data.json.pipeline.normalizers = {{.kind = NormalizerKind::kReplace, .pattern = {"a+", true}, .text = "b"},
                                    {.kind = NormalizerKind::kStrip, .left = true, .right = true}};
  data.json.pipeline.pre_tokenizers = {
      {.kind = PreTokenizerKind::kSplit,
       .pattern = {"x", false},
       .behavior = SplitBehavior::kContiguous,
       .invert = true},
      {.kind = PreTokenizerKind::kMetaspace, .replacement = "_", .prepend = PrependScheme::kFirst, .split = false}};
  data.json.pipeline.decoders = {{.kind = DecoderKind::kStrip, .text = " ", .start = 1, .stop = 2}};
  data.json.added = {{.id = TokenId{3}, .rstrip = true}, {.id = TokenId{4}, .normalized = true, .outside_model = true}};
  data.json.merges = {{TokenId{1}, TokenId{2}}};
  data.json.byte_fallback = data.json.whole_piece_first = true;
  data.json.prefix = {TokenId{1}};
  data.json.suffix = {TokenId{2}, TokenId{2}};
  data.json.pair = {.between = {TokenId{2}}, .second_type = 1};
  return data;
}

TEST(TokenizerBlob, RoundTripsAndIsCanonical) {
  for (const TokenizerData& data : {TokenizerData{}, full_data(), byte_bpe_data({{"a", "b"}})}) {
    const std::string blob = serialize(data).value();
    const auto parsed = parse(blob);
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    EXPECT_TRUE(*parsed == data);
    EXPECT_EQ(serialize(*parsed).value(), blob);
  }
}

// Their readers go through one list and look into the other.
TEST(TokenizerBlob, MoreKindsOrScoresThanTokensAreRefused) {
  for (const bool kinds : {false, true}) {
    TokenizerData data = byte_bpe_data({});
    data.scores.clear();
    data.kinds.clear();
    EXPECT_TRUE(parse(serialize(data).value()).has_value());
    if (kinds) {
      data.kinds.assign(data.tokens.size() + 1, TokenKind::kControl);
    } else {
      data.scores.assign(data.tokens.size() + 1, 0);
    }
    const auto parsed = parse(serialize(data).value());
    ASSERT_FALSE(parsed.has_value());
    EXPECT_EQ(parsed.error().code, base::ErrorCode::kCorruptFile);
  }
}

TEST(TokenizerBlob, WhatIsPastALimitIsNotWritten) {
  using L = TokenizerLimits;
  const auto code_with = [](const auto& change) {
    TokenizerData data = full_data();
    change(data);
    const auto blob = serialize(data);
    return blob ? base::ErrorCode::kInternal : blob.error().code;
  };
  EXPECT_EQ(code_with([](TokenizerData& d) { d.json.pair->between.resize(L::kAffixMax); }), base::ErrorCode::kInternal);
  constexpr auto kRefused = base::ErrorCode::kModelIncompatible;
  EXPECT_EQ(code_with([](TokenizerData& d) { d.json.pair->between.resize(L::kAffixMax + 1); }), kRefused);
  EXPECT_EQ(code_with([](TokenizerData& d) { d.more_end_of_generation.resize(L::kTokensMax + 1); }), kRefused);
  EXPECT_EQ(code_with([](TokenizerData& d) { d.json.added.resize(L::kTokensMax + 1); }), kRefused);
  EXPECT_EQ(code_with([](TokenizerData& d) { d.tokens[0].resize(L::kStringBytesMax + 1); }), kRefused);
  const auto with_tokens = [&](std::size_t count) {
    return code_with([&](TokenizerData& d) { d.tokens.assign(count, std::string(L::kStringBytesMax, 'x')); });
  };
  EXPECT_EQ(with_tokens(L::kTokensBytesMax / L::kStringBytesMax), base::ErrorCode::kInternal);
  EXPECT_EQ(with_tokens(L::kTokensBytesMax / L::kStringBytesMax + 1), kRefused);
  EXPECT_EQ(code_with([](TokenizerData& d) { d.chat_template.resize(L::kChatTemplateBytesMax + 1); }), kRefused);
}

TEST(TokenizerBlob, EveryTruncationAndEveryTailIsRefused) {
  TokenizerData data = full_data();
  data.chat_template.resize(300);
  const std::string blob = serialize(data).value();
  for (std::size_t n = 0; n < blob.size(); ++n) {
    const auto parsed = parse(std::string_view(blob).substr(0, n));
    ASSERT_FALSE(parsed.has_value()) << n;
    EXPECT_EQ(parsed.error().code, base::ErrorCode::kCorruptFile) << n;
  }
  EXPECT_EQ(parse(blob + '\0').error().code, base::ErrorCode::kCorruptFile);
}

TEST(TokenizerBlob, AnotherVersionSaysSo) {
  std::string blob = serialize({}).value();
  blob[4] = 9;
  EXPECT_EQ(parse(blob).error().code, base::ErrorCode::kUnsupportedFormatVersion);
}

TEST(TokenizerBlob, CountsBeyondTheBlobAreRefusedBeforeAnythingIsReserved) {
  // magic, version, two empty strings, then the count of tokens.
  std::string blob = serialize({}).value();
  for (std::size_t i = 16; i < 20; ++i) blob[i] = '\xFF';
  EXPECT_EQ(parse(blob).error().code, base::ErrorCode::kCorruptFile);
  blob[18] = '\x0F';
  blob[19] = 0;  // 1,048,575: within the limit, far beyond the bytes
  EXPECT_EQ(parse(blob).error().code, base::ErrorCode::kCorruptFile);
}

TEST(TokenizerRows, WhatHasNoTokenIsUnusedAndChangesNoText) {
  for (TokenizerData data : {byte_bpe_data({{"a", "b"}}), spm_data({"a", "ab"})}) {
    const Tokenizer as_told = Tokenizer::create(data).value();
    const std::uint32_t rows = static_cast<std::uint32_t>(data.tokens.size()) + 40;
    if (data.model == "gpt2") data.kinds.clear();  // all normal
    ASSERT_TRUE(fit_to_rows(data, rows));
    EXPECT_EQ(data.kinds.at(97), data.model == "gpt2" ? TokenKind::kNormal : TokenKind::kByte);
    EXPECT_EQ(data.kinds.back(), TokenKind::kUnused);
    const Tokenizer padded = Tokenizer::create(data).value();
    EXPECT_EQ(padded.facts().vocab_size, rows);
    EXPECT_EQ(padded.token_bytes(TokenId{rows - 1}), "");
    for (const char* text : {"", "Once upon a time ab", "\xC3\xA9"}) {
      EXPECT_EQ(padded.encode(text).value(), as_told.encode(text).value()) << text;
    }
    const TokenizerData before = data;
    ASSERT_TRUE(fit_to_rows(data, rows));
    EXPECT_EQ(data, before);
  }
}

TEST(TokenizerRows, ScoresGoAlong) {
  TokenizerData data = full_data();
  data.scores.assign(data.tokens.size(), 1);
  ASSERT_TRUE(fit_to_rows(data, static_cast<std::int64_t>(data.tokens.size()) + 2));
  EXPECT_EQ(data.scores.size(), data.tokens.size());
  EXPECT_EQ(data.scores.size(), data.kinds.size());
}

// The tokenizer of a family has markers that its text models have no rows for.
TEST(TokenizerRows, AMarkerWithoutARowIsNoToken) {
  TokenizerData data = byte_bpe_data({{"a", "b"}}, {{"<end>", TokenKind::kControl}, {"<image>", TokenKind::kControl}});
  const auto rows = static_cast<std::int64_t>(data.tokens.size()) - 1;
  data.eos = TokenId{static_cast<std::uint32_t>(rows - 1)};
  data.more_end_of_generation = {TokenId{static_cast<std::uint32_t>(rows)}};
  data.json.added = {{.id = *data.eos}, {.id = TokenId{static_cast<std::uint32_t>(rows)}}};
  const Tokenizer whole = Tokenizer::create(data).value();
  ASSERT_TRUE(fit_to_rows(data, rows));
  EXPECT_EQ(data.kinds.size(), data.tokens.size());
  EXPECT_EQ(data.json.added.size(), 1U);
  EXPECT_TRUE(data.more_end_of_generation.empty());
  const Tokenizer fitted = Tokenizer::create(data).value();
  EXPECT_EQ(fitted.facts().vocab_size, static_cast<std::size_t>(rows));
  EXPECT_EQ(fitted.encode("abc").value(), whole.encode("abc").value());
  const std::vector<TokenId> ids = fitted.encode("a<image>b", {.parse_special = true}).value();
  for (const TokenId id : ids) EXPECT_LT(base::index(id), static_cast<std::uint32_t>(rows));
}

TEST(TokenizerRows, ATokenThatIsNeededAndHasNoRowIsRefused) {
  const auto code = [](TokenizerData data, std::int64_t rows) { return fit_to_rows(data, rows).error().code; };
  const TokenizerData normal = byte_bpe_data({{"a", "b"}});
  const auto rows = static_cast<std::int64_t>(normal.tokens.size()) - 1;
  EXPECT_EQ(code(normal, rows), base::ErrorCode::kModelIncompatible);
  TokenizerData marker = byte_bpe_data({}, {{"<end>", TokenKind::kControl}});
  const TokenId last{static_cast<std::uint32_t>(marker.tokens.size() - 1)};
  const auto fewer = static_cast<std::int64_t>(marker.tokens.size()) - 1;
  const auto with = [&](auto change) {
    TokenizerData data = marker;
    change(data);
    return data;
  };
  EXPECT_EQ(code(with([&](TokenizerData& d) { d.eos = last; }), fewer), base::ErrorCode::kModelIncompatible);
  EXPECT_EQ(code(with([&](TokenizerData& d) { d.infill.middle = last; }), fewer), base::ErrorCode::kModelIncompatible);
  EXPECT_EQ(code(with([&](TokenizerData& d) { d.json.prefix = {last}; }), fewer), base::ErrorCode::kModelIncompatible);
  EXPECT_EQ(code(with([&](TokenizerData& d) {
                   d.json.merges = {{TokenId{1}, last}};
                 }),
                 fewer),
            base::ErrorCode::kModelIncompatible);
  for (const std::int64_t impossible : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    EXPECT_EQ(code(normal, impossible), base::ErrorCode::kModelIncompatible) << impossible;
  }
}

TEST(TokenizerBlob, DamagedBytesNeverCrashAndStayCanonical) {
  const std::string blob = serialize(full_data()).value();
  EXPECT_TRUE(rc::check("damaged blob", [&] {
    std::string damaged = blob;
    for (int i = *rc::gen::inRange(1, 6); i > 0; --i) {
      damaged[*rc::gen::inRange<std::size_t>(0, damaged.size())] =
          static_cast<char>(*rc::gen::arbitrary<std::uint8_t>());
    }
    const auto parsed = parse(damaged);
    if (parsed) RC_ASSERT(serialize(*parsed).value() == damaged);
  }));
}

}  // namespace
}  // namespace llorch::text
