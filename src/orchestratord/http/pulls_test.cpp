#include "orchestratord/http/pulls.h"

#include <gtest/gtest.h>

#include "orchestratord/http/testing/held_pool.h"
#include "wire/json.h"

namespace llorch::orchestratord::http {
namespace {

using testing::HeldPool;

struct PullsTest : HeldPool {
  Pulls pulls{context};

  wire::NamedModel model(std::string wanted_checksum = "") const {
    return {.model_id = "tale",
            .source = "hf:org/tale",
            .wanted_checksum = std::move(wanted_checksum),
            .pool_id = pool.value,
            .created_unix_ms = 1};
  }
  void answer_done(const std::string& checksum) {
    answer("/v2/models/pull", wire::encode(wire::PullStatus{.pull_id = "p",
                                                            .state = wire::PullState::kDone,
                                                            .model_ref = "file:/models/tale.gguf",
                                                            .checksum = checksum}));
  }
  std::string failure() const {
    const auto status = pulls.status("tale");
    return status ? status->error_code.value_or("") : "";
  }
};

// What the pool says it has fetched is what was asked for, or it is no model.
TEST_F(PullsTest, AnotherChecksumThanWasAskedForIsRefused) {
  ASSERT_TRUE(names->put(model("sha256:wanted")));
  pulls.begin("tale");
  answer_done("sha256:other");
  EXPECT_EQ(failure(), "UNTRUSTED_ARTIFACT");
  EXPECT_FALSE(names->has("tale"));

  ASSERT_TRUE(names->put(model("sha256:wanted")));
  pulls.begin("tale");
  answer_done("sha256:wanted");
  EXPECT_EQ(names->find("tale")->checksum, "sha256:wanted");

  // Fetched again: what it was before stays.
  pulls.begin("tale");
  answer_done("sha256:other");
  EXPECT_EQ(failure(), "UNTRUSTED_ARTIFACT");
  EXPECT_EQ(names->find("tale")->checksum, "sha256:wanted");
}

TEST_F(PullsTest, WhatWasFetchedBeforeHasItsChecksum) {
  ASSERT_TRUE(names->put(model()));
  pulls.begin("tale");
  answer_done("sha256:first");
  EXPECT_EQ(names->find("tale")->checksum, "sha256:first");
  pulls.begin("tale");
  answer_done("sha256:second");
  EXPECT_EQ(failure(), "UNTRUSTED_ARTIFACT");
  EXPECT_EQ(names->find("tale")->checksum, "sha256:first");
}

// A pool's refusal is as long as the pool likes; what is told of it can be read.
TEST_F(PullsTest, ARefusalWithoutMeasureIsCut) {
  ASSERT_TRUE(names->put(model()));
  pulls.begin("tale");
  client.answer(net::Response{.status = 400,
                              .headers = {},
                              .body = R"({"error":{"code":"INVALID_PARAMS","message":")" + std::string(1 << 20, 'x') +
                                      R"(","retriable":false,"correlation_id":""}})"});
  EXPECT_EQ(failure(), "INVALID_PARAMS");
  EXPECT_TRUE(wire::decode<wire::PullStatus>(wire::encode(*pulls.status("tale"))));
}

// A name that was removed and given again is not what a pool says of the model that had it before.
TEST_F(PullsTest, AnAnswerIsForTheModelThatItWasAskedFor) {
  ASSERT_TRUE(names->put(model()));
  pulls.begin("tale");
  pulls.cancel("tale");
  ASSERT_TRUE(names->erase("tale"));
  wire::NamedModel next = model();
  next.created_unix_ms = 2;
  ASSERT_TRUE(names->put(next));
  pulls.begin("tale");
  ASSERT_EQ(client.requests.size(), 2U);
  answer_done("sha256:of-the-first");
  EXPECT_EQ(names->find("tale")->model_ref, "");
  answer_done("sha256:of-the-second");
  EXPECT_EQ(names->find("tale")->checksum, "sha256:of-the-second");
}

// The pool answers with the id that ends it only after nobody wants it any more.
TEST_F(PullsTest, WhatIsCancelledBeforeThePoolHasAnsweredEndsThere) {
  const std::string fetching = wire::encode(wire::PullStatus{.pull_id = "p", .state = wire::PullState::kFetching});
  const auto remove_unanswered = [&] {
    ASSERT_TRUE(names->put(model()));
    pulls.begin("tale");
    pulls.cancel("tale");
    ASSERT_TRUE(names->erase("tale"));
    EXPECT_EQ(client.requests.size(), 1U);
  };
  remove_unanswered();
  answer("/v2/models/pull", fetching);
  ASSERT_EQ(client.requests.size(), 1U);
  EXPECT_EQ(client.requests.front().first.method, "DELETE");
  EXPECT_EQ(client.requests.front().first.url, endpoint + "/v2/models/pulls/p");
  answer("/v2/models/pulls/p", fetching);
  EXPECT_TRUE(client.requests.empty()) << "nobody asks how far it is";

  // One that another name waits for goes on.
  remove_unanswered();
  wire::NamedModel other = model();
  other.model_id = "other";
  ASSERT_TRUE(names->put(other));
  answer("/v2/models/pull", fetching);
  EXPECT_TRUE(client.requests.empty());
}

// A name that has its model waits for the pool's pull, too, while it is pulled anew.
TEST_F(PullsTest, APullThatAnotherNameIsPulledAnewByGoesOn) {
  wire::NamedModel other = model();
  other.model_id = "other";
  for (const wire::NamedModel& each : {model(), other}) {
    ASSERT_TRUE(names->put(each));
    pulls.begin(each.model_id);
    answer_done("sha256:first");
    ASSERT_EQ(names->find(each.model_id)->checksum, "sha256:first");
  }
  for (const char* name : {"tale", "other"}) {
    pulls.begin(name);
    answer("/v2/models/pull", wire::encode(wire::PullStatus{.pull_id = "p", .state = wire::PullState::kFetching}));
    client.requests.clear();  // how far it is
  }
  pulls.cancel("tale");
  ASSERT_TRUE(names->erase("tale"));
  EXPECT_TRUE(client.requests.empty());
  pulls.cancel("other");
  ASSERT_EQ(client.requests.size(), 1U);
  EXPECT_EQ(client.requests.front().first.method, "DELETE");
}

}  // namespace
}  // namespace llorch::orchestratord::http
