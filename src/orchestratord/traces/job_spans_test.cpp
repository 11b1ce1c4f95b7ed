#include "orchestratord/traces/job_spans.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "orchestratord/traces/otlp.h"

namespace llorch::orchestratord::traces {
namespace {

FinishedJob completed() {
  FinishedJob job{.correlation_id = base::CorrelationId("corr-1"), .model = "chat", .model_digest = "sha256:ab"};
  job.correlation_id.trace = std::make_shared<const base::TraceContext>(base::TraceContext{
      .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736", .is_sampled = true, .parent_id = "00f067aa0ba902b7"});
  job.end = wire::EndEvent{.job_id = "secret-job-id", .first_token_ms = 20};
  job.pool_id = "pool-1";
  job.attempts = 1;
  job.tokens_in = 5;
  job.tokens_out = 7;
  job.submitted_ms = 1000;
  job.dispatched_ms = 1100;
  job.started_ms = 1110;
  job.finished_ms = 1500;
  return job;
}

// CLOUD-7030: one span a phase, below the job, which is below its caller's.
TEST(JobSpans, FollowTheJobWithoutAGap) {
  base::SeededEntropy entropy(1);
  const auto spans = job_spans(completed(), entropy);
  ASSERT_EQ(spans.size(), 5U);
  EXPECT_EQ(spans[0].name, "job");
  EXPECT_EQ(spans[0].parent_id, "00f067aa0ba902b7");
  EXPECT_EQ(spans[0].begin_ms, 1000);
  EXPECT_EQ(spans[0].end_ms, 1500);
  const std::pair<std::string_view, std::int64_t> expected[] = {
      {"queue", 1100}, {"dispatch", 1110}, {"prefill", 1130}, {"decode", 1500}};
  std::int64_t at = 1000;
  std::set<std::string> ids{spans[0].span_id};
  for (std::size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].name, expected[i - 1].first);
    EXPECT_EQ(spans[i].begin_ms, at);
    EXPECT_EQ(spans[i].end_ms, expected[i - 1].second);
    EXPECT_EQ(spans[i].parent_id, spans[0].span_id);
    EXPECT_EQ(spans[i].trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    at = spans[i].end_ms;
    ids.insert(spans[i].span_id);
  }
  EXPECT_EQ(ids.size(), spans.size()) << "every span has an id of its own";
}

TEST(JobSpans, AJobThatNoWorkerTookHasWaitedOnly) {
  FinishedJob job = completed();
  job.end.reset();
  job.dispatched_ms.reset();
  job.started_ms.reset();
  job.status = wire::JobStatus::kFailed;
  job.error_code = "POOL_UNAVAILABLE";
  base::SeededEntropy entropy(1);
  const auto spans = job_spans(job, entropy);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_TRUE(spans[0].is_error);
  EXPECT_EQ(spans[1].name, "queue");
  EXPECT_EQ(spans[1].end_ms, 1500);
}

TEST(JobSpans, AClockThatWentBackMakesNoNegativeSpan) {
  FinishedJob job = completed();
  job.dispatched_ms = 900;
  job.started_ms = 5000;
  job.finished_ms = 1200;
  base::SeededEntropy entropy(1);
  for (const Span& span : job_spans(job, entropy)) {
    EXPECT_LE(span.begin_ms, span.end_ms) << span.name;
    EXPECT_GE(span.begin_ms, 1000) << span.name;
    EXPECT_LE(span.end_ms, 1200) << span.name;
  }
}

TEST(JobSpans, WithoutACallersTraceTheyMakeOne) {
  FinishedJob job = completed();
  job.correlation_id.trace = nullptr;
  base::SeededEntropy entropy(1);
  EXPECT_TRUE(is_sampled(job));
  const auto spans = job_spans(job, entropy);
  EXPECT_EQ(spans[0].trace_id.size(), 32U);
  EXPECT_EQ(spans[0].parent_id, "");
  EXPECT_EQ(spans[1].trace_id, spans[0].trace_id);
}

TEST(JobSpans, ACallerDecidesWhetherItsTraceIsRecorded) {
  FinishedJob job = completed();
  job.correlation_id.trace = std::make_shared<const base::TraceContext>(
      base::TraceContext{.trace_id = std::string(32, 'a'), .is_sampled = false});
  EXPECT_FALSE(is_sampled(job));
}

// As opentelemetry-proto's JSON encoding has it: ids in hex, 64-bit integers as texts, enums as numbers.
TEST(Otlp, IsWhatCollectorsRead) {
  base::SeededEntropy entropy(1);
  FinishedJob job = completed();
  job.model = "file:/home/somebody/tale.gguf";
  job.status = wire::JobStatus::kFailed;
  const auto spans = job_spans(job, entropy);
  const std::string text = otlp_json(spans, "0.1.0+abc");
  EXPECT_EQ(text.find("secret-job-id"), std::string::npos);
  EXPECT_EQ(text.find("somebody"), std::string::npos) << "where a file lies is not told";
  const boost::json::value body = boost::json::parse(text);
  const auto& resource = body.at("resourceSpans").at(0);
  EXPECT_EQ(resource.at("resource").at("attributes").at(1).at("value").at("stringValue"), "orchestratord");
  const auto& all = resource.at("scopeSpans").at(0).at("spans").as_array();
  ASSERT_EQ(all.size(), spans.size());
  EXPECT_EQ(all[0].at("kind"), 2);
  EXPECT_EQ(all[0].at("startTimeUnixNano"), "1000000000");
  EXPECT_EQ(all[0].at("status").at("code"), 2);
  EXPECT_EQ(all[0].at("parentSpanId"), "00f067aa0ba902b7");
  EXPECT_EQ(all[1].at("kind"), 1);
  EXPECT_EQ(all[1].at("parentSpanId"), all[0].at("spanId"));
  EXPECT_EQ(all[0].at("attributes").at(1).at("value").at("stringValue"), "tale.gguf");
  EXPECT_EQ(all[0].at("attributes").at(3).at("value").at("intValue"), "7");
}

}  // namespace
}  // namespace llorch::orchestratord::traces
