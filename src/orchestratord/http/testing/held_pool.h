#pragma once
// What a handler of models needs, with one paired pool that answers when the test does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/entropy.h"
#include "base/file.h"
#include "net/http/url.h"
#include "net/testing/held_transport.h"
#include "orchestratord/http/context.h"

namespace llorch::orchestratord::http::testing {

struct HeldPool : ::testing::Test {
  HeldPool() {
    pools = pool_access::PoolAccess::open(directory / pool_access::kFileName, entropy).value();
    const auto credential = pools->pair(pool).value();
    EXPECT_TRUE(pools->announce(pools->caller_of(base::sha256(credential.node_token())).value(), endpoint));
    pools->remember(pool, endpoint);
    catalog.pool_seen(endpoint);
    context.config = &config;
    context.clock = &clock;
    context.entropy = &entropy;
    context.request_executor = &executor;
    context.client = &client;
    context.catalog = &catalog;
    context.pools = pools.get();
    context.names = names.get();
    context.jobs = &jobs;
    context.metrics = &metrics;
  }
  ~HeldPool() override { std::filesystem::remove_all(directory); }

  // Of the request whose URL holds `part`. REQUIRES: there is one.
  void answer(std::string_view part, base::Result<std::string> body) {
    const auto it = std::ranges::find_if(
        client.requests, [&](const auto& item) { return item.first.url.find(part) != std::string::npos; });
    ASSERT_NE(it, client.requests.end()) << part;
    auto done = std::move(it->second);
    client.requests.erase(it);
    if (!body) return done(base::fail(std::move(body).error()));
    done(net::Response{.status = 200, .headers = {}, .body = *std::move(body)});
  }

  const base::PoolId pool{"pool-a"};
  const std::string endpoint = "http://127.0.0.1:9";
  const std::filesystem::path directory = [] {
    std::string name = (std::filesystem::temp_directory_path() / "llorch-held-pool-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    return std::filesystem::path(name);
  }();
  base::ManualClock clock;
  base::SystemEntropy entropy;
  config::Config config;
  net::testing::InlineExecutor executor;
  net::testing::HeldTransport client;
  models::Catalog catalog{{.client = &client, .runtime = &executor, .clock = &clock}};
  std::unique_ptr<pool_access::PoolAccess> pools;
  std::unique_ptr<models::ModelNames> names =
      models::ModelNames::open({.file = {}, .configured = {}, .roots = {.directories = {"/models"}}, .clock = &clock})
          .value();
  JobDirectory jobs;
  http::Metrics metrics{{.engine_version = "test", .algorithm = "test"}};
  Context context;
};

}  // namespace llorch::orchestratord::http::testing
