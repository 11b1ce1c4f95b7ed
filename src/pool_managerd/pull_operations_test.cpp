#include "pool_managerd/pull_operations.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <mutex>
#include <utility>

#include "base/error_detail.h"
#include "net/testing/silent_exchange.h"
#include "pool_managerd/provisioner/testing/download_directory.h"

namespace llorch::pool_managerd {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

// Keeps its answer.
struct KeptAnswer final : net::testing::SilentExchange {
  bool respond(net::Response response) override {
    answer.set_value(std::move(response));
    return true;
  }
  bool respond_error(const base::Error& error) override {
    answer.set_value(base::fail(error));
    return true;
  }

  std::promise<base::Result<net::Response>> answer;
};

struct PullOperations : provisioner::DownloadDirectory {
  void fire_timers() {
    std::vector<std::function<void()>> due;
    {
      const std::lock_guard lock(mutex);
      due = std::exchange(timers, {});
    }
    for (const auto& timer : due) timer();
  }
  base::FileReads::Options reads(std::int64_t refuse_ms) {
    return {.at_once = 2,
            .refuse_ms = refuse_ms,
            .after =
                [this](std::int64_t, std::function<void()> fn) {
                  const std::lock_guard lock(mutex);
                  timers.push_back(std::move(fn));
                },
            .reason = "MODEL_BEING_READ"};
  }
  std::mutex mutex;
  std::vector<std::function<void()>> timers;
};

// Whoever is told to wait learns that it has begun all the same, and nobody holds the files of such a model meanwhile.
TEST_F(PullOperations, ARemovalThatHasBegun) {
  const std::string digest(64, 'a');
  fs::create_directories(dir_ / digest);
  const std::string model_ref = "file:" + (dir_ / digest / "m.gguf").string();
  std::ofstream(dir_ / digest / "m.gguf") << "tale";
  std::promise<void> begun, opens;
  const auto provisioner =
      provisioner::Provisioner::make({.cache = dir_,
                                      .clock = std::make_shared<base::SystemClock>(),
                                      .on_removed = [&begun, opened = opens.get_future().share()](const std::string&) {
                                        begun.set_value();
                                        opened.wait();
                                      }});
  base::FileReads files(reads(20'000));
  Removals removals;
  const auto staging = std::make_shared<staging::Staging>(staging::StagingOptions{
      .bytes_max = 1 << 20, .on_change = nullptr, .reads = std::make_shared<base::FileReads>(reads(0))});
  ASSERT_TRUE(staging->stage(model_ref, {{dir_ / digest / "m.gguf"}}));
  const auto order = staging->order("file:" + (dir_ / digest / "other.gguf").string());
  control_api::Operations operations;
  add_pull_operations(operations, {.provisioner = provisioner,
                                   .removals = &removals,
                                   .staging = staging,
                                   .catalog = nullptr,
                                   .packed = {},
                                   .files = &files,
                                   .on_main = [](const std::function<void()>& fn) { fn(); },
                                   .workers = [] { return std::vector<wire::WorkerInfo>(); }});
  const auto removal = std::make_shared<KeptAnswer>(), stage = std::make_shared<KeptAnswer>();
  operations.remove_model(digest, false, removal);
  begun.get_future().wait();
  EXPECT_TRUE(staging->list().empty());
  EXPECT_FALSE(*order) << "somebody looks for the parts of another model of the directory";
  operations.stage_model(model_ref, true, stage);
  const auto refused = stage->answer.get_future().get();
  ASSERT_FALSE(refused);
  EXPECT_TRUE(base::has_detail(refused.error(), "reason", "MODEL_BEING_READ"));
  EXPECT_NE(refused.error().message.find("being removed"), std::string::npos) << refused.error().message;
  fire_timers();
  const auto told = removal->answer.get_future().get();
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, ErrorCode::kPoolUnready);
  EXPECT_NE(told.error().message.find("may still happen"), std::string::npos) << told.error().message;
  opens.set_value();
  files.stop();
}

}  // namespace
}  // namespace llorch::pool_managerd
