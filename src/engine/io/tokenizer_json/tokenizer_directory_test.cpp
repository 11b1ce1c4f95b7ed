#include "engine/io/tokenizer_json/tokenizer_directory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "text/tokenizer.h"

namespace llorch::engine::io::tokenizer_json {
namespace {

using base::ErrorCode;
using text::TokenId;
using text::Tokenizer;
using text::TokenKind;

// A BPE with byte fallback over "a", "b", "ab" and U+2581; every byte has its token.
std::string byte_tokens() {
  std::string out;
  constexpr const char* kHex = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) {
    out += std::string(",\"<0x") + kHex[b / 16] + kHex[b % 16] + ">\":" + std::to_string(10 + b);
  }
  return out;
}

struct Sections {
  std::string added = R"([{"id":0,"content":"<s>","special":true},{"id":300,"content":"<tool>","special":false}])";
  std::string normalizer = R"({"type":"Replace","pattern":{"String":" "},"content":"_"})";
  std::string pre_tokenizer = "null";
  std::string post = "null";
  std::string decoder = R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},
                           {"type":"ByteFallback"},{"type":"Fuse"}]})";
  std::string model = R"({"type":"BPE","byte_fallback":true,"vocab":{"<s>":0,"a":1,"b":2,"ab":3,"_":4,"_a":5)" +
                      byte_tokens() + R"(},"merges":["a b",["_","a"]]})";

  std::string json() const {
    return R"({"version":"1.0","added_tokens":)" + added + R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" +
           pre_tokenizer + R"(,"post_processor":)" + post + R"(,"decoder":)" + decoder + R"(,"model":)" + model + "}";
  }
};

std::vector<std::uint32_t> numbers(const std::vector<TokenId>& ids) {
  std::vector<std::uint32_t> out;
  for (const TokenId id : ids) out.push_back(index(id));
  return out;
}

ErrorCode code_of(const TokenizerFiles& files) {
  auto data = parse_tokenizer_files(files);
  if (!data) return data.error().code;
  const auto tokenizer = Tokenizer::create(std::move(*data));
  return tokenizer ? ErrorCode::kInternal : tokenizer.error().code;
}

TEST(TokenizerJson, ReadsBothSpellingsOfMergesAndEncodes) {
  const auto data = parse_tokenizer_files({.tokenizer = Sections().json()}).value();
  EXPECT_EQ(data.model, "bpe");
  EXPECT_EQ(data.kinds[0], TokenKind::kControl);
  EXPECT_EQ(data.kinds[10], TokenKind::kByte);
  EXPECT_EQ(data.kinds[299], TokenKind::kUnused);
  EXPECT_EQ(data.kinds[300], TokenKind::kUserDefined);
  const Tokenizer tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(tokenizer.facts().kind, "hf-json");
  EXPECT_EQ(numbers(tokenizer.encode("ab a<tool><s>").value()),
            (std::vector<std::uint32_t>{3, 5, 300, 10 + '<', 10 + 's', 10 + '>'}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab a\xFF").value()), "ab a\xFF");
}

// M0-W-1361: BOS, EOS, what ends a generation and chat templates, wherever the directory says so.
TEST(TokenizerJson, ReadsTheFilesBesideIt) {
  TokenizerFiles files{.tokenizer = Sections().json()};
  files.tokenizer_config = R"({"bos_token":{"content":"<s>"},"eos_token":"<tool>","add_bos_token":true,
    "chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}],
    "added_tokens_decoder":{"301":{"content":"<late>","special":true}}})";
  files.generation_config = R"({"eos_token_id":[300,301]})";
  files.config = R"({"eos_token_id":1,"x":Infinity})";
  files.more_chat_templates = {{"tool_use", "T2"}, {"rag", "R"}};
  auto data = parse_tokenizer_files(files).value();
  EXPECT_EQ(data.bos, TokenId{0});
  EXPECT_EQ(data.eos, TokenId{300});
  EXPECT_EQ(data.more_end_of_generation, (std::vector<TokenId>{TokenId{300}, TokenId{301}}));
  EXPECT_EQ(data.chat_template, "D");
  EXPECT_EQ(data.named_chat_templates, (std::vector<text::NamedChatTemplate>{{"tool_use", "T2"}, {"rag", "R"}}));
  EXPECT_EQ(numbers(Tokenizer::create(data).value().encode("a").value()), (std::vector<std::uint32_t>{0, 1}));

  files.chat_template_jinja = "J";
  files.generation_config.reset();
  data = parse_tokenizer_files(files).value();
  EXPECT_EQ(data.chat_template, "J");
  EXPECT_EQ(data.more_end_of_generation, (std::vector<TokenId>{TokenId{1}}));
}

