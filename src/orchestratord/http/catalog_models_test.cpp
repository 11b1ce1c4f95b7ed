#include "orchestratord/http/catalog_models.h"

#include <gtest/gtest.h>

#include "orchestratord/http/tasks/prompt.h"
#include "orchestratord/http/testing/held_pool.h"
#include "wire/json.h"

namespace llorch::orchestratord::http {
namespace {

using testing::HeldPool;

struct CatalogModelsTest : HeldPool {
  CatalogModels models{context};

  wire::NamedModel fetched(std::string model_id, std::string pool_id) const {
    return {.model_id = std::move(model_id),
            .source = "hf:org/tale",
            .pool_id = std::move(pool_id),
            .model_ref = "file:/models/abc/tale.gguf",
            .checksum = "sha256:abc",
            .created_unix_ms = 1};
  }
  // Bytes that went; -1: not yet.
  std::int64_t removed(const std::string& model_id) {
    std::int64_t bytes = -1;
    models.remove(model_id, [&](const base::Result<wire::CatalogRemoved>& done) {
      ASSERT_TRUE(done) << done.error().message;
      bytes = done->bytes_freed;
    });
    return bytes;
  }
};

// Nodes that are set up alike keep a model at the same path.
TEST_F(CatalogModelsTest, TheFilesOfAnotherPoolKeepNoneHere) {
  ASSERT_TRUE(names->put(fetched("a", pool.value)));
  ASSERT_TRUE(names->put(fetched("b", "pool-b")));
  EXPECT_EQ(removed("a"), -1) << "the pool is asked first";
  ASSERT_EQ(client.requests.size(), 1U);
  EXPECT_EQ(client.requests.front().first.method, "DELETE");
  EXPECT_TRUE(client.requests.front().first.url.ends_with("/v2/models/sha256:abc"));
}

TEST_F(CatalogModelsTest, AnotherNameOfTheSameFilesKeepsThem) {
  ASSERT_TRUE(names->put(fetched("a", pool.value)));
  ASSERT_TRUE(names->put(fetched("b", pool.value)));
  EXPECT_EQ(removed("a"), 0);
  EXPECT_TRUE(client.requests.empty());
  EXPECT_FALSE(names->has("a"));
}

// A name of certain bytes, and two pools that have a file in its place.
struct TwoPoolsTest : CatalogModelsTest {
  TwoPoolsTest() { catalog.pool_seen(other_endpoint); }

  void name(bool watched) {
    ASSERT_TRUE(names->put({.model_id = "tale",
                            .source = "file:/models/tale.gguf",
                            .pool_id = pool.value,
                            .model_ref = "file:/models/tale.gguf",
                            .checksum = "sha256:ours",
                            .watched = watched}));
  }
  base::Result<models::KnownModel> found_where(const std::string& digest, const std::string& digest_there) {
    base::Result<models::KnownModel> out = base::fail(base::ErrorCode::kInternal, "not told");
    tasks::find_model(context, "tale", tasks::Naming::kLook, {}, [&](base::Result<tasks::FoundModel> found) {
      out = found ? base::Result<models::KnownModel>(found->model) : base::fail(found.error());
    });
    describe(endpoint, digest);
    if (!client.requests.empty()) describe(other_endpoint, digest_there);
    return out;
  }
  void describe(const std::string& where, const std::string& digest) {
    wire::ModelFacts facts;
    facts.model_ref = "file:/models/tale.gguf";
    facts.digest = digest;
    facts.takes = wire::PromptForm::kText;
    answer(where, wire::encode(facts));
  }

  const std::string other_endpoint = "http://127.0.0.2:9";
};

TEST_F(TwoPoolsTest, ABrokenCopyHidesNoGoodOne) {
  name(false);
  const auto found = found_where("sha256:replaced", "sha256:ours");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->facts.digest, "sha256:ours");
}

TEST_F(TwoPoolsTest, BytesThatNobodyHasAreNotServed) {
  name(false);
  EXPECT_EQ(found_where("sha256:replaced", "sha256:other").error().code, base::ErrorCode::kUntrustedArtifact);
}

TEST_F(TwoPoolsTest, AWatchedFileThatNobodyHasIsLookedAtAnew) {
  name(true);
  EXPECT_EQ(found_where("sha256:replaced", "sha256:other").error().code, base::ErrorCode::kPoolUnready);
}

}  // namespace
}  // namespace llorch::orchestratord::http
