// Batches of both APIs on a disk that is full, or gives back other bytes, or is read by the next process. Every request has its
// answer already, or gets none: no job runs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <fstream>
#include <vector>

#include "base/file.h"
#include "base/testing/full_disk.h"
#include "orchestratord/http/anthropic/deferred/message_batches.h"
#include "orchestratord/http/deferred/batch_facts.h"
#include "orchestratord/http/openai/deferred/batches.h"
#include "orchestratord/http/openai/deferred/files.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "orchestratord/http/testing/noting_exchange.h"
#include "orchestratord/http/testing/test_thread.h"

namespace llorch::orchestratord::http::deferred {
namespace {

namespace json = boost::json;
using tasks::object_of;
using tasks::text_of;

const net::http::Principal kLab{net::http::Role::kTenant, "lab", "token:abc", "lab"};

class BatchesOfBothApis : public testing::Test {
 protected:
  // What a process makes when it starts.
  struct Process {
    explicit Process(const Context& context) : submitter(context), runner(context, submitter) {}
    tasks::Submitter submitter;
    BatchRunner runner;
  };

  BatchesOfBothApis() {
    char name[] = "/tmp/llorch-batches-XXXXXX";
    directory_ = ::mkdtemp(name);
    start();
  }
  ~BatchesOfBothApis() override { std::filesystem::remove_all(directory_); }

  void start(std::uint64_t tenant_bytes_max = 1 << 20) {
    thread_.emplace(clock_);
    blobs_.reset();
    blobs_ = store::blobs::BlobStore::open(
                 {.directory = directory_, .tenant_bytes_max = tenant_bytes_max, .clock = &clock_}, entropy_)
                 .value();
    context_.config = &config_;
    context_.live_config = &live_config_;
    context_.clock = &clock_;
    context_.entropy = &entropy_;
    context_.metrics = &metrics_;
    context_.files = &*thread_;
    context_.blobs = blobs_.get();
    context_.stopping = &stopping_;
    process_.emplace(context_);
    openai_.emplace(context_, process_->runner);
    anthropic_.emplace(context_, process_->runner);
    openai_->remove_orphans();
    anthropic_->remove_orphans();
    process_->runner.resume();
  }

