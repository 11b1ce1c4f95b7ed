// The real pool-managerd and files of models: what it tells of them, and disks that do not answer.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <map>

#include "engine/io/model_digest.h"
#include "pool_managerd/testing/daemon_fixture.h"

namespace llorch::pool_managerd {
namespace {

// A digest that a worker tells is read, not believed: one that is not so ends the worker and poisons nothing.
TEST_F(DaemonTest, ADigestIsReadNotBelieved) {
  NEEDS_MODEL();
  run();
  EXPECT_EQ(start("worker-liar", model_ref()).status, 202);
  EXPECT_EQ(expect_gone("worker-liar").error_code, "WORKER_RESET");
  start_ready("worker-next");
  EXPECT_EQ(worker("worker-next")->model_digest, "sha256:" + engine::io::model_digest(demo_model()).value())
      << "the fake worker repeats what it is told";
  fs::copy_file(demo_model(), directory / "models/copy.gguf");
  EXPECT_EQ(start("worker-hasher", model_ref("copy.gguf")).status, 202);
  EXPECT_TRUE(eventually(
      [&] { return content(directory / "state/model_digests.json").find("copy.gguf") != std::string::npos; }));
  EXPECT_EQ(worker("worker-hasher")->status, WorkerStatus::kReady) << "what it told is so";
}

TEST_F(DaemonTest, DescribesModels) {
  NEEDS_MODEL();
  run();
  start_ready("worker-early");
  EXPECT_EQ(worker("worker-early")->model_digest, "sha256:00") << "not hashed yet: the worker gets no digest";
  const auto response = call("GET", "/v2/models/describe?slots=2&ref=" + net::http::percent_encode(model_ref()));
  const auto facts = wire::decode<wire::ModelFacts>(response.body);
  ASSERT_TRUE(facts) << response.body;
  EXPECT_EQ(facts->architecture, "llama");
  EXPECT_EQ(facts->quant_kind, "Q8_0");
  EXPECT_EQ(facts->slots, 2);
  EXPECT_EQ(facts->size_bytes, static_cast<std::int64_t>(fs::file_size(demo_model())));
  EXPECT_GT(facts->memory_bytes, 0);
  const auto tokenizer = call("GET", "/v2/models/" + facts->digest + "/tokenizer");
  EXPECT_EQ(tokenizer.status, 200);
  EXPECT_EQ(tokenizer.body.substr(0, 4), "LLTK");
  start_ready("worker-late");
  EXPECT_EQ(worker("worker-late")->model_digest, facts->digest) << "known by now: the worker need not hash";
}

// A file is opened that a mount holds which does not answer: it holds what names it, and not the end of the daemon.
TEST_F(DaemonTest, AFileThatDoesNotAnswerHoldsItsOwnModelAlone) {
  NEEDS_MODEL();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
#endif
  const fs::path hung = directory / "models/hung.gguf", gate = directory / "gate";
  fs::copy_file(demo_model(), hung);
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  const std::map<std::string, std::string> environment{
      {"LD_PRELOAD", LLORCH_HELD_FILE}, {"LLORCH_HELD_FILE", hung.string()}, {"LLORCH_HELD_GATE", gate.string()}};
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  run();
  for (const auto& [name, value] : environment) unsetenv(name.c_str());
  const auto ask = [&](const std::string& method, const std::string& path, const std::string& body) {
    net::ClientRequest request;
    request.method = method;
    request.url = net::http::base_url("127.0.0.1", port()) + path;
    request.body = body;
    client.request(std::move(request), [](const base::Result<net::Response>&) {});
  };
  ask("POST", "/v2/workers/start",
      wire::encode(wire::StartWorkerRequest{.worker_id = "w", .model_ref = model_ref("hung.gguf"), .gpu_id = "cpu"}));
  const int held = open(gate.c_str(), O_WRONLY | O_CLOEXEC);  // returns when somebody waits for it
  ASSERT_GE(held, 0);
  ask("GET", "/v2/models/describe?ref=" + net::http::percent_encode(model_ref("hung.gguf")), "");
  EXPECT_EQ(call("GET", "/v2/models/describe?ref=" + net::http::percent_encode(model_ref())).status, 200);
  start_ready("worker-a");
  kill(daemon->pid, SIGTERM);
  EXPECT_EQ(daemon->wait_exit(), 0);
  close(held);
}

// The disk of the model cache stops answering while a model is removed: no worker of it starts, and everything else goes on.
TEST_F(DaemonTest, ARemovalThatDoesNotEndHoldsItsOwnModelAlone) {
  NEEDS_MODEL();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
#endif
  const std::string digest(64, 'a');
  const fs::path cached = directory / "cache" / digest, gate = directory / "gate";
  fs::create_directories(cached);
  fs::copy_file(demo_model(), cached / "demo.gguf");
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  const std::map<std::string, std::string> environment{
      {"LD_PRELOAD", LLORCH_HELD_FILE}, {"LLORCH_HELD_FILE", cached.string()}, {"LLORCH_HELD_GATE", gate.string()}};
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  run({"--set", "models.cache_dir=" + (directory / "cache").string()});
  for (const auto& [name, value] : environment) unsetenv(name.c_str());
  net::ClientRequest removal;
  removal.method = "DELETE";
  removal.url = net::http::base_url("127.0.0.1", port()) + "/v2/models/" + digest;
  client.request(std::move(removal), [](const base::Result<net::Response>&) {});
  const int held = open(gate.c_str(), O_WRONLY | O_CLOEXEC);  // returns when somebody waits for it
  ASSERT_GE(held, 0);
  const auto refused = start("w", "file:" + (cached / "demo.gguf").string());
  ASSERT_EQ(refused.status, 503) << refused.body;
  EXPECT_NE(refused.body.find("MODEL_BEING_READ"), std::string::npos) << refused.body;
  start_ready("worker-a");
  kill(daemon->pid, SIGTERM);
  EXPECT_EQ(daemon->wait_exit(), 0);
  close(held);
}

}  // namespace
}  // namespace llorch::pool_managerd
