#include "net/sse/sse.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace llorch::net::sse {
namespace {

std::vector<Event> decode_cut_at(std::string_view bytes, std::size_t piece_bytes) {
  Decoder decoder;
  std::vector<Event> out;
  for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
    EXPECT_TRUE(decoder.feed(bytes.substr(at, piece_bytes), out));
  }
  return out;
}

TEST(SseEncode, FieldsAndOrder) {
  std::string out;
  append_event(out, {.event = "token", .id = "3-00ff", .data = R"({"t":"a","i":1})"});
  EXPECT_EQ(out, "event: token\nid: 3-00ff\ndata: {\"t\":\"a\",\"i\":1}\n\n");
  out.clear();
  append_event(out, {.data = "x"});
  EXPECT_EQ(out, "data: x\n\n");
}

TEST(SseEncode, LineBreaksInDataBecomeFields) {
  std::string out;
  append_event(out, {.data = "a\r\nb\rc\n"});
  EXPECT_EQ(out, "data: a\ndata: b\ndata: c\ndata: \n\n");
}

// OC-CTRL-2027: heartbeats do not break parsers.
TEST(SseDecode, CommentsAreSkippedAnywhere) {
  std::string bytes;
  append_comment(bytes, "keep-alive");
  append_event(bytes, {.event = "end", .data = "{}"});
  append_comment(bytes, "keep-alive");
  bytes += "data: 1\n: in between\ndata: 2\n\n";
  EXPECT_EQ(decode_cut_at(bytes, bytes.size()),
            (std::vector<Event>{{"end", std::nullopt, "{}"}, {"message", std::nullopt, "1\n2"}}));
}

TEST(SseDecode, FollowsTheStandard) {
  const std::vector<std::pair<std::string, std::vector<Event>>> cases = {
      {"\xEF\xBB\xBF"
       "data: bom\n\n",
       {{"message", {}, "bom"}}},
      {"data:no space\n\n", {{"message", {}, "no space"}}},
      {"data:  two\n\n", {{"message", {}, " two"}}},
      {"data\n\n", {{"message", {}, ""}}},
      {"data\ndata\n\n", {{"message", {}, "\n"}}},
      {"event: only a name\n\ndata: x\n\n", {{"message", {}, "x"}}},
      {"data: open at the end\n", {}},
      {"data: a\r\rdata: b\r\n\r\n", {{"message", {}, "a"}, {"message", {}, "b"}}},
      {"unknown: 1\ndata: x\n\n", {{"message", {}, "x"}}},
      {"id: 7\ndata: x\n\n", {{"message", "7", "x"}}},
      {std::string("id: 7\0\ndata: x\n\n", 17), {{"message", {}, "x"}}},
  };
  for (const auto& [bytes, want] : cases) {
    for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
      EXPECT_EQ(decode_cut_at(bytes, piece), want) << bytes << " cut every " << piece;
    }
  }
}

TEST(SseDecode, RemembersIdAndRetry) {
  Decoder decoder;
  std::vector<Event> out;
  ASSERT_TRUE(decoder.feed("id: 4\ndata: a\n\ndata: b\n\nretry: 2500\n\nretry: soon\n\n", out));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].id, std::nullopt);
  EXPECT_EQ(decoder.last_event_id(), "4");
  EXPECT_EQ(decoder.retry_ms(), 2500);
}

// SSE-1001: bounded memory.
TEST(SseDecode, LimitsHoldAndStick) {
  std::vector<Event> out;
  Decoder line({.line_bytes_max = 16, .event_bytes_max = 1000});
  EXPECT_TRUE(line.feed("data: 1234567890", out));
  const auto too_long = line.feed("1", out);
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, base::ErrorCode::kPayloadTooLarge);
  EXPECT_FALSE(line.feed("\n\ndata: x\n\n", out));
  Decoder event({.line_bytes_max = 100, .event_bytes_max = 10});
  EXPECT_TRUE(event.feed("data: 1234\ndata: 123\n", out));
  EXPECT_FALSE(event.feed("data: 12\n\n", out));
  EXPECT_TRUE(out.empty());
}

TEST(SseProperty, WhatIsEncodedIsDecodedHoweverItIsCut) {
  EXPECT_TRUE(rc::check("encode, cut, decode", [] {
    const auto line = rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc:{}\" 01")));
    const auto text = rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab: \n{}")));
    std::string bytes;
    std::vector<Event> want;
    const int count = *rc::gen::inRange(0, 6);
    for (int i = 0; i < count; ++i) {
      const std::string name = *line;
      const std::string id = *line;
      const std::string data = *text;
      append_event(bytes, {name, id, data});
      // One space after the colon belongs to the field's syntax and is written by the encoder.
      want.push_back({name.empty() ? "message" : name, id.empty() ? std::nullopt : std::optional(id), data});
      if (i % 2 == 0) append_comment(bytes, "keep-alive");
    }
    RC_ASSERT(decode_cut_at(bytes, static_cast<std::size_t>(*rc::gen::inRange(1, 20))) == want);
  }));
}

}  // namespace
}  // namespace llorch::net::sse
