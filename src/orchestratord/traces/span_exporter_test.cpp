#include "orchestratord/traces/span_exporter.h"

#include <gtest/gtest.h>

#include <map>

#include "net/testing/held_transport.h"

namespace llorch::orchestratord::traces {
namespace {

struct ManualClock final : base::Clock {
  base::Time now() const override { return {.mono_ms = mono_ms, .unix_ms = 1'700'000'000'000 + mono_ms}; }
  std::int64_t mono_ms = 1000;
};

struct SpanExporterTest : testing::Test {
  ManualClock clock;
  base::SeededEntropy entropy{1};
  net::testing::HeldTransport client;

  void answer(int status) { client.answer(net::Response{.status = status, .headers = {}, .body = "{}"}); }
  std::map<SpanExporter::Outcome, std::int64_t> counted;
  SpanExporter exporter{{.client = &client,
                         .clock = &clock,
                         .entropy = &entropy,
                         .endpoint = "http://127.0.0.1:4318",
                         .service_version = "0.1.0",
                         .count = [this](SpanExporter::Outcome outcome, std::int64_t n) { counted[outcome] += n; },
                         .limits = {.jobs_max = 4, .jobs_per_request = 3}}};

  void add(int jobs) {
    for (int i = 0; i < jobs; ++i) exporter.add({.correlation_id = {}, .model = "m", .model_digest = "d"});
  }
};

using enum SpanExporter::Outcome;

TEST_F(SpanExporterTest, SendsOneRequestAtATime) {
  exporter.tick();
  EXPECT_TRUE(client.requests.empty()) << "nothing to tell";
  add(4);
  exporter.tick();
  exporter.tick();
  ASSERT_EQ(client.requests.size(), 1U);
  EXPECT_EQ(client.requests[0].first.url, "http://127.0.0.1:4318/v1/traces");
  answer(200);
  EXPECT_EQ(counted[kExported], 3);
  exporter.tick();
  ASSERT_EQ(client.requests.size(), 1U) << "the fourth";
  answer(200);
  EXPECT_EQ(counted[kExported], 4);
  EXPECT_EQ(counted[kDropped], 0);
}

TEST_F(SpanExporterTest, AFullQueueDropsAndCounts) {
  add(10);
  EXPECT_EQ(counted[kDropped], 6);
}

TEST_F(SpanExporterTest, WhatIsOverloadedIsAskedAgainLaterAndLater) {
  add(1);
  exporter.tick();
  const std::string body = client.requests[0].first.body;
  answer(503);
  exporter.tick();
  EXPECT_TRUE(client.requests.empty()) << "a pause";
  clock.mono_ms += 1000;
  exporter.tick();
  ASSERT_EQ(client.requests.size(), 1U);
  EXPECT_EQ(client.requests[0].first.body, body) << "the same spans";
  client.answer(base::fail(base::ErrorCode::kUnreachable, "nobody listens"));
  clock.mono_ms += 1999;
  exporter.tick();
  EXPECT_TRUE(client.requests.empty()) << "twice as long";
  clock.mono_ms += 1;
  exporter.tick();
  ASSERT_EQ(client.requests.size(), 1U);
  answer(200);
  EXPECT_EQ(counted[kExported], 1);
  EXPECT_EQ(counted[kDropped], 0);
  add(1);
  exporter.tick();
  EXPECT_EQ(client.requests.size(), 1U) << "no pause after a success";
}

TEST_F(SpanExporterTest, WhatIsRefusedForGoodIsDropped) {
  add(1);
  exporter.tick();
  answer(400);
  clock.mono_ms += 1000;
  exporter.tick();
  EXPECT_TRUE(client.requests.empty());
  EXPECT_EQ(counted[kDropped], 1);
}

}  // namespace
}  // namespace llorch::orchestratord::traces
