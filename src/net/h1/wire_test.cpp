#include "net/h1/wire.h"

#include <gtest/gtest.h>

namespace llorch::net::h1 {
namespace {

ChunkPool pool;

struct Parsed {
  ParseStatus status = ParseStatus::kNeedMore;
  int error_status = 0;
  bool saw_head = false;
  std::string rest;
};
// Feeds `bytes` as a socket would deliver them, `piece` at a time.
template <class Parser>
Parsed feed_all(Parser& parser, std::string_view bytes, std::size_t piece) {
  Parsed parsed;
  std::string inbox;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    inbox += bytes.substr(at, piece);
    while (parsed.status != ParseStatus::kDone && !inbox.empty()) {
      const auto step = parser.feed(inbox);
      if (!step) {
        parsed.error_status = step.error().http_status;
        return parsed;
      }
      inbox.erase(0, step->consumed);
      parsed.saw_head |= step->status == ParseStatus::kHead;
      if (step->status != ParseStatus::kHead) parsed.status = step->status;
      if (step->status == ParseStatus::kNeedMore) break;
    }
  }
  parsed.rest = inbox;
  return parsed;
}

TEST(RequestParser, SameResultHoweverItIsCut) {
  const std::string_view with_length =
      "POST /v2/tasks?x=1 HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhelloGET /next";
  const std::string_view with_chunks =
      "POST /v2/tasks?x=1 HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
      "2\r\nhe\r\n3;ext=1\r\nllo\r\n0\r\nX-Trailer: 1\r\n\r\nGET /next";
  for (const std::string_view bytes : {with_length, with_chunks}) {
    for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
      RequestParser parser({}, pool);
      const Parsed parsed = feed_all(parser, bytes, piece);
      ASSERT_EQ(parsed.status, ParseStatus::kDone) << piece;
      EXPECT_TRUE(parsed.saw_head);
      EXPECT_EQ(parsed.rest, "GET /next");
      EXPECT_EQ(parser.method(), "POST");
      EXPECT_EQ(parser.target(), "/v2/tasks?x=1");
      EXPECT_EQ(parser.headers().get("x-a"), "1");
      EXPECT_EQ(parser.headers().get("x-trailer"), std::nullopt);
      EXPECT_EQ(parser.body(), "hello");
      EXPECT_TRUE(parser.keep_alive());
    }
  }
}

// Beast's own assertion aborted on the third of these bytes.
TEST(RequestParser, LastChunkMayComeByteByByte) {
  RequestParser parser({}, pool);
  EXPECT_EQ(feed_all(parser, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 1).status,
            ParseStatus::kDone);
  EXPECT_EQ(parser.body(), "");
}

TEST(RequestParser, Versions) {
  RequestParser old({}, pool);
  EXPECT_EQ(feed_all(old, "GET / HTTP/1.0\r\n\r\n", 99).status, ParseStatus::kDone);
  EXPECT_TRUE(old.is_http_1_0());
  EXPECT_FALSE(old.keep_alive());
  RequestParser closing({}, pool);
  EXPECT_EQ(feed_all(closing, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 99).status, ParseStatus::kDone);
  EXPECT_FALSE(closing.keep_alive());
}

TEST(RequestParser, RefusesWhatTwoReadersWouldReadDifferently) {
  for (const std::string_view bytes : {
           "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
           "GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
           "GET / HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 1x\r\n\r\n",
           "GET / HTTP/1.1\r\nBad Name: 1\r\n\r\n",
           "GET / HTTP/1.1\nHost: h\n\n",
           "GET / HTTP/2.0\r\n\r\n",
           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
           "\x16\x03\x01\x02\x00\x01\r\n",
       }) {
    RequestParser parser({}, pool);
    EXPECT_EQ(feed_all(parser, bytes, bytes.size()).error_status, 400) << bytes;
  }
}

