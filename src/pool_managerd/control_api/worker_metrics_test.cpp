#include "pool_managerd/control_api/worker_metrics.h"

#include <gtest/gtest.h>

#include "net/testing/held_transport.h"

namespace llorch::pool_managerd::control_api {
namespace {

using Texts = std::vector<std::string>;

// Prometheus takes a family once, with one description and all of its series together.
TEST(WorkerMetrics, FamiliesOfSeveralWorkersAreOne) {
  const std::string own = "# HELP pool_mgr_x X.\n# TYPE pool_mgr_x gauge\npool_mgr_x 1\n";
  const auto worker = [](const std::string& id, const std::string& help) {
    return "# HELP worker_slots " + help + "\n# TYPE worker_slots gauge\nworker_slots{worker_id=\"" + id +
           "\"} 2\n# HELP worker_slots_free F.\n# TYPE worker_slots_free gauge\nworker_slots_free{worker_id=\"" + id +
           "\"} 1\n";
  };
  EXPECT_EQ(with_workers(own, {}), own);
  EXPECT_EQ(with_workers(own, {worker("a", "S."), "", worker("b", "Another.")}),
            own +
                "# HELP worker_slots S.\n# TYPE worker_slots gauge\n"
                "worker_slots{worker_id=\"a\"} 2\nworker_slots{worker_id=\"b\"} 2\n"
                "# HELP worker_slots_free F.\n# TYPE worker_slots_free gauge\n"
                "worker_slots_free{worker_id=\"a\"} 1\nworker_slots_free{worker_id=\"b\"} 1\n");
}

// The token of the pool goes to no port that its worker has left.
TEST(WorkerMetrics, WhatHasEndedIsNotAsked) {
  const auto worker = [](const std::string& id, wire::WorkerStatus status, const std::string& uri) {
    wire::WorkerInfo out;
    out.worker_id = id;
    out.status = status;
    out.uri = uri;
    return out;
  };
  const std::string uri = "http://127.0.0.1:5000";
  const auto asked = asked_workers(
      {worker("starts", wire::WorkerStatus::kStarting, ""), worker("failed", wire::WorkerStatus::kFailed, uri),
       worker("gone", wire::WorkerStatus::kDraining, uri), worker("drains", wire::WorkerStatus::kDraining, uri),
       worker("ready", wire::WorkerStatus::kReady, uri)},
      [](const base::WorkerId& id) { return id.value != "gone"; });
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].worker_id, "drains");
  EXPECT_EQ(asked[1].worker_id, "ready");
}

// A worker reads what strangers wrote: it does not speak for the pool or for orchestratord.
TEST(WorkerMetrics, AWorkerSpeaksForItselfAlone) {
  const std::string own = "pool_mgr_connection_status 0\n";
  for (const char* text :
       {"pool_mgr_connection_status 1\n", "# TYPE pool_mgr_x gauge\npool_mgr_x 1\n",
        "# TYPE up gauge\nup 1\nworker_x 1", "worker_x 1\n", "<html>", "\n\n#\n# TYPE \n \n", "# TYPE worker_"}) {
    const std::string told = with_workers(own, {text});
    EXPECT_TRUE(told == own || told == own + "# TYPE worker_\n") << text << "\n" << told;
  }
  EXPECT_EQ(with_workers(own, {"# TYPE worker_x gauge\nup 1\nworker_x 1"}),
            own + "# TYPE worker_x gauge\nworker_x 1\n");
}

// One worker that hangs or fails takes nothing from what the others say.
TEST(WorkerMetrics, AnswersAreWaitedForAndFailuresAreEmpty) {
  net::testing::HeldTransport client;
  std::vector<Texts> done;
  const auto ask = [&](std::vector<net::ClientRequest> requests) {
    ask_workers(client, std::move(requests), [&](Texts texts) { done.push_back(std::move(texts)); });
  };
  ask({});
  EXPECT_EQ(done, std::vector<Texts>{Texts{}});
  ask({{.url = "http://a"}, {.url = "http://b"}, {.url = "http://c"}, {.url = "http://d"}});
  ASSERT_EQ(client.requests.size(), 4u);
  EXPECT_EQ(client.requests.back().first.url, "http://d");
  client.answer(net::Response{.status = 200, .headers = {}, .body = "of d"});
  client.answer(base::fail(base::ErrorCode::kTimeout, "too slow"));
  client.answer(net::Response{.status = 200, .headers = {}, .body = std::string((1 << 20) + 1, 'x')});
  EXPECT_EQ(done.size(), 1u);
  client.answer(net::Response{.status = 503, .headers = {}, .body = "of a"});
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done.back(), (Texts{"", "", "", "of d"}));
}

}  // namespace
}  // namespace llorch::pool_managerd::control_api
