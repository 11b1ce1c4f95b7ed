#include "base/parse_json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>

namespace llorch::base {
namespace {

std::uint64_t bits_of(const boost::json::value& value) { return std::bit_cast<std::uint64_t>(value.as_double()); }

TEST(ParseJson, ANumberIsTheSameWrittenAndReadAgain) {
  std::mt19937_64 random(20261129);
  for (int round = 0; round < 200'000; ++round) {
    const double number = std::bit_cast<double>(random());
    if (!std::isfinite(number)) continue;
    const std::string text = boost::json::serialize(boost::json::value(number));
    ASSERT_EQ(bits_of(parse_known_json(text)), std::bit_cast<std::uint64_t>(number)) << text;
  }
}

TEST(ParseJson, ANumberIsTheDoubleNearestToItsText) {
  for (const auto& [text, number] : {std::pair{"1.2551272886980568e-08", 1.2551272886980568e-08},
                                     {"3.4028234663852886e38", 3.4028234663852886e38},
                                     {"-0.1", -0.1},
                                     {"-0.0", -0.0},
                                     {"5e-324", 5e-324},
                                     {"1E+2", 100.0},
                                     {"123456789012345678901234567890", 123456789012345678901234567890.0},
                                     {"0.1000000000000000055511151231257827021181583404541015625", 0.1}}) {
    EXPECT_EQ(bits_of(parse_known_json(text)), std::bit_cast<std::uint64_t>(number)) << text;
    const std::string within = fmt::format(R"({{"a": [{}, 1], "b": {}}})", text, text);
    const boost::json::value read = parse_known_json(within);
    EXPECT_EQ(bits_of(read.at("a").at(0)), std::bit_cast<std::uint64_t>(number)) << text;
    EXPECT_EQ(bits_of(read.at("b")), std::bit_cast<std::uint64_t>(number)) << text;
  }
  EXPECT_EQ(parse_known_json("-9223372036854775808").as_int64(), INT64_MIN);
  EXPECT_EQ(parse_known_json("18446744073709551615").as_uint64(), UINT64_MAX);
  EXPECT_EQ(parse_known_json("1e-400").as_double(), 0.0);
  EXPECT_EQ(parse_known_json("1e400").as_double(), HUGE_VAL);  // who reads it refuses it
}

TEST(ParseJson, EverythingElseIsBoosts) {
  for (const char* text : {R"({"a": {"b": [true, false, null, "é\ud83d\ude00\n", ""]}, "c": -1, "": {}, "d": []})",
                           R"("long\tstring")", "  [1]  ", "", "{", "[1,]", "1 2", R"({"a":1,"a":2})", "nul", "-", "01",
                           "\"\\ud800\"", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"}) {
    boost::json::error_code expected_error, error;
    const boost::json::value expected = boost::json::parse(text, expected_error);
    EXPECT_EQ(parse_json(text, error), expected) << text;
    EXPECT_EQ(error, expected_error) << text;
  }
  boost::json::error_code error;
  parse_json("[[1]]", error, {}, {.max_depth = 1});
  EXPECT_EQ(error, boost::json::error::too_deep);
}

}  // namespace
}  // namespace llorch::base
