#include "engine/io/tokenizer_source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/io/gguf_writer.h"
#include "text/tokenizer.h"

namespace llorch::engine::io {
namespace {

using text::TokenId;
using text::Tokenizer;

TEST(TokenizerSource, ReadsTheDemoModel) {
  const std::filesystem::path path = LLORCH_SOURCE_DIR "/../shared/models/demo/fairytale-5m-q4_0.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const GgufFile file = GgufFile::open(path).value();
  const text::TokenizerData data = read_tokenizer_data(file).value();
  const std::string blob = text::serialize(data).value();
  EXPECT_TRUE(text::parse_tokenizer_data(std::as_bytes(std::span(blob.data(), blob.size()))).value() == data);

  const Tokenizer tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(tokenizer.facts().kind, "gguf-bpe");
  EXPECT_EQ(tokenizer.facts().vocab_size, 2048u);
  EXPECT_TRUE(tokenizer.is_end_of_generation(TokenId{2047}));
  const auto ids = tokenizer.encode("Once upon a time").value();
  ASSERT_GT(ids.size(), 1u);
  EXPECT_TRUE(ids[0] == TokenId{2047});  // its BOS
  EXPECT_EQ(tokenizer.decode(ids), "Once upon a time");
}

TEST(TokenizerSource, ReadsTheVocabularyOfAGoldenModel) {
  const std::filesystem::path path = LLORCH_SOURCE_DIR "/../shared/data/golden/llama3/model.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const Tokenizer tokenizer = Tokenizer::create(read_tokenizer_data(GgufFile::open(path).value()).value()).value();
  EXPECT_EQ(tokenizer.facts().kind, "gguf-spm");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("h\xC3\xA9llo").value()), "h\xC3\xA9llo");
}

