#include "orchestratord/http/watched_models.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "orchestratord/http/tasks/prompt.h"
#include "orchestratord/http/testing/held_pool.h"
#include "wire/json.h"

namespace llorch::orchestratord::http {
namespace {

using testing::HeldPool;

struct WatchedModelsTest : HeldPool {
  CatalogModels catalog_models{context};
  WatchedModels watched{context, catalog_models};
  const base::PoolId other_pool{"pool-b"};

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

// The name is the new file's once its pool has said so, whatever pools do not answer.
TEST_F(WatchedModelsTest, AReplacedFileIsWaitedForBesideASilentPool) {
  models::Catalog asks({.client = &client, .runtime = &executor, .clock = &clock, .pools_besides = [](const auto&) {
                          return std::vector<std::string>{"pool-dead"};
                        }});
  asks.pool_seen(endpoint);
  context.catalog = &asks;
  watched.seen(pool, {file(1)});
  describe(file(1).model_ref);
  std::optional<base::Error> refusal;
  tasks::find_model(context, "m1", tasks::Naming::kUse, {}, [&](base::Result<tasks::FoundModel> found) {
    if (!found) refusal = found.error();
  });
  wire::ModelFacts replaced;
  replaced.model_ref = file(1).model_ref;
  replaced.digest = "sha256:of-another-file";
  replaced.takes = wire::PromptForm::kText;
  answer("describe", wire::encode(replaced));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, base::ErrorCode::kPoolUnready);
  EXPECT_NE(refusal->message.find("was replaced"), std::string::npos) << refusal->message;
}

TEST_F(WatchedModelsTest, AFileThatComesAndGoesDoesNotFillTheLog) {
  int lines = 0;
  base::capture_log_lines([&](std::string_view line) { lines += line.find("watched_model_gone") != line.npos; });
  for (int n = 0; n < 30; ++n) {
    watched.seen(pool, {file(n)});
    describe(file(n).model_ref);
    ASSERT_TRUE(names->find("m" + std::to_string(n)));
    watched.seen(pool, {});
    ASSERT_FALSE(names->find("m" + std::to_string(n)));
  }
  base::capture_log_lines({});
  EXPECT_EQ(lines, 10);
}

// Each is a question to every pool, which a node need not answer: so many at once, and the others behind them.
TEST_F(WatchedModelsTest, SoManyAreLookedAtAtOnce) {
  std::vector<wire::WatchedModel> files;
  for (int n = 0; n < 40; ++n) files.push_back(file(n));
  watched.seen(pool, files);
  watched.seen(pool, files);
  EXPECT_EQ(client.requests.size(), 16U);
  ASSERT_TRUE(pools->pair(other_pool));
  watched.seen(other_pool, {file(100)});
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

// A pool that has just started, or that cannot read a directory, knows of no model; what the operator has set of its models stays.
TEST_F(WatchedModelsTest, WhatIsNotKnownKeepsItsName) {
  watched.seen(pool, {file(1)});
  describe(file(1).model_ref);
  ASSERT_TRUE(names->change("m1", [](wire::NamedModel& model) { model.pinned = true; }));
  watched.seen(pool, {{.model_id = "models", .model_ref = "file:/models", .stamp = ""}});
  wire::WatchedModel unread = file(1);
  unread.stamp = "";
  watched.seen(pool, {unread});
  EXPECT_TRUE(client.requests.empty()) << "there is nothing to ask of it";
  ASSERT_TRUE(names->find("m1"));
  EXPECT_TRUE(names->find("m1")->pinned);
  watched.seen(pool, {{.model_id = "mod", .model_ref = "file:/mod", .stamp = ""}});
  EXPECT_FALSE(names->find("m1")) << "another directory";
}

TEST_F(WatchedModelsTest, ANameIsGivenOnceItIsFree) {
  ASSERT_TRUE(names->put({.model_id = "m1", .source = "hf:org/m1", .model_ref = "file:/models/own.gguf"}));
  for (int i = 0; i < 2; ++i) watched.seen(pool, {file(1)});
  EXPECT_TRUE(client.requests.empty());
  ASSERT_TRUE(names->erase("m1"));
  watched.seen(pool, {file(1)});
  ASSERT_EQ(client.requests.size(), 1U);
  describe(file(1).model_ref);
  EXPECT_EQ(names->find("m1")->source, file(1).model_ref);
}

// Nobody tells of them any more. Running jobs keep theirs until they have ended.
TEST_F(WatchedModelsTest, TheNamesOfAnUnpairedPoolGo) {
  watched.seen(pool, {file(1), file(2), file(3)});
  for (const int n : {1, 2}) describe(file(n).model_ref);
  const auto job = std::make_shared<LiveJobData>();
  job->record.job_id = base::JobId("job-1");
  job->record.model_ref = names->find("m1")->model_ref;
  jobs.add(job);
  ASSERT_TRUE(pools->unpair(pool).value());
  watched.unpaired(pool);
  ASSERT_TRUE(names->find("m1"));
  EXPECT_FALSE(names->find("m2"));
  describe(file(3).model_ref);  // it was asked before
  EXPECT_FALSE(names->find("m3"));
  watched.seen(pool, {file(4)});  // sent before
  EXPECT_TRUE(client.requests.empty());
  jobs.remove(job->record.job_id);
  ASSERT_TRUE(pools->pair(other_pool));
  watched.seen(other_pool, {});
  EXPECT_FALSE(names->find("m1"));
}

}  // namespace
}  // namespace llorch::orchestratord::http
