#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <cstdlib>
#include <string>

#include "text/formats/parser.h"
#include "text/formats/testing/outputs.h"
#include "text/formats/testing/random_output.h"

namespace llorch::text::formats {
namespace {

std::size_t calls_per_format() {
  const char* wanted = std::getenv("LLORCH_RANDOM_CALLS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 200;
}

// Byte by byte, and cut in two at every place where `in_two`.
void expect_same_for_every_cut(const Parser::Options& options, std::string_view text, const std::vector<Delta>& whole,
                               bool in_two) {
  std::vector<std::string_view> bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    bytes.push_back(text.substr(i, 1));
    if (!in_two) continue;
    ASSERT_EQ(testing::parse(options, {text.substr(0, i), text.substr(i)}), whole) << text << " at " << i;
  }
  ASSERT_EQ(testing::parse(options, bytes), whole) << text;
}

void expect_read(const testing::RandomOutput& wanted, const testing::Output& read) {
  EXPECT_EQ(read.content, wanted.content) << wanted.text;
  EXPECT_EQ(read.reasoning, wanted.reasoning) << wanted.text;
  ASSERT_EQ(read.calls.size(), wanted.calls.size()) << wanted.text;
  for (std::size_t i = 0; i < read.calls.size(); ++i) {
    EXPECT_EQ(read.calls[i].name, wanted.calls[i].first);
    EXPECT_EQ(boost::json::parse(read.calls[i].arguments), boost::json::value(wanted.calls[i].second)) << wanted.text;
  }
}

class RandomCalls : public ::testing::TestWithParam<Format> {};

TEST_P(RandomCalls, AreReadBackHoweverTheTextIsCut) {
  const Parser::Options options{.format = GetParam(), .tools = Tools::parse(testing::kRandomTools).value()};
  for (std::uint64_t seed = 0; seed < calls_per_format(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const testing::RandomOutput wanted = testing::RandomOutputs(syntax_of(GetParam()), seed).next(false);
    const std::vector<Delta> whole = testing::parse(options, {wanted.text});
    expect_read(wanted, testing::output_of(whole));
    expect_same_for_every_cut(options, wanted.text, whole, seed % 10 == 0);
    if (HasFailure()) return;
  }
}

// With bytes missing, doubled or in the wrong place there is nothing to expect but that cuts do not show, that begun
// calls end, and that whole ones have an object of arguments.
TEST_P(RandomCalls, DamagedOnesAreReadTheSameHoweverTheTextIsCut) {
  const Parser::Options options{.format = GetParam(), .tools = Tools::parse(testing::kRandomTools).value()};
  for (std::uint64_t seed = 0; seed < calls_per_format() / 2; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    testing::RandomOutputs random(syntax_of(GetParam()), ~seed);
    std::string text = random.next(false).text;
    for (std::size_t i = 1 + random.below(3); i > 0 && text.size() > 1; --i) {
      const std::size_t at = random.below(text.size()), bytes = 1 + random.below(4);
      if (random.below(2) == 0) {
        text.erase(at, bytes);
      } else {
        text.insert(random.below(text.size()), text.substr(at, bytes));
      }
    }
    const std::vector<Delta> whole = testing::parse(options, {text});
    for (const testing::Call& call : testing::output_of(whole).calls) {
      EXPECT_TRUE(boost::json::parse(call.arguments).is_object()) << text;
    }
    expect_same_for_every_cut(options, text, whole, seed % 10 == 0);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(, RandomCalls, ::testing::ValuesIn(all_formats().begin(), all_formats().end()),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace llorch::text::formats
