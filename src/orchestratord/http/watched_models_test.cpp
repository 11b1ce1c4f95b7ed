#include "orchestratord/http/watched_models.h"

#include <gtest/gtest.h>

#include <utility>

#include "orchestratord/http/testing/held_pool.h"
#include "wire/json.h"

namespace llorch::orchestratord::http {
namespace {

using testing::HeldPool;

struct WatchedModelsTest : HeldPool {
  CatalogModels catalog_models{context};
  WatchedModels watched{context, catalog_models};

  static wire::WatchedModel file(int n) {
    const std::string name = "m" + std::to_string(n);
    return {.model_id = name, .model_ref = "file:/models/" + name + ".gguf", .stamp = "1"};
  }
  std::string asked() const {
    const auto url = net::http::parse_url(client.requests.front().first.url).value();
    for (int n = 0; n < 1000; ++n) {
      if (url.target.find(net::http::percent_encode(file(n).model_ref) + "&") != std::string::npos)
        return file(n).model_ref;
    }
    return "";
  }
  // As the pool says what it is asked for.
  void describe(const std::string& model_ref) {
    wire::ModelFacts facts;
    facts.model_ref = model_ref;
    facts.digest = "sha256:of-the-node";
    facts.takes = wire::PromptForm::kText;
    answer("describe?ref=" + net::http::percent_encode(model_ref), wire::encode(facts));
  }
};

// A node that answers late does not take what an operator has named meanwhile.
TEST_F(WatchedModelsTest, ANameThatWasGivenMeanwhileStays) {
  watched.seen(pool, {file(1)});
  ASSERT_EQ(client.requests.size(), 1U);
  ASSERT_TRUE(names->put({.model_id = "m1", .source = "hf:org/m1", .model_ref = "file:/models/own.gguf"}));
  describe(file(1).model_ref);
  EXPECT_EQ(names->find("m1")->source, "hf:org/m1");
  EXPECT_EQ(names->find("m1")->checksum, "");
  watched.seen(pool, {file(1)});
  EXPECT_TRUE(client.requests.empty());
}

// Each is a question to every pool, which a node need not answer: so many at once, and the others behind them.
TEST_F(WatchedModelsTest, SoManyAreLookedAtAtOnce) {
  std::vector<wire::WatchedModel> files;
  for (int n = 0; n < 40; ++n) files.push_back(file(n));
  watched.seen(pool, files);
  watched.seen(pool, files);
  EXPECT_EQ(client.requests.size(), 16U);
  watched.seen(base::PoolId("pool-b"), {file(100)});
  ASSERT_EQ(client.requests.size(), 17U) << "of another pool";
  describe(file(100).model_ref);
  int reports = 0;
  for (; names->named().size() < 41 && reports < 10; ++reports) {
    while (!client.requests.empty()) describe(asked());
    watched.seen(pool, files);
  }
  EXPECT_EQ(reports, 3);
}

// Those that cannot be looked at for long do not keep the others from it.
TEST_F(WatchedModelsTest, TheNextReportBringsTheOthersFirst) {
  std::vector<wire::WatchedModel> files;
  for (int n = 0; n < 24; ++n) files.push_back(file(n));
  watched.seen(pool, files);
  while (!client.requests.empty()) answer("describe", base::fail(base::ErrorCode::kPoolUnready, "not yet"));
  watched.seen(pool, files);
  for (int n = 16; n < 24; ++n) describe(file(n).model_ref);
  EXPECT_EQ(names->named().size(), 8U);
}

}  // namespace
}  // namespace llorch::orchestratord::http
