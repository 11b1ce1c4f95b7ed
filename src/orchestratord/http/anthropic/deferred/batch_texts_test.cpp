#include "orchestratord/http/anthropic/deferred/batch_texts.h"

#include <gtest/gtest.h>

#include "orchestratord/http/anthropic/errors.h"
#include "orchestratord/http/deferred/batch_facts.h"

namespace llorch::orchestratord::http::anthropic {
namespace {

using deferred::BatchOutcome;

constexpr std::string_view kParams = R"({"model":"m","max_tokens":3,"messages":[{"role":"user","content":"go"}]})";

std::string body_of(std::initializer_list<std::string> custom_ids) {
  std::string out = R"({"requests":[)";
  for (const std::string& id : custom_ids) {
    out.append(out.back() == '[' ? "" : ",").append(R"({"custom_id":")").append(id).append(R"(","params":)");
    out.append(kParams).append("}");
  }
  return out + "]}";
}

// "field reason", or empty where the body is one.
std::string refusal_of(std::string_view body) {
  const auto input = decode_batch(body);
  if (input) return "";
  std::string out;
  for (const auto& [name, value] : input.error().details) {
    if (name == "field" || name == "reason") out += std::get<std::string>(value) + " ";
  }
  return out;
}

TEST(MessageBatch, IsALineForEachRequest) {
  const auto input = decode_batch(body_of({"a", "B-2_x"}));
  ASSERT_TRUE(input);
  EXPECT_EQ(input->requests_count, 2);
  deferred::LineSplitter lines;
  lines.feed(input->lines);
  const auto first = lines.next(false), second = lines.next(false);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(lines.next(true));
  EXPECT_EQ(request_of_line(*second)->custom_id, "B-2_x");
  EXPECT_EQ(request_of_line(*second)->body, kParams);
  EXPECT_FALSE(request_of_line("nothing"));
  EXPECT_FALSE(request_of_line(R"({"custom_id":"a"})"));
}

TEST(MessageBatch, SaysWhatIsWrongWithIt) {
  EXPECT_EQ(refusal_of(body_of({"a", std::string(64, 'b')})), "");
  EXPECT_EQ(refusal_of(body_of({"a", "b", "a"})), "requests[2].custom_id duplicate ");
  EXPECT_EQ(refusal_of(body_of({"a", "b c"})), "requests[1].custom_id pattern ");
  EXPECT_EQ(refusal_of(body_of({"a\\n"})), "requests[0].custom_id pattern ");
  EXPECT_EQ(refusal_of(body_of({""})), "requests[0].custom_id length ");
  EXPECT_EQ(refusal_of(body_of({std::string(65, 'b')})), "requests[0].custom_id length ");
  EXPECT_EQ(refusal_of(body_of({})), "requests length ");
  EXPECT_EQ(refusal_of(R"({"requests":[{"custom_id":"a","params":[]}]})"), "requests[0].params type ");
  EXPECT_EQ(refusal_of(R"({"requests":[{"custom_id":"a"}]})"), "requests[0].params missing ");
  EXPECT_EQ(refusal_of(R"({"requests":[{"custom_id":"a","params":{},"url":"x"}]})"), "requests[0].url unknown ");
  EXPECT_NE(refusal_of("\xff"), "");
  std::string many = R"({"requests":[)";
  for (int i = 0; i <= deferred::kBatchRequestsMax; ++i) many += "0,";
  many.back() = ']';
  EXPECT_EQ(refusal_of(many + "}"), "requests length ");
}

TEST(MessageBatch, RunsItsRequestsBehindOthersAndWithASeedOfTheirOwn) {
  const auto request = decode_batched(kParams, "batch/1", 2);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->submission.priority, wire::Priority::kBatch);
  EXPECT_EQ(request->submission.seed, deferred::seed_of_name("batch/1"));
  EXPECT_EQ(request->submission.max_tokens, 3) << "what makes two submissions the same one";
  EXPECT_EQ(request->answer.max_tokens, 2) << "what the server lets it have";
  std::string seeded(kParams);
  seeded.insert(1, R"("seed":7,)");
  EXPECT_EQ(decode_batched(seeded, "batch/1", 2)->submission.seed, 7);
  std::string streamed(kParams);
  streamed.insert(1, R"("stream":true,)");
  EXPECT_FALSE(decode_batched(streamed, "batch/1", 2));
  EXPECT_FALSE(decode_batched("{}", "batch/1", 2));
}

TEST(MessageBatch, ResultsSayWhatBecameOfARequest) {
  const std::string good = result_line("a", {200, {}, R"({"type":"message"})"});
  EXPECT_EQ(good, "{\"custom_id\":\"a\",\"result\":{\"type\":\"succeeded\",\"message\":{\"type\":\"message\"}}}\n");
  const std::string bad =
      result_line("b", error_response({base::ErrorCode::kModelNotFound, "no", {}}, base::CorrelationId("c")));
  EXPECT_TRUE(bad.starts_with(R"({"custom_id":"b","result":{"type":"errored","error":{"type":"error","error":{"type":)"
                              R"("not_found_error","message":"no")"));
  EXPECT_EQ(unanswered_line("c", true), "{\"custom_id\":\"c\",\"result\":{\"type\":\"canceled\"}}\n");
  EXPECT_EQ(unanswered_line("c", false), "{\"custom_id\":\"c\",\"result\":{\"type\":\"expired\"}}\n");
  EXPECT_EQ(result_of_line(good)->outcome, BatchOutcome::kCompleted);
  EXPECT_EQ(result_of_line(good)->custom_id, "a");
  EXPECT_EQ(result_of_line(bad)->outcome, BatchOutcome::kFailed);
  EXPECT_EQ(result_of_line(unanswered_line("c", true))->outcome, BatchOutcome::kUnanswered);
  // The arguments of a call, nested as deep as a model may write them.
  const std::size_t levels = text::formats::kNestingMax;
  const std::string call =
      R"({"type":"tool_use","input":{"a":)" + std::string(levels, '[') + std::string(levels, ']') + "}}";
  const std::string deep = result_line("a", {200, {}, R"({"content":[)" + call + "]}"});
  ASSERT_TRUE(result_of_line(deep));
  EXPECT_EQ(result_of_line(deep)->outcome, BatchOutcome::kCompleted);
  EXPECT_FALSE(result_of_line("{"));
  EXPECT_FALSE(result_of_line(R"({"custom_id":"a","response":{"status_code":200}})")) << "of another API";
}

TEST(MessageBatch, IsShownWithCountsThatAddUp) {
  boost::json::object facts = deferred::fresh_facts({}, 10, 1'700'000'000);
  EXPECT_EQ(
      batch_object("msgbatch_1", facts),
      R"({"id":"msgbatch_1","type":"message_batch","processing_status":"in_progress","request_counts":)"
      R"({"processing":10,"succeeded":0,"errored":0,"canceled":0,"expired":0},"created_at":"2023-11-14T22:13:20.000Z",)"
      R"("expires_at":"2023-11-15T22:13:20.000Z","ended_at":null,"cancel_initiated_at":null,"archived_at":null,)"
      R"("results_url":null})");
  deferred::set_count(facts, "completed", 3);
  deferred::set_count(facts, "failed", 2);
  deferred::set_status(facts, "cancelling", 1'700'000'060);
  const std::string canceling = batch_object("msgbatch_1", facts);
  EXPECT_NE(canceling.find(R"("processing_status":"canceling","request_counts":{"processing":10,)"), std::string::npos);
  EXPECT_NE(canceling.find(R"("ended_at":null,"cancel_initiated_at":"2023-11-14T22:14:20.000Z")"), std::string::npos);
  for (const auto& [status, counts] :
       {std::pair("cancelled", R"({"processing":0,"succeeded":3,"errored":2,"canceled":5,"expired":0})"),
        std::pair("expired", R"({"processing":0,"succeeded":3,"errored":2,"canceled":0,"expired":5})")}) {
    boost::json::object ended = facts;
    deferred::set_status(ended, status, 1'700'000'120);
    const std::string shown = batch_object("msgbatch_1", ended);
    EXPECT_NE(shown.find(std::string(R"("processing_status":"ended","request_counts":)") + counts), std::string::npos)
        << shown;
    EXPECT_NE(shown.find(R"("ended_at":"2023-11-14T22:15:20.000Z")"), std::string::npos) << shown;
    EXPECT_NE(shown.find(R"("results_url":"/v1/messages/batches/msgbatch_1/results")"), std::string::npos) << shown;
  }
}

}  // namespace
}  // namespace llorch::orchestratord::http::anthropic
