#include "cli/stream/job_stream.h"

#include <gtest/gtest.h>

#include "net/http/error_response.h"
#include "wire/json.h"

namespace llorch::cli::stream {
namespace {

using base::ErrorCode;

std::string event(std::string_view name, std::string_view id, std::string_view data) {
  std::string out;
  net::sse::append_event(out, {.event = name, .id = id, .data = data});
  return out;
}
std::string token(std::int64_t i, const std::string& text) {
  return event("token", std::to_string(2 + i) + "-aa", wire::encode(wire::TokenEvent{.t = text, .i = i}));
}
std::string started() {
  return event("started", "1-aa", wire::encode(wire::StartedEvent{.job_id = "j", .seed = 7, .queue_wait_ms = 3}));
}
std::string end(std::int64_t tokens_out) {
  return event("end", "9-aa", wire::encode(wire::EndEvent{.job_id = "j", .tokens_out = tokens_out}));
}

class JobStreamTest : public testing::Test {
 protected:
  JobStreamTest() {
    stream_.connect();
    stream_.on_response(200);
  }
  std::string printed_;
  bool printer_works_ = true;
  JobStream stream_{[this](std::string_view text) {
    printed_ += text;
    return printer_works_;
  }};
};

TEST_F(JobStreamTest, TheOutcomeDoesNotDependOnHowBytesAreCut) {
  const std::string bytes = ": hello\n\n" + started() + token(0, "Once ") + token(1, "upon") + end(2);
  for (std::size_t size = 1; size <= bytes.size(); ++size) {
    std::string printed;
    JobStream stream([&](std::string_view text) { return printed += text, true; });
    stream.connect();
    stream.on_response(200);
    for (std::size_t at = 0; at < bytes.size(); at += size) EXPECT_TRUE(stream.on_data(bytes.substr(at, size)));
    stream.on_end();
    ASSERT_TRUE(stream.outcome().end) << size;
    EXPECT_FALSE(stream.outcome().error);
    EXPECT_EQ(stream.outcome().end->tokens_out, 2);
    EXPECT_EQ(stream.outcome().text, "Once upon");
    EXPECT_EQ(printed, "Once upon");
    EXPECT_EQ(stream.outcome().seed, 7u);
    EXPECT_EQ(stream.outcome().queue_wait_ms, 3);
  }
}

TEST_F(JobStreamTest, AConnectionLostInTheMiddleOfAnEventIsResumedAfterTheLastWholeOne) {
  const std::string second = token(1, "upon");
  stream_.on_data(token(0, "Once ") + second.substr(0, second.size() - 3));
  stream_.on_end();
  EXPECT_FALSE(stream_.ended());
  EXPECT_EQ(stream_.last_event_id(), "2-aa");
  stream_.connect();
  stream_.on_response(200);
  stream_.on_data(second + end(2));
  EXPECT_EQ(printed_, "Once upon");
  EXPECT_TRUE(stream_.outcome().end);
}

TEST_F(JobStreamTest, ARefusalEndsTheStreamAndAFailingServerIsOnlyRemembered) {
  const auto answer = [&](ErrorCode code) {
    const auto response = net::http::error_response({code, "why", {}}, {});
    stream_.connect();
    stream_.on_response(response.status);
    EXPECT_FALSE(stream_.on_data(response.body));
    stream_.on_end();
  };
  answer(ErrorCode::kStoreUnavailable);
  EXPECT_FALSE(stream_.ended());
  ASSERT_TRUE(stream_.last_failure());
  EXPECT_EQ(stream_.last_failure()->code, ErrorCode::kStoreUnavailable);
  answer(ErrorCode::kQuotaExceeded);
  EXPECT_FALSE(stream_.ended()) << "it says when to come back";
  EXPECT_EQ(stream_.last_failure()->code, ErrorCode::kQuotaExceeded);
  answer(ErrorCode::kStreamOffsetGone);
  ASSERT_TRUE(stream_.outcome().error);
  EXPECT_EQ(stream_.outcome().error->code, ErrorCode::kStreamOffsetGone);
}

TEST_F(JobStreamTest, AnEndWithoutItsTokensIsNoEmptyAnswer) {
  stream_.on_data(end(2));
  EXPECT_FALSE(stream_.outcome().end);
  ASSERT_TRUE(stream_.outcome().error);
  EXPECT_EQ(stream_.outcome().error->code, ErrorCode::kStreamOffsetGone);
  for (const std::string& bytes : {end(0), started() + end(2)}) {  // all of its text may have been held back
    JobStream other([](std::string_view) { return true; });
    other.connect();
    other.on_response(200);
    other.on_data(bytes);
    EXPECT_TRUE(other.outcome().end);
  }
}

TEST_F(JobStreamTest, AnErrorEventAndAMalformedOneEndTheStream) {
  const auto body = wire::error_body({ErrorCode::kReplayDiverged, "why", {}}, {});
  stream_.on_data(event("error", "3-aa", wire::encode(body)) + token(0, "late"));
  EXPECT_EQ(stream_.outcome().error->code, ErrorCode::kReplayDiverged);
  EXPECT_EQ(printed_, "");
  JobStream other([](std::string_view) { return true; });
  other.connect();
  other.on_response(200);
  other.on_data(event("token", "2-aa", "{"));
  EXPECT_TRUE(other.outcome().error);
}

TEST_F(JobStreamTest, OutputThatNobodyReadsEndsTheStream) {
  printer_works_ = false;
  stream_.on_data(token(0, "a") + token(1, "b"));
  EXPECT_TRUE(stream_.output_lost());
  EXPECT_EQ(stream_.outcome().error->code, ErrorCode::kCancelled);
  EXPECT_EQ(printed_, "a");
}

}  // namespace
}  // namespace llorch::cli::stream