class SmallFile {
 public:
  SmallFile() { writer_.put_strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"}); }
  SmallFile& put(std::string_view key, const GgufValue& value) {
    writer_.put(key, value);
    return *this;
  }
  SmallFile& kinds(std::vector<std::int32_t> values) {
    writer_.put_i32s("tokenizer.ggml.token_type", values);
    return *this;
  }
  base::Result<text::TokenizerData> read() {
    const auto bytes = writer_.to_bytes().value();
    return read_tokenizer_data(GgufFile::parse(bytes).value());
  }

 private:
  GgufWriter writer_;
};

TEST(TokenizerSource, RefusesWhatContradictsItself) {
  const std::string_view model = "t5";
  SmallFile no_model, kinds_missing, kind_unknown;
  kinds_missing.put("tokenizer.ggml.model", model).kinds({1});
  kind_unknown.put("tokenizer.ggml.model", model).kinds({1, 7});
  EXPECT_EQ(no_model.read().error().code, base::ErrorCode::kConfigKeyMissing);
  EXPECT_EQ(kinds_missing.read().error().code, base::ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(kind_unknown.read().error().code, base::ErrorCode::kConfigKeyInvalid);
}

TEST(TokenizerSource, ReadsChatTemplates) {
  GgufWriter writer;
  writer.put_strings("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  writer.put("tokenizer.ggml.model", std::string_view("t5"));
  writer.put("tokenizer.chat_template", std::string_view("{{ messages }}"));
  writer.put_strings("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
  const auto read = [&] {
    const auto bytes = writer.to_bytes().value();
    return read_tokenizer_data(GgufFile::parse(bytes).value());
  };
  EXPECT_EQ(read().error().code, base::ErrorCode::kConfigKeyMissing);  // named, but not there
  writer.put("tokenizer.chat_template.tool_use", std::string_view("{{ tools }}"));
  const auto data = read().value();
  EXPECT_EQ(data.chat_template, "{{ messages }}");
  EXPECT_EQ(data.named_chat_templates, (std::vector<text::NamedChatTemplate>{{"tool_use", "{{ tools }}"}}));
}

TEST(TokenizerSource, ReadsTheTokensOfFillInTheMiddle) {
  SmallFile file;
  file.put("tokenizer.ggml.model", std::string_view("t5"))
      .put("tokenizer.ggml.fim_pre_token_id", std::uint32_t{1})
      .put("tokenizer.ggml.prefix_token_id", std::uint32_t{0})
      .put("tokenizer.ggml.suffix_token_id", std::uint32_t{0})
      .put("tokenizer.ggml.fim_mid_token_id", std::uint32_t{1})
      .put("tokenizer.ggml.fim_sep_token_id", std::uint32_t{0});
  const text::InfillTokens tokens = file.read().value().infill;
  EXPECT_TRUE(tokens.prefix == TokenId{1}) << "the newer key counts";
  EXPECT_TRUE(tokens.suffix == TokenId{0}) << "the older key counts where it is alone";
  EXPECT_TRUE(tokens.middle == TokenId{1});
  EXPECT_TRUE(tokens.separator == TokenId{0});
  EXPECT_FALSE(tokens.pad || tokens.repository);
  SmallFile other;
  other.put("tokenizer.ggml.model", std::string_view("t5"))
      .put("tokenizer.ggml.fim_pre_token_id", std::string_view("a"));
  EXPECT_FALSE(other.read());
}

// As the converter writes a WordPiece vocabulary: U+2581 begins a word, what continues one has nothing.
TEST(TokenizerSource, ReadsTheVocabularyOfABert) {
  GgufWriter writer;
  writer.put("tokenizer.ggml.model", std::string_view("bert"));
  const std::vector<std::string> tokens{"[PAD]",          "[UNK]", "[CLS]", "[SEP]",
                                        "\xE2\x96\x81un", "aff",   "able",  "\xE2\x96\x81!"};
  writer.put_strings("tokenizer.ggml.tokens", tokens);
  const auto read = [&] {
    const auto bytes = writer.to_bytes().value();
    return read_tokenizer_data(GgufFile::parse(bytes).value());
  };
  const Tokenizer by_spelling = Tokenizer::create(read().value()).value();
  writer.put("tokenizer.ggml.bos_token_id", std::uint32_t{2});
  writer.put("tokenizer.ggml.seperator_token_id", std::uint32_t{3});
  writer.put("tokenizer.ggml.unknown_token_id", std::uint32_t{1});
  const Tokenizer tokenizer = Tokenizer::create(read().value()).value();
  const auto ids = [](const std::vector<TokenId>& tokens_of) {
    std::vector<std::uint32_t> out;
    for (const TokenId token : tokens_of) out.push_back(base::index(token));
    return out;
  };
  using Ids = std::vector<std::uint32_t>;
  for (const Tokenizer* each : {&tokenizer, &by_spelling}) {
    EXPECT_EQ(ids(each->encode("UNAFFABLE!").value()), (Ids{2, 4, 5, 6, 7, 3}));
    EXPECT_EQ(ids(each->encode("\xC3\xBCn unaff xyz").value()), (Ids{2, 4, 4, 5, 1, 3})) << "accents go";
    EXPECT_EQ(ids(each->encode("[SEP]").value()), (Ids{2, 1, 1, 1, 3})) << "brackets are text";
  }
  const auto pair = tokenizer.encode_pair("un", "!").value();
  ASSERT_TRUE(pair);
  EXPECT_EQ(ids(pair->tokens), (Ids{2, 4, 3, 7, 3}));
  EXPECT_EQ(pair->second_begin, 3U);
  EXPECT_EQ(pair->second_type, 1U);
}

TEST(TokenizerSource, ATokenOfABertThatIsTooLongAsItIsSpelledIsRefused) {
  GgufWriter writer;
  writer.put("tokenizer.ggml.model", std::string_view("bert"));
  writer.put_strings(
      "tokenizer.ggml.tokens",
      std::vector<std::string>{"[UNK]", "[CLS]", "[SEP]", std::string(text::TokenizerLimits::kStringBytesMax, 'a')});
  const auto bytes = writer.to_bytes().value();
  EXPECT_EQ(read_tokenizer_data(GgufFile::parse(bytes).value()).error().code, base::ErrorCode::kConfigKeyInvalid);
}

TEST(TokenizerSource, ABertWithoutItsEndsIsRefused) {
  SmallFile file;
  file.put("tokenizer.ggml.model", std::string_view("bert"));
  EXPECT_EQ(file.read().error().code, base::ErrorCode::kConfigKeyMissing);
}

TEST(TokenizerSource, PassesOnAModelItDoesNotKnow) {
  SmallFile file;
  file.put("tokenizer.ggml.model", std::string_view("t5"))
      .put("tokenizer.ggml.bos_token_id", std::uint32_t{1})
      .put("tokenizer.ggml.add_bos_token", false);
  const auto data = file.read();
  ASSERT_TRUE(data.has_value()) << data.error().message;
  EXPECT_EQ(data->model, "t5");
  EXPECT_TRUE(data->bos == TokenId{1});
  EXPECT_EQ(data->add_bos, false);
  EXPECT_EQ(data->add_eos, std::nullopt);
  EXPECT_EQ(Tokenizer::create(*data).error().code, base::ErrorCode::kUnsupportedTokenizer);
}

}  // namespace
}  // namespace llorch::engine::io
