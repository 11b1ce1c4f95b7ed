#include "orchestratord/http/blob_sender.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "orchestratord/http/testing/test_thread.h"

namespace llorch::orchestratord::http {
namespace {

// A client that takes what a test says.
class Downloader final : public net::Exchange {
 public:
  bool respond(net::Response) override { return false; }
  bool respond_error(const base::Error&) override { return false; }
  bool start_stream(int, net::http::Headers) override { return true; }
  bool write(std::string_view bytes) override {
    queued += bytes;
    queued_bytes_most = std::max(queued_bytes_most, queued.size());
    return true;
  }
  bool end() override { return ended = true; }
  void abort() override { aborted = true; }
  std::size_t queued_bytes() const override { return queued.size(); }
  std::uint64_t sent_bytes() const override { return taken.size(); }
  bool closed() const override { return aborted; }
  void on_drain(std::size_t low_water_bytes, std::function<void()> fn) override {
    low_bytes_ = low_water_bytes;
    drained_ = std::move(fn);
  }
  void on_close(std::function<void(net::CloseReason)>) override {}

  void take(std::size_t bytes) {
    bytes = std::min(bytes, queued.size());
    taken += queued.substr(0, bytes);
    queued.erase(0, bytes);
    if (drained_ && queued.size() <= low_bytes_) std::exchange(drained_, {})();
  }

  std::string queued, taken;
  std::size_t queued_bytes_most = 0;
  bool ended = false, aborted = false;

 private:
  std::size_t low_bytes_ = 0;
  std::function<void()> drained_;
};

class BlobSender : public testing::Test {
 protected:
  BlobSender() {
    char name[] = "/tmp/llorch-sender-XXXXXX";
    directory_ = ::mkdtemp(name);
    blobs_ = store::blobs::BlobStore::open({.directory = directory_, .tenant_bytes_max = 1 << 30, .clock = &clock_},
                                           entropy_)
                 .value();
    for (int i = 0; content_.size() < 3 << 20; ++i) content_ += std::to_string(i) + ",";
    EXPECT_TRUE(blobs_->create("a", {.kind = "file", .tenant_id = {}, .created_unix_ms = 0, .body = {}}, content_));
    config_.orchestratord.stream.slow_client_timeout_ms = 10'000;
    context_.config = &config_;
    context_.clock = &clock_;
    context_.files = &thread_;
    context_.blobs = blobs_.get();
  }
  ~BlobSender() override { std::filesystem::remove_all(directory_); }

  base::SystemEntropy entropy_;
  std::filesystem::path directory_;
  std::unique_ptr<store::blobs::BlobStore> blobs_;
  std::string content_;
  config::Config config_;
  base::ManualClock clock_;
  TestThread thread_{clock_};
  Context context_;
  std::shared_ptr<Downloader> client_ = std::make_shared<Downloader>();
};

TEST_F(BlobSender, AClientThatTakesNothingIsCutOff) {
  send_blobs(context_, {"a"}, "text/plain", client_);
  thread_.run_for(9'000);
  EXPECT_FALSE(client_->aborted);
  client_->take(1);
  thread_.run_for(9'000);
  EXPECT_FALSE(client_->aborted) << "a byte is progress";
  thread_.run_for(3'000);
  EXPECT_TRUE(client_->aborted);
  EXPECT_TRUE(thread_.idle());
  EXPECT_EQ(client_->queued_bytes_most, 256U << 10);
}

TEST_F(BlobSender, ASlowClientGetsAllOfIt) {
  send_blobs(context_, {"a", "a"}, "text/plain", client_);
  for (int i = 0; !client_->ended && i < 1000; ++i) {
    client_->take(50'000);
    thread_.run_for(9'000);
  }
  ASSERT_TRUE(client_->ended);
  client_->take(SIZE_MAX);
  EXPECT_EQ(client_->taken, content_ + content_);
  EXPECT_LE(client_->queued_bytes_most, 256U << 10);
  thread_.run_for(60'000);
  EXPECT_FALSE(client_->aborted) << "what has ended is the server's";
  EXPECT_TRUE(thread_.idle());
}

}  // namespace
}  // namespace llorch::orchestratord::http
