#include "orchestratord/http/catalog_models.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace llorch::orchestratord::http
