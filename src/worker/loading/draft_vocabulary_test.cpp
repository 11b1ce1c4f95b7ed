#include "worker/loading/draft_vocabulary.h"

#include <gtest/gtest.h>

#include "text/test_vocabularies.h"

namespace llorch::worker::loading {
namespace {

using text::MergePair;
using text::TokenKind;

text::TokenizerData data_of(const std::vector<MergePair>& merges, std::int64_t rows) {
  text::TokenizerData data = text::byte_bpe_data(merges);
  EXPECT_TRUE(text::fit_to_rows(data, rows));
  return data;
}

base::Result<> check(const text::TokenizerData& model, const text::TokenizerData& draft) {
  return check_draft_vocabulary(text::Tokenizer::create(model).value(), tokens_used(model), draft);
}

// Qwen2.5's files have one vocabulary and tables of 151,936 and of 152,064 rows.
TEST(DraftVocabulary, TablesMayBeFilledDifferently) {
  const std::vector<MergePair> merges{{"a", "b"}, {"ab", "c"}};
  for (const std::int64_t rows : {258, 260, 300}) {
    EXPECT_EQ(tokens_used(data_of(merges, rows)), 258U);
    EXPECT_TRUE(check(data_of(merges, 280), data_of(merges, rows))) << rows;
  }
}

TEST(DraftVocabulary, EitherMayHaveMoreTokensBehindThose) {
  const std::vector<MergePair> few{{"a", "b"}}, more{{"a", "b"}, {"ab", "c"}};
  EXPECT_TRUE(check(data_of(more, 300), data_of(few, 280)));
  EXPECT_TRUE(check(data_of(few, 280), data_of(more, 300)));
}

TEST(DraftVocabulary, AnotherOneIsRefusedWithTheTokenAtWhichTheyPart) {
  const std::vector<MergePair> one{{"a", "b"}, {"ab", "c"}}, other{{"a", "b"}, {"ab", "d"}, {"e", "f"}};
  const auto refused = check(data_of(one, 300), data_of(other, 300));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_EQ(refused.error().message,
            "the draft model has another vocabulary: it differs from token 257 on; name one of the same family");
}

}  // namespace
}  // namespace llorch::worker::loading