// As directories of models that speak have them.
TEST(TokenizerJson, ThousandsOfTokensMayBeAdded) {
  TokenizerFiles files{.tokenizer = Sections().json()};
  std::string added;
  for (int i = 301; i < 30'301; ++i) {
    added += (added.empty() ? "\"" : ",\"") + std::to_string(i) + R"(":{"content":"<)" + std::to_string(i) +
             R"(>","special":true})";
  }
  files.tokenizer_config = R"({"added_tokens_decoder":{)" + added + "}}";
  const auto data = parse_tokenizer_files(files);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->tokens.size(), 30'301U);
}

TEST(TokenizerJson, ATemplatePutsTokensAroundATextUnlessTheConfigurationSaysOtherwise) {
  Sections sections;
  sections.post = R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
    "single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"<tool>"}}],
    "special_tokens":{"<s>":{"ids":[0]},"<tool>":{"ids":[300]}}}]})";
  TokenizerFiles files{.tokenizer = sections.json()};
  const auto ids = [&] {
    return numbers(Tokenizer::create(parse_tokenizer_files(files).value()).value().encode("a").value());
  };
  EXPECT_EQ(ids(), (std::vector<std::uint32_t>{0, 1, 300}));
  files.special_tokens_map = R"({"bos_token":"<s>"})";
  files.tokenizer_config = R"({"add_bos_token":false})";
  EXPECT_EQ(ids(), (std::vector<std::uint32_t>{1, 300}));
}

TEST(TokenizerJson, PairsAreToldAsTheTemplateSays) {
  const auto pair_of = [](const std::string& post) -> std::optional<Tokenizer::Pair> {
    Sections sections;
    sections.post = post;
    return Tokenizer::create(parse_tokenizer_files({.tokenizer = sections.json()}).value())
        .value()
        .encode_pair("a", "a")
        .value();
  };
  const auto with_template = [&](const std::string& pair) {
    return pair_of(R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}},
      {"SpecialToken":{"id":"<tool>"}}],"pair":)" +
                   pair + R"(,"special_tokens":{"<s>":{"ids":[0]},"<tool>":{"ids":[300]}}})");
  };
  const auto bert = with_template(R"([{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
    {"SpecialToken":{"id":"<tool>","type_id":0}},{"Sequence":{"id":"B","type_id":1}},{"SpecialToken":{"id":"<tool>","type_id":1}}])");
  ASSERT_TRUE(bert);
  EXPECT_EQ(numbers(bert->tokens), (std::vector<std::uint32_t>{0, 1, 300, 1, 300}));
  EXPECT_EQ(bert->second_begin, 3U);
  EXPECT_EQ(bert->second_type, 1U);
  for (
      const char* other :
      {R"([{"Sequence":{"id":"A"}},{"Sequence":{"id":"B"}}])",
       R"([{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"B"}},{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"<tool>"}}])",
       "[]", "null"})
    EXPECT_FALSE(with_template(other)) << other;
  const auto plain = pair_of("null");
  ASSERT_TRUE(plain);
  EXPECT_EQ(numbers(plain->tokens), (std::vector<std::uint32_t>{1, 1})) << "one behind the other";
}

