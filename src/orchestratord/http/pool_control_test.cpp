#include "orchestratord/http/pool_control.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/file_reads.h"
#include "orchestratord/http/testing/held_pool.h"
#include "orchestratord/http/testing/noting_exchange.h"

namespace llorch::orchestratord::http {
namespace {

using testing::HeldPool;

// No path is found before open(): an event holds it in the place of a mount that does not answer.
struct PoolControlTest : HeldPool {
  PoolControlTest() {
    context.core = &core;
    context.name_reads = {.of_names = &of_names, .of_paths = &of_paths};
    EXPECT_TRUE(names->put({.model_id = "tale", .source = "hf:org/tale", .model_ref = "file:/models/tale.gguf"}));
  }
  void hold(const std::string& ref) {
    for (base::FileReads* reads : {&of_names, &of_paths}) {
      const auto read = [is_open = is_open]() -> base::Result<std::string> {
        is_open.wait();
        return "";
      };
      reads->read<std::string>(ref, read, [](const base::Result<std::string>&) {});
    }
  }
  void open() { gate.set_value(); }

  std::promise<void> gate;
  const std::shared_future<void> is_open = gate.get_future().share();
  std::vector<core::PurgePool> purges;
  std::promise<void> purged[2];
  CorePort core{[this](core::Event event) {
    purges.push_back(std::get<core::PurgePool>(event));
    purged[purges.size() - 1].set_value();
  }};
  tasks::Submitter submitter{context};
  Preloads preloads{context, submitter};
  PoolControl control{context, preloads};
  const base::FileReads::Options options{
      .at_once = 2, .after = [](std::int64_t, const std::function<void()>&) {}, .reason = {}, .stop_wait_ms = 0};
  base::FileReads of_names{options}, of_paths{options};  // last: their threads use the others

  void purge(std::string body) {
    net::Request request;
    request.body = std::move(body);
    request.path_params = {{"id", "pool-a"}};
    control.purge(request, std::make_shared<NotingExchange>());
  }
};

TEST_F(PoolControlTest, APurgeByDigestOrNameLooksAtNoDisk) {
  hold("tale");
  purge(R"({"purge_models":["sha256:abc","tale"]})");
  ASSERT_EQ(purges.size(), 1U);
  EXPECT_EQ(purges.front().models, (std::vector<std::string>{"sha256:abc", "file:/models/tale.gguf"}));
  open();
}

TEST_F(PoolControlTest, APurgeByPathWaitsForNoOtherPath) {
  hold("file:/models/hung/a.gguf");
  purge(R"({"purge_models":["file:/models/hung/a.gguf"]})");
  purge(R"({"purge_models":["file:/models/b.gguf","tale"]})");
  purged[0].get_future().wait();
  ASSERT_EQ(purges.size(), 1U);
  EXPECT_EQ(purges.front().models, (std::vector<std::string>{"file:/models/b.gguf", "file:/models/tale.gguf"}));
  open();
  purged[1].get_future().wait();
  EXPECT_EQ(purges.back().models, (std::vector<std::string>{"file:/models/hung/a.gguf"}));
}

}  // namespace
}  // namespace llorch::orchestratord::http
