#include "orchestratord/models/collect.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::models {
namespace {

wire::NamedModel model(const std::string& name, std::int64_t used_unix_ms, std::int64_t size_bytes) {
  return {.model_id = name, .model_ref = "file:/" + name, .size_bytes = size_bytes, .used_unix_ms = used_unix_ms};
}

std::vector<std::string> collected(std::vector<wire::NamedModel> models, const wire::CatalogGcRequest& wanted,
                                   const std::string& kept = "") {
  std::vector<std::string> out;
  for (const auto& gone :
       to_collect(std::move(models), wanted, 1000, [&](const wire::NamedModel& m) { return m.model_id != kept; })) {
    out.push_back(gone.model_id);
  }
  return out;
}

using Names = std::vector<std::string>;

TEST(Collect, ByAge) {
  const std::vector<wire::NamedModel> models{model("new", 950, 1), model("old", 100, 1)};
  EXPECT_EQ(collected(models, {.unused_ms = 100}), Names{"old"});
  EXPECT_EQ(collected(models, {.unused_ms = 50}), (Names{"old", "new"}));
  EXPECT_EQ(collected(models, {.unused_ms = 901}), Names{});
  EXPECT_EQ(collected(models, {}), Names{});
}

TEST(Collect, ByteBound) {
  const std::vector<wire::NamedModel> models{model("c", 300, 30), model("a", 100, 10), model("b", 200, 20)};
  EXPECT_EQ(collected(models, {.bytes_max = 60}), Names{});
  EXPECT_EQ(collected(models, {.bytes_max = 59}), Names{"a"});
  EXPECT_EQ(collected(models, {.bytes_max = 31}), (Names{"a", "b"}));
  EXPECT_EQ(collected(models, {.bytes_max = 0}, "b"), (Names{"a", "c"}));
}

// A file goes with all of its names or with none.
TEST(Collect, NamesOfOneFile) {
  std::vector<wire::NamedModel> models{model("a", 100, 10), model("b", 900, 10)};
  models[1].model_ref = models[0].model_ref;
  EXPECT_EQ(collected(models, {.unused_ms = 500}), Names{});
  EXPECT_EQ(collected(models, {.unused_ms = 100}, "b"), Names{});
  EXPECT_EQ(collected(models, {.unused_ms = 100}), (Names{"a", "b"}));
  EXPECT_EQ(collected(models, {.bytes_max = 10}), Names{});
}

}  // namespace
}  // namespace llorch::orchestratord::models