TEST(TokenizerJson, RefusesWhatItCannotDoExactly) {
  const auto code = [](auto member, const char* text) {
    Sections sections;
    sections.*member = text;
    return code_of({.tokenizer = sections.json()});
  };
  using S = Sections;
  constexpr auto kUnsupported = ErrorCode::kUnsupportedTokenizer;
  EXPECT_EQ(code(&S::normalizer, R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})"), kUnsupported);
  EXPECT_NE(code(&S::normalizer, R"({"type":"Precompiled","precompiled_charsmap":""})"), kUnsupported);
  EXPECT_EQ(code(&S::normalizer, R"({"type":"StripAccents"})"), kUnsupported);
  EXPECT_EQ(code(&S::pre_tokenizer, R"({"type":"UnicodeScripts"})"), kUnsupported);
  EXPECT_EQ(code(&S::pre_tokenizer, R"({"type":"Split","pattern":{"Regex":"\\bx"},"behavior":"Isolated"})"),
            kUnsupported);
  EXPECT_EQ(code(&S::pre_tokenizer, R"({"type":"ByteLevel"})"), kUnsupported);  // with a decoder that is none
  EXPECT_EQ(code(&S::decoder, "null"), kUnsupported);
  EXPECT_EQ(code(&S::decoder, R"({"type":"WordPiece","prefix":"@@"})"), kUnsupported);
  EXPECT_EQ(code(&S::post, R"({"type":"Other"})"), kUnsupported);
  EXPECT_EQ(code(&S::model, R"({"type":"WordPiece","continuing_subword_prefix":"@@","vocab":{"a":0}})"), kUnsupported);
  EXPECT_EQ(code(&S::model, R"({"type":"BPE","dropout":0.1,"vocab":{"<s>":0},"merges":[]})"), kUnsupported);
  EXPECT_EQ(code(&S::model, R"({"type":"BPE","vocab":{"<s>":0,"a":1},"merges":[]})"), kUnsupported);  // drops text
}

TEST(TokenizerJson, RefusesWhatContradictsItself) {
  const auto code = [](auto member, const char* text) {
    Sections sections;
    sections.*member = text;
    return code_of({.tokenizer = sections.json()});
  };
  using S = Sections;
  constexpr auto kInvalid = ErrorCode::kConfigKeyInvalid;
  EXPECT_EQ(code(&S::model, R"({"type":"BPE","vocab":{"<s>":0,"a":0},"merges":[]})"), kInvalid);
  EXPECT_EQ(code(&S::model, R"({"type":"BPE","vocab":{"<s>":0,"a":1.5},"merges":[]})"), kInvalid);
  EXPECT_EQ(code(&S::model, R"({"type":"BPE","vocab":{"<s>":0,"a":-1},"merges":[]})"), kInvalid);
  EXPECT_EQ(code(&S::model, R"({"type":"BPE","vocab":{"<s>":0,"a":99999999},"merges":[]})"), kInvalid);
  EXPECT_EQ(code(&S::model, R"({"type":"BPE","vocab":{"<s>":0,"a":1},"merges":["a c"]})"), kInvalid);
  EXPECT_EQ(code(&S::model, R"({"type":"BPE","vocab":{"<s>":0,"a":1},"merges":["a a a"]})"), kInvalid);
  EXPECT_EQ(code(&S::model, R"({"type":"BPE","vocab":[["<s>",0]],"merges":[]})"), kInvalid);
  EXPECT_EQ(code(&S::added, R"([{"id":7,"content":"a"}])"), kInvalid);
  EXPECT_EQ(code(&S::added, R"([{"content":"a"}])"), kInvalid);
  EXPECT_EQ(code(&S::added, R"([{"id":2,"content":"new"}])"), kInvalid);
  EXPECT_EQ(code_of({.tokenizer = "{}"}), kInvalid);
  EXPECT_EQ(code_of({.tokenizer = Sections().json(), .generation_config = R"({"eos_token_id":5000})"}), kInvalid);
}