  void keep(const std::string& id, std::string_view kind, std::string_view content, bool hidden = false) {
    ASSERT_TRUE(blobs_->create(id,
                               {.kind = std::string(kind),
                                .tenant_id = kLab.account,
                                .created_unix_ms = clock_.now().unix_ms,
                                .body = openai::encode_file({"f.jsonl", hidden ? "batch_output" : "batch", hidden})},
                               content));
  }
  static std::string line(int n) {
    return "{\"custom_id\":\"line-" + std::to_string(n) +
           R"(","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"p"}})" + "\n";
  }
  // Of an OpenAI batch, as long as 100 bytes and a bit.
  static std::string answer(int n, int status) {
    return "{\"custom_id\":\"line-" + std::to_string(n) + "\",\"response\":{\"status_code\":" + std::to_string(status) +
           ",\"body\":\"" + std::string(100, 'x') + "\"},\"error\":null}\n";
  }
  // One of the OpenAI API that runs, with so many lines. Its files are there.
  void begin_batch(const std::string& id, int lines, std::string_view status = "in_progress") {
    json::object facts = fresh_facts(kLab, lines, clock_.now().unix_ms / 1000);
    set_status(facts, status, clock_.now().unix_ms / 1000);
    facts["metadata"] = {{"about", std::string(16'000, 'x')}};
    facts["endpoint"] = "/v1/completions";
    facts["input_file_id"] = id + "-in";
    facts["output_blob"] = id + "-out";
    facts["error_blob"] = id + "-err";
    for (const char* member : {"output_file_id", "error_file_id", "errors"}) facts[member] = nullptr;
    ASSERT_TRUE(process_->runner.create(*openai_, id, facts));
  }
  void keep_files(const std::string& id, int lines) {
    std::string input;
    for (int n = 0; n < lines; ++n) input += line(n);
    keep(id + "-in", openai::Files::kKind, input);
    keep(id + "-out", openai::Files::kKind, "", true);
    keep(id + "-err", openai::Files::kKind, "", true);
  }
  json::object facts_of(const std::string& id) const { return object_of(blobs_->find(id)->facts.body); }
  std::string status(const std::string& id) const { return status_of(facts_of(id)); }
  std::string error_of(const std::string& id) const {
    const json::value errors = facts_of(id).at("errors");
    return errors.is_null() ? "" : std::string(errors.at_pointer("/data/0/code").as_string());
  }
  // The disk gives back another byte, so far from the end of the blob's file.
  void damage(const std::string& id, std::size_t from_end) const {
    const std::filesystem::path path = directory_ / (id + ".blob");
    std::string bytes = base::read_file(path, 1 << 20).value();
    bytes.at(bytes.size() - from_end) ^= 1;
    std::ofstream(path, std::ios::binary) << bytes;
  }

  base::SystemEntropy entropy_;
  std::filesystem::path directory_;
  config::Config config_;
  LiveConfig live_config_{config_};
  base::ManualClock clock_;
  std::atomic<bool> stopping_{false};
  Metrics metrics_{{.engine_version = {}, .algorithm = {}}};
  std::optional<TestThread> thread_;
  std::unique_ptr<store::blobs::BlobStore> blobs_;
  Context context_;
  std::optional<Process> process_;
  std::optional<openai::Batches> openai_;
  std::optional<anthropic::MessageBatches> anthropic_;
};

// Nothing is taken from a batch before its end is on the disk.
TEST_F(BatchesOfBothApis, OneThatCannotEndOnAFullDiskEndsInTheNextProcess) {
  for (const bool good : {true, false}) {
    const std::string id = good ? "batch-good" : "batch-bad";
    keep_files(id, 20);
    std::string answers;
    for (int n = 0; n < 20; ++n) answers += answer(n, good ? 200 : 400);
    ASSERT_TRUE(blobs_->append(id + (good ? "-out" : "-err"), answers));
    begin_batch(id, 20);
    {
      const base::testing::FileSizeLimit limit(base::read_file(directory_ / "keys", 1 << 20).value().size());
      thread_->run_for(3000);
      EXPECT_EQ(status(id), "in_progress");
    }
    start();
    thread_->run_for(3000);
    EXPECT_EQ(status(id), "completed");
    EXPECT_EQ(text_of(facts_of(id), "output_file_id"), good ? id + "-out" : "");
    EXPECT_EQ(text_of(facts_of(id), "error_file_id"), good ? "" : id + "-err");
    EXPECT_EQ(blobs_->find(id + "-out") != nullptr, good);
    EXPECT_EQ(blobs_->find(id + "-err") != nullptr, !good);
  }
}

// A crash came between the end of the batch and the end of the file that nobody is shown.
TEST_F(BatchesOfBothApis, AFileWithoutALineEndsWithItsBatch) {
  keep_files("batch", 1);
  json::object facts = fresh_facts(kLab, 1, 0);
  set_status(facts, "completed", 1);
  for (const char* member : {"output_blob", "output_file_id"}) facts[member] = "batch-out";
  facts["error_blob"] = "batch-err";
  facts["error_file_id"] = nullptr;
  ASSERT_TRUE(process_->runner.create(*openai_, "batch", facts));
  start();
  EXPECT_NE(blobs_->find("batch-out"), nullptr);
  EXPECT_EQ(blobs_->find("batch-err"), nullptr);
}

TEST_F(BatchesOfBothApis, OneWhoseAnswersAreLostFailsAndTheNextOneRuns) {
  keep_files("damaged", 3);
  for (int n = 0; n < 2; ++n) ASSERT_TRUE(blobs_->append("damaged-out", answer(n, 200)));
  damage("damaged-out", 300);  // within the first of two answers
  keep_files("gone", 2);
  ASSERT_TRUE(blobs_->append("gone-err", answer(0, 400)));
  ASSERT_TRUE(blobs_->erase("gone-out"));
  keep_files("gone-but-empty", 1);
  ASSERT_TRUE(blobs_->append("gone-but-empty-err", answer(0, 400)));
  ASSERT_TRUE(blobs_->erase("gone-but-empty-out"));
  begin_batch("damaged", 3);
  begin_batch("gone", 2);
  begin_batch("gone-but-empty", 1);
  thread_->run_for(10'000);
  for (const char* id : {"damaged", "gone"}) {
    EXPECT_EQ(status(id), "failed") << id;
    EXPECT_EQ(error_of(id), "results_damaged") << id;
  }
  EXPECT_EQ(text_of(facts_of("damaged"), "output_file_id"), "damaged-out") << "what is left of it can be read";
  EXPECT_EQ(text_of(facts_of("gone"), "error_file_id"), "gone-err");
  EXPECT_EQ(status("gone-but-empty"), "completed") << "every line has its answer";
  EXPECT_EQ(error_of("gone-but-empty"), "");
}

TEST_F(BatchesOfBothApis, OneWhoseInputIsDamagedFails) {
  keep_files("batch", 2);
  damage("batch-in", 50);
  begin_batch("batch", 2);
  const std::string line = R"({"custom_id":"ask-1","params":{}})";
  keep("messages-requests", "message_batch_requests", line + "\n");
  keep("messages-results", "message_batch_results", "");
  damage("messages-requests", 20);
  json::object facts = fresh_facts(kLab, 1, 0);
  facts["expires_at"] = 0;  // it is over, and what has no answer is listed
  ASSERT_TRUE(process_->runner.create(*anthropic_, "messages", facts));
  thread_->run_for(10'000);
  EXPECT_EQ(status("batch"), "failed");
  EXPECT_EQ(error_of("batch"), "input_file_missing");
  EXPECT_EQ(status("messages"), "failed");
}

// Whoever asks again and again fills no disk, and whoever has no room left may end what he has.
TEST_F(BatchesOfBothApis, ACancelIsKeptOnceAndNeedsNoRoom) {
  for (const char* id : {"runs", "waits"}) {
    keep_files(id, 2);
    begin_batch(id, 2, "validating");
  }
  start(1);
  thread_->run_for(3000);
  ASSERT_EQ(status("runs"), "validating") << "it waits for room";
  for (const char* id : {"waits", "runs"}) {
    std::vector<std::uintmax_t> bytes;
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(process_->runner.cancel(*blobs_->find(id)));
      bytes.push_back(std::filesystem::file_size(directory_ / (std::string(id) + ".blob")));
    }
    EXPECT_EQ(status(id), "cancelling");
    EXPECT_EQ(bytes[2], bytes[0]) << id;
  }
  thread_->run_for(10'000);
  EXPECT_EQ(status("runs"), "cancelled");
  EXPECT_EQ(status("waits"), "cancelled");
}

// What is kept of a batch that begins is as long as what it was made of.
TEST_F(BatchesOfBothApis, OneBeginsWhereThereIsRoomForItsBeginning) {
  keep_files("batch", 1);
  begin_batch("batch", 1, "validating");
  std::uint64_t held = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    if (file.path().extension() == ".blob") held += std::max<std::uint64_t>(4096, file.file_size());
  }
  start(held + 8000);
  thread_->run_for(3000);
  EXPECT_EQ(status("batch"), "validating");
}

// Its answers are kept beside what its owner has: as many lines begin as there is room for answers as long as its longest.
TEST_F(BatchesOfBothApis, OneBeginsNoMoreLinesThanThereIsRoomForTheirAnswers) {
  std::string input = line(0);
  for (int n = 1; n < 200; ++n) {  // each is refused, so that no job runs
    input += "{\"custom_id\":\"line-" + std::to_string(n) +
             R"(","method":"POST","url":"/v1/completions","body":{"model":7}})" + "\n";
  }
  keep("batch-in", openai::Files::kKind, input);
  keep("batch-out", openai::Files::kKind, "", true);
  keep("batch-err", openai::Files::kKind, "", true);
  std::string longest = answer(0, 200);
  longest.insert(longest.find('x'), 3000, 'x');
  ASSERT_TRUE(blobs_->append("batch-out", longest));
  begin_batch("batch", 200);
  const auto held = [&] {
    std::uint64_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(directory_)) {
      if (file.path().extension() == ".blob") bytes += std::max<std::uint64_t>(4096, file.file_size());
    }
    return bytes;
  };
  const std::uint64_t max = held() + 6000;
  start(max);
  thread_->run_for(10'000);
  EXPECT_EQ(status("batch"), "in_progress");
  EXPECT_GT(blobs_->find("batch-err")->content_bytes, 0U);
  EXPECT_LE(held(), max);
  start(max + (1 << 20));
  thread_->run_for(10'000);
  EXPECT_EQ(status("batch"), "completed") << "there is room now";
}

// There is room for the first of its files, and then for both of them.
TEST_F(BatchesOfBothApis, OneThatIsRefusedLeavesNoFile) {
  keep("input", openai::Files::kKind, line(0));
  net::Request request;
  request.peer.principal = kLab;
  request.body = R"({"input_file_id":"input","endpoint":"/v1/completions","completion_window":"24h"})";
  const auto create = [&](std::uint64_t blobs) {
    start(blobs * 4096);
    const auto client = std::make_shared<NotingExchange>();
    openai_->create(request, client);
    return client;
  };
  for (const std::uint64_t blobs : {2, 3}) {
    const auto client = create(blobs);
    ASSERT_TRUE(client->refused);
    EXPECT_EQ(client->refused->code, base::ErrorCode::kQuotaExceeded);
    EXPECT_EQ(blobs_->list(openai::Files::kKind).size(), 1U) << "the input";
  }
  EXPECT_EQ(create(4)->status, 200);
}

}  // namespace
}  // namespace llorch::orchestratord::http::deferred
