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

}  // namespace
}  // namespace llorch::orchestratord::http