TEST(RequestParser, Limits) {
  const ParserLimits limits{.header_bytes_max = 200, .body_bytes_max = 10};
  const auto status_of = [&](const std::string& bytes, std::size_t piece) {
    RequestParser parser(limits, pool);
    return feed_all(parser, bytes, piece).error_status;
  };
  const std::string long_header = "GET / HTTP/1.1\r\nX: " + std::string(300, 'a') + "\r\n\r\n";
  const std::string endless_header = "GET / HTTP/1.1\r\nX: " + std::string(300, 'a');
  const std::string long_target = "GET /" + std::string(300, 'a') + " HTTP/1.1\r\n\r\n";
  const std::string long_body = "POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n";
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string long_chunks = chunked + "8\r\n12345678\r\n8\r\n12345678\r\n0\r\n\r\n";
  const std::string long_extension = chunked + "1;" + std::string(300, 'a');
  const std::string long_trailer = chunked + "0\r\nX: " + std::string(300, 'a');
  for (const std::size_t piece : {1, 7, 10'000}) {
    EXPECT_EQ(status_of(long_header, piece), 431);
    EXPECT_EQ(status_of(endless_header, piece), 431);
    EXPECT_EQ(status_of(long_target, piece), 431);
    EXPECT_EQ(status_of(long_body, piece), 413);
    EXPECT_EQ(status_of(long_chunks, piece), 413);
    EXPECT_EQ(status_of(long_extension, piece), 431);
    EXPECT_EQ(status_of(long_trailer, piece), 431);
  }
}

TEST(RequestParser, TheHeaderLimitIsExactHoweverItIsCut) {
  const std::string head = "GET / HTTP/1.1\r\nHost: h\r\nX: 1234567890\r\n\r\n";
  const std::string chunks = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(60, 'e') +
                             "\r\na\r\n0\r\nT: " + std::string(50, 't') + "\r\n\r\n";
  for (std::size_t piece = 1; piece <= chunks.size(); ++piece) {
    for (const std::size_t spare : {0, 1}) {
      RequestParser parser({.header_bytes_max = head.size() - 1 + spare}, pool);
      EXPECT_EQ(feed_all(parser, head, piece).status == ParseStatus::kDone, spare == 1) << piece;
      // The longest element of `chunks` is the chunk's header of 64 bytes.
      RequestParser chunked({.header_bytes_max = 63 + spare}, pool);
      EXPECT_EQ(feed_all(chunked, chunks, piece).status == ParseStatus::kDone, spare == 1) << piece;
    }
  }
}

TEST(ResponseParser, BodyPiecesAndEnds) {
  ResponseParser sized({});
  EXPECT_EQ(feed_all(sized, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-A: b\r\n\r\nabc", 4).status, ParseStatus::kDone);
  EXPECT_EQ(sized.status(), 200);
  EXPECT_EQ(sized.headers().get("X-A"), "b");
  EXPECT_EQ(std::exchange(sized.body(), {}), "abc");
  EXPECT_TRUE(sized.finish());

  ResponseParser chunked({});
  const std::string_view head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(feed_all(chunked, head, 99).status, ParseStatus::kNeedMore);
  EXPECT_EQ(feed_all(chunked, "3\r\nabc\r\n", 99).status, ParseStatus::kNeedMore);
  EXPECT_EQ(std::exchange(chunked.body(), {}), "abc");
  EXPECT_EQ(std::exchange(chunked.body(), {}), "");
  EXPECT_EQ(chunked.finish().error().code, base::ErrorCode::kIoError);

  ResponseParser until_close({});
  EXPECT_EQ(feed_all(until_close, "HTTP/1.1 200 OK\r\n\r\nabc", 99).status, ParseStatus::kNeedMore);
  EXPECT_EQ(std::exchange(until_close.body(), {}), "abc");
  EXPECT_TRUE(until_close.finish());

  ResponseParser nothing({});
  EXPECT_FALSE(nothing.finish());
  ResponseParser no_content({});
  EXPECT_EQ(feed_all(no_content, "HTTP/1.1 204 No Content\r\n\r\n", 99).status, ParseStatus::kDone);
}

TEST(WriteHead, Response) {
  const http::Headers headers{{"Content-Type", "a/b"}, {"X-Evil", "1\r\nSet-Cookie: x"}, {"Connection", "upgrade"}};
  const std::string head = write_head(ResponseHead{.status = 404,
                                                   .headers = &headers,
                                                   .content_length = 12,
                                                   .keep_alive = false,
                                                   .correlation_id = "c1",
                                                   .unix_ms = 784111777'000});
  EXPECT_EQ(head,
            "HTTP/1.1 404 Not Found\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nX-Correlation-Id: c1\r\n"
            "Content-Type: a/b\r\nX-Evil: 1  Set-Cookie: x\r\nContent-Length: 12\r\nConnection: close\r\n\r\n");
  const http::Headers none;
  const std::string stream = write_head(ResponseHead{.headers = &none, .framing = Framing::kChunked});
  EXPECT_NE(stream.find("Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"), std::string::npos);
  EXPECT_EQ(write_head(ResponseHead{.status = 204, .headers = &none}).find("Content-Length"), std::string::npos);
}

TEST(WriteHead, Request) {
  const http::Headers headers{{"Accept", "x"}, {"Host", "other"}};
  EXPECT_EQ(write_head(RequestHead{.method = "POST", .target = "/a", .host = "h:1", .headers = &headers}),
            "POST /a HTTP/1.1\r\nHost: h:1\r\nAccept: x\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(
      write_head(RequestHead{.method = "GET", .target = "/", .host = "h", .headers = &headers}).find("Content-Length"),
      std::string::npos);
}

}  // namespace
}  // namespace llorch::net::h1