// What a blob has room for is what a file may say.
TEST(TokenizerJson, ManyProcessorsOrEndsStayWithinTheBlob) {
  constexpr std::size_t kMax = text::TokenizerLimits::kAffixMax;
  const auto with_roberta = [](std::size_t count) {
    Sections sections;
    sections.post = R"({"type":"Sequence","processors":[)";
    for (std::size_t i = 0; i < count; ++i)
      sections.post += std::string(i > 0 ? "," : "") + R"({"type":"RobertaProcessing","cls":["<s>",0],"sep":["a",1]})";
    sections.post += "]}";
    return parse_tokenizer_files({.tokenizer = sections.json()});
  };
  const auto fits = with_roberta(kMax - 1);
  ASSERT_TRUE(fits) << fits.error().message;
  EXPECT_EQ(fits->json.pair->between.size(), kMax);
  const auto beyond = with_roberta(kMax);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kConfigKeyInvalid);

  std::string ends = R"({"eos_token_id":[300)";
  for (int i = 0; i < 5000; ++i) ends += ",1";
  const auto data = parse_tokenizer_files({.tokenizer = Sections().json(), .generation_config = ends + "]}"});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->eos, TokenId{300});
  EXPECT_EQ(data->more_end_of_generation, (std::vector<TokenId>{TokenId{300}, TokenId{1}}));
}

TEST(TokenizerJson, RefusesWhatIsNoJson) {
  const std::string whole = Sections().json();
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 7) {
    EXPECT_EQ(code_of({.tokenizer = whole.substr(0, bytes)}), ErrorCode::kCorruptFile) << bytes;
  }
  for (const char* model : {R"({"vocab":{"a":{}}})", R"({"vocab":[["a"]]})", R"({"vocab":[[1,2]]})", R"({"vocab":7})",
                            R"({"merges":[["a"]]})", R"({"merges":[[["a"]]]})", R"({"merges":{"a":1}})",
                            R"({"vocab":{"a":true}})", R"({"vocab":{},"vocab":{}})"}) {
    Sections sections;
    sections.model = model;
    EXPECT_EQ(code_of({.tokenizer = sections.json()}), ErrorCode::kCorruptFile) << model;
  }
  EXPECT_EQ(code_of({.tokenizer = std::string(100, '[')}), ErrorCode::kCorruptFile);
  EXPECT_EQ(code_of({.tokenizer = whole + "x"}), ErrorCode::kCorruptFile);
}

// Whatever their keys are: those of one object may collide in the parser's hash, each with each.
TEST(TokenizerJson, RefusesObjectsOfMoreMembersThanAnybodyWaitsFor) {
  const auto with_objects = [](int objects, int members) {
    std::string more;
    for (int i = 0; i < members; ++i) more += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
    std::string list;
    for (int i = 0; i < objects; ++i) list += (i == 0 ? "{" : ",{") + more + "}";
    std::string json = Sections().json();
    json.insert(1, "\"more\":[" + list + "],");
    return parse_tokenizer_files({.tokenizer = json});
  };
  EXPECT_TRUE(with_objects(1, 46'000));
  EXPECT_TRUE(with_objects(20, 10'000));
  for (const auto& refused : {with_objects(1, 47'000), with_objects(22, 10'000)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kCorruptFile);
    EXPECT_NE(refused.error().message.find("objects of too many members"), std::string::npos)
        << refused.error().message;
  }
  // A vocabulary is read into a list, where no key is compared.
  Sections sections;
  std::string tokens;
  for (int i = 301; i < 60'301; ++i) tokens += ",\"t" + std::to_string(i) + "\":" + std::to_string(i);
  sections.model.insert(sections.model.find("},\"merges\""), tokens);
  const auto data = parse_tokenizer_files({.tokenizer = sections.json()});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->tokens.size(), 60'301U);
}

TEST(TokenizerJson, ReadsADirectory) {
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / fmt::format("tokenizer_directory_test_{}", ::getpid());
  std::filesystem::create_directories(directory / "additional_chat_templates");
  std::ofstream(directory / "tokenizer.json") << Sections().json();
  std::ofstream(directory / "chat_template.jinja") << "{{ messages }}";
  std::ofstream(directory / "additional_chat_templates" / "rag.jinja") << "R";
  const auto data = read_tokenizer(directory).value();
  EXPECT_EQ(data.chat_template, "{{ messages }}");
  EXPECT_EQ(data.named_chat_templates, (std::vector<text::NamedChatTemplate>{{"rag", "R"}}));
  std::filesystem::remove_all(directory);
  EXPECT_EQ(read_tokenizer_directory(directory).error().code, ErrorCode::kIoError);
  EXPECT_EQ(read_tokenizer(directory).error().code, ErrorCode::kIoError);
}

}  // namespace
}  // namespace llorch::engine::io::tokenizer_json
