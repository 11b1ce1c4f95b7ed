#include "adapter/upstream/grpc.h"

#include <gmock/gmock.h>

#include <vector>

namespace llorch::adapter::upstream {
namespace {

using base::ErrorCode;
using std::string_literals::operator""s;

struct Read {
  std::vector<std::string> messages;
  base::Result<> result;
  bool between = false;
};
Read read(std::string_view bytes, std::size_t piece_bytes, std::size_t message_bytes_max = 100) {
  Read out;
  FrameReader reader(message_bytes_max);
  for (std::size_t at = 0; at < bytes.size() && out.result; at += piece_bytes) {
    out.result = reader.feed(bytes.substr(at, piece_bytes),
                             [&](std::string_view message) { out.messages.emplace_back(message); });
  }
  out.between = reader.is_between_messages();
  return out;
}

TEST(GrpcFrame, SaysWhetherItIsCompressedAndItsLength) {
  EXPECT_EQ(grpc_frame("abc"), "\0\0\0\0\3abc"s);
  EXPECT_EQ(grpc_frame(std::string(0x1234, 'x')).substr(0, 5), "\0\0\0\x12\x34"s);
}

TEST(FrameReader, GivesTheSameMessagesHoweverTheBytesAreCut) {
  const std::string bytes =
      grpc_frame("one") + grpc_frame("") + grpc_frame("three") + grpc_frame(std::string(100, 'x'));
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Read all = read(bytes, piece);
    ASSERT_TRUE(all.result) << piece;
    EXPECT_THAT(all.messages, testing::ElementsAre("one", "", "three", std::string(100, 'x'))) << piece;
    EXPECT_TRUE(all.between);
  }
}

TEST(FrameReader, KnowsThatAMessageIsCut) {
  const std::string bytes = grpc_frame("one") + grpc_frame("two");
  for (std::size_t size = 1; size < 8; ++size) EXPECT_FALSE(read(bytes.substr(0, size), 64).between) << size;
  EXPECT_TRUE(read(bytes.substr(0, 8), 64).between);
  EXPECT_FALSE(read(bytes.substr(0, 9), 64).between);
}

TEST(FrameReader, RefusesWhatIsTooLongBeforeItComes) {
  const Read all = read("\0\0\0\0\1a\0\xff\xff\xff\xff"s, 64);
  EXPECT_EQ(all.result.error().code, ErrorCode::kPayloadTooLarge);
  EXPECT_THAT(all.messages, testing::ElementsAre("a"));
  EXPECT_FALSE(read(grpc_frame(std::string(101, 'x')), 64).result);
}

TEST(FrameReader, RefusesCompressedMessagesAndStaysSo) {
  FrameReader reader;
  const auto none = [](std::string_view) { FAIL() << "there is no message"; };
  EXPECT_EQ(reader.feed("\1\0\0\0\1a"s, none).error().code, ErrorCode::kIoError);
  EXPECT_FALSE(reader.feed(grpc_frame("a"), none));
}

TEST(GrpcStatus, IsAnHttpStatusWithAName) {
  EXPECT_EQ(grpc_status(14).name, "UNAVAILABLE");
  EXPECT_EQ(grpc_status(14).http_status, 503);
  EXPECT_EQ(grpc_status(8).http_status, 429);
  EXPECT_EQ(grpc_status(16).http_status, 401);
  EXPECT_EQ(grpc_status(16).name, "UNAUTHENTICATED");
  for (const int none : {17, -1, 1 << 30}) EXPECT_EQ(grpc_status(none).name, "UNKNOWN") << none;
}

TEST(GrpcReply, IsOneMessageOrAStatus) {
  const auto reply = [](std::optional<int> status, std::string body) {
    return grpc_reply({.head = {.status = 200}, .body = std::move(body), .grpc_status = status});
  };
  EXPECT_EQ(reply(0, grpc_frame("abc"))->body, "abc");
  EXPECT_EQ(reply(5, {})->head.status, 404);
  EXPECT_EQ(reply(16, {})->head.status, 401);
  EXPECT_EQ(reply({}, grpc_frame("abc")).error().code, ErrorCode::kIoError) << "the connection broke";
  EXPECT_FALSE(reply(0, {}));
  EXPECT_FALSE(reply(0, grpc_frame("a") + grpc_frame("b")));
  EXPECT_FALSE(reply(0, grpc_frame("abc").substr(0, 7)));
  EXPECT_EQ(grpc_reply({.head = {.status = 502}, .body = "<html>"})->head.status, 502) << "a proxy's own answer";
}

}  // namespace
}  // namespace llorch::adapter::upstream
