// Results and responses that are kept: what nobody can read, what another version submitted, and what is too long to be read. No job runs.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "net/http/error_response.h"
#include "net/testing/held_transport.h"
#include "orchestratord/http/openai/calls.h"
#include "orchestratord/http/openai/deferred/kept_responses.h"
#include "orchestratord/http/openai/deferred/kept_text.h"
#include "orchestratord/http/tasks/kept_facts.h"
#include "orchestratord/http/tasks/kept_results.h"
#include "orchestratord/http/tenancy.h"
#include "orchestratord/http/testing/idle_store.h"
#include "orchestratord/http/testing/noting_exchange.h"
#include "orchestratord/http/testing/test_thread.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::deferred {
namespace {

const net::http::Principal kOwner{net::http::Role::kTenant, "lab", "token:abc", "lab"};

// Has one job, whatever is asked for, and takes none.
class StoreOfOneJob final : public IdleStore {
 public:
  explicit StoreOfOneJob(store::JobRecord job) : job_(std::move(job)) {}

  void admit(store::Admission, Done) override { ADD_FAILURE() << "a second job"; }
  void find(base::JobId, Found done) override { done(job_); }
  void find_task(std::string, Found done) override { done(job_); }

 private:
  const store::JobRecord job_;
};

class Kept : public testing::Test {
 protected:
  Kept() {
    char name[] = "/tmp/llorch-kept-XXXXXX";
    directory_ = ::mkdtemp(name);
    blobs_ = store::blobs::BlobStore::open({.directory = directory_, .clock = &clock_}, entropy_).value();
    context_.config = &config_;
    context_.clock = &clock_;
    context_.entropy = &entropy_;
    context_.metrics = &metrics_;
    context_.files = &thread_;
    context_.blobs = blobs_.get();
    context_.stopping = &stopping_;
  }
  ~Kept() override { std::filesystem::remove_all(directory_); }

  void limit_room(std::uint64_t bytes, std::uint64_t answer_bytes = 256ULL << 20) {
    blobs_.reset();
    blobs_ =
        store::blobs::BlobStore::open(
            {.directory = directory_, .tenant_bytes_max = bytes, .answer_bytes_max = answer_bytes, .clock = &clock_},
            entropy_)
            .value();
    context_.blobs = blobs_.get();
  }
  void keep(const std::string& id, std::string_view kind, std::string body, std::string_view content = {}) {
    ASSERT_TRUE(blobs_->create(id,
                               {.kind = std::string(kind),
                                .tenant_id = kOwner.account,
                                .created_unix_ms = clock_.now().unix_ms,
                                .body = std::move(body)},
                               content));
  }

  // That of the task lab:1, which waits for its job.
  void keep_result() {
    const wire::SubmitRequest request{.model = "m",
                                      .prompt = wire::TextOrTokens{.text = "p"},
                                      .task_id = "1",
                                      .result = wire::ResultRequest{.keep_ms = 1000}};
    boost::json::object facts{{"request", wire::encode(request)}, {"caller", tasks::to_json(kOwner)}};
    keep("result_" + uuid_of_name("llama-orch result of lab:1"), tasks::KeptResults::kKind,
         boost::json::serialize(facts));
  }

  base::SystemEntropy entropy_;
  std::filesystem::path directory_;
  config::Config config_;
  base::ManualClock clock_;
  std::atomic<bool> stopping_{false};
  Metrics metrics_{{.engine_version = {}, .algorithm = {}}};
  TestThread thread_{clock_};
  std::unique_ptr<store::blobs::BlobStore> blobs_;
  Context context_;
  tasks::Submitter submitter_{context_};
};

// Told, deleted and expired as every other.
TEST_F(Kept, AResultWhoseRequestNobodyCanReadHasAnEnd) {
  const auto id_of = [](const std::string& task_id) {
    return "result_" + uuid_of_name("llama-orch result of " + task_id);
  };
  for (const char* task_id : {"lab:1", "lab:2"}) {
    keep(id_of(task_id), tasks::KeptResults::kKind, R"({"request":"{\"of\":\"a later version\"}","caller":{}})");
  }
  tasks::KeptResults results(context_, submitter_);
  results.resume();
  const auto client = std::make_shared<NotingExchange>();
  results.answer("lab:1", client);
  EXPECT_FALSE(client->refused) << client->refused->message;
  EXPECT_EQ(client->status, 500);
  EXPECT_NE(client->body.find("UNSUPPORTED_FORMAT_VERSION"), std::string::npos) << client->body;
  EXPECT_TRUE(results.erase("lab:1"));
  EXPECT_EQ(blobs_->find(id_of("lab:1")), nullptr);
  const auto nothing_is_used = [](const store::blobs::Blob&) { return false; };
  blobs_->expire(nothing_is_used);
  EXPECT_NE(blobs_->find(id_of("lab:2")), nullptr);
  clock_.advance_ms(config_.orchestratord.files.retention_ms + 1);
  blobs_->expire(nothing_is_used);
  EXPECT_EQ(blobs_->find(id_of("lab:2")), nullptr);
}

// The process ended between the bytes of the result and their status.
TEST_F(Kept, AResultThatIsHereIsToldWithoutItsRequest) {
  const net::Response failed = net::http::error_response({base::ErrorCode::kTimeout, "too long", {}}, {});
  const std::string completed = R"({"job_id":"j","text":"Once"})";
  const auto answered = [&](const std::string& task_id, const std::string& content) {
    keep("result_" + uuid_of_name("llama-orch result of " + task_id), tasks::KeptResults::kKind,
         R"({"request":"{\"of\":\"a later version\"}","caller":{}})", content);
    tasks::KeptResults results(context_, submitter_);
    results.resume();
    auto client = std::make_shared<NotingExchange>();
    results.answer(task_id, client);
    EXPECT_FALSE(client->refused) << client->refused->message;
    EXPECT_EQ(client->body, content);
    return client->status;
  };
  EXPECT_EQ(answered("lab:1", completed), 200);
  EXPECT_EQ(answered("lab:2", failed.body), failed.status);
  EXPECT_NE(failed.status, 500);
}

// Its input is kept again with its output, and where there is no room for both it has an end all the same.
TEST_F(Kept, AResponseThatFindsNoRoomSaysSo) {
  const std::string request = R"({"model":"m","background":true,"input":")" + std::string(100'000, 'x') + "\"}";
  keep("resp_1", openai::KeptResponses::kKind,
       boost::json::serialize(boost::json::object{{"request", request},
                                                  {"caller", tasks::to_json(kOwner)},
                                                  {"task_id", "t"},
                                                  {"seed", "1"},
                                                  {"cancelled", true}}));
  limit_room(150'000, 10'000);
  openai::Conversations conversations(context_);
  openai::KeptResponses responses(context_, submitter_, conversations);
  responses.resume();
  const store::blobs::Blob* kept = blobs_->find("resp_1");
  ASSERT_NE(kept, nullptr);
  EXPECT_TRUE(kept->facts.expires_unix_ms) << "it has ended";
  EXPECT_LT(kept->content_bytes, 10'000U);
  EXPECT_NE(blobs_->read("resp_1", 0, 10'000).value().find("QUOTA_EXCEEDED"), std::string::npos);
}

TEST_F(Kept, AResponseWhoseRequestNobodyCanReadHasFailed) {
  const auto id_of = [](int n) { return fmt::format("resp_0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a{:02}", n); };
  for (int n = 0; n < 3; ++n) {
    keep(id_of(n), openai::KeptResponses::kKind,
         R"({"request":"{\"model\":\"m\",\"of\":\"a later version\"}","caller":{}})",
         n < 2 ? ""
               : openai::kept_text("[]", "data: {\"sequence_number\":0,\"response\":{\"status\":\"completed\"}}\n\n"));
  }
  openai::Conversations conversations(context_);
  openai::KeptResponses responses(context_, submitter_, conversations);
  responses.resume();
  thread_.run_for(1);
  const auto asked = [&](void (openai::KeptResponses::*what)(const net::Request&, const net::ExchangePtr&), int n) {
    net::Request request;
    request.peer.principal = kOwner;
    request.path_params["id"] = id_of(n);
    const auto client = std::make_shared<NotingExchange>();
    (responses.*what)(request, client);
    EXPECT_FALSE(client->refused) << client->refused->message;
    return boost::json::parse(client->body.empty() ? "{}" : client->body).as_object();
  };
  const boost::json::object failed = asked(&openai::KeptResponses::show, 0);
  EXPECT_EQ(tasks::text_of(failed, "id"), id_of(0));
  EXPECT_EQ(tasks::text_of(failed, "model"), "m");
  EXPECT_EQ(tasks::text_of(failed, "status"), "failed");
  EXPECT_EQ(tasks::text_of(failed.at("error").at("llorch").as_object(), "code"), "UNSUPPORTED_FORMAT_VERSION");
  asked(&openai::KeptResponses::remove, 0);
  EXPECT_EQ(blobs_->find(id_of(0)), nullptr);
  EXPECT_EQ(tasks::text_of(asked(&openai::KeptResponses::show, 2), "status"), "completed") << "its output was there";
  const auto nothing_is_used = [](const store::blobs::Blob&) { return false; };
  blobs_->expire(nothing_is_used);
  EXPECT_NE(blobs_->find(id_of(1)), nullptr);
  clock_.advance_ms(config_.orchestratord.files.responses_retention_ms + 1);
  blobs_->expire(nothing_is_used);
  EXPECT_EQ(blobs_->find(id_of(1)), nullptr);
}

// It may have read the request otherwise, and the job is the task's all the same.
TEST_F(Kept, AResultOfAJobThatAnotherVersionSubmittedIsThatOfTheJob) {
  StoreOfOneJob store({.job_id = base::JobId("the-job"),
                       .task_id = "lab:1",
                       .request_sha256 = "of another version",
                       .progress = {.status = wire::JobStatus::kFailed,
                                    .error = wire::error_body({base::ErrorCode::kTimeout, "too long", {}}, {})}});
  CorePort port([&port](core::Event event) {
    if (const auto* asked = std::get_if<core::QueryJob>(&event)) port.answer(core::AnswerQueryJob{asked->request, {}});
  });
  streams::StreamHub hub({.limits = {}, .clock = &clock_});
  net::testing::InlineExecutor request_executor;
  context_.store = &store;
  context_.core = &port;
  context_.hub = &hub;
  context_.request_executor = &request_executor;
  keep_result();
  tasks::KeptResults results(context_, submitter_);
  results.resume();
  thread_.run_for(1);
  const auto client = std::make_shared<NotingExchange>();
  results.answer("lab:1", client);
  EXPECT_FALSE(client->refused) << client->refused->message;
  EXPECT_NE(client->body.find(R"("code":"TIMEOUT")"), std::string::npos) << client->body;
}

// It may do so for long, as where a pool that has the model is gone for good.
TEST_F(Kept, AResultThatWaitsSaysForWhat) {
  struct SilentStore final : IdleStore {
    void find_task(std::string, Found done) override {
      done(base::fail(base::ErrorCode::kStoreUnavailable, "the database does not answer"));
    }
  } store;
  net::testing::InlineExecutor request_executor;
  context_.store = &store;
  context_.request_executor = &request_executor;
  keep_result();
  tasks::KeptResults results(context_, submitter_);
  results.resume();
  thread_.run_for(1);
  const auto client = std::make_shared<NotingExchange>();
  results.answer("lab:1", client);
  ASSERT_TRUE(client->refused);
  EXPECT_EQ(client->refused->code, base::ErrorCode::kConflict);
  EXPECT_NE(client->refused->message.find("the database does not answer"), std::string::npos)
      << client->refused->message;
}

// A request of a few bytes has much read, but not as much as its tenant may keep.
TEST_F(Kept, ResponsesThatARequestRefersToAreBoundedTogetherBeforeAnyIsRead) {
  config_.orchestratord.limits.request_bytes_max = 1024;
  openai::Conversations conversations(context_);
  openai::KeptResponses responses(context_, submitter_, conversations);
  const auto uuid = [](int n) { return fmt::format("0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a{:02}", n); };
  const std::string item = R"([{"role":"user","content":")" + std::string(12'000, 'x') + R"("}])";
  for (int n = 0; n < 3; ++n) {
    keep("resp_" + uuid(n), openai::KeptResponses::kKind, "{}", openai::kept_text(item, ""));
  }
  const auto refused = [&](int count) {
    std::string items;
    for (int n = 0; n < count; ++n) {
      items += fmt::format(R"({}{{"type":"item_reference","id":"msg_{}_in0"}})", n > 0 ? "," : "", uuid(n));
    }
    net::Request request;
    request.peer.principal = kOwner;
    request.body = R"({"model":"m","input":[)" + items + "]}";
    const auto client = std::make_shared<NotingExchange>();
    responses.insert_items(openai::ReferringRequest::read(request.body).value().value(), request, client,
                           [](const net::Request&) {});
    thread_.run_for(1);
    return client->refused;
  };
  const auto two = refused(2), three = refused(3);
  EXPECT_TRUE(!two || two->code != base::ErrorCode::kInvalidParams) << two->message;
  ASSERT_TRUE(three);
  EXPECT_EQ(three->code, base::ErrorCode::kInvalidParams) << three->message;
  EXPECT_NE(three->message.find("up to 32768 are read for a request"), std::string::npos) << three->message;
}

// Its request is among its facts, and whoever asks again and again, or has no room left, ends it all the same.
TEST_F(Kept, ACancelOfAResponseIsKeptOnceAndTakesNoRoom) {
  limit_room(150'000);
  TestThread request_executor(clock_);  // never runs, so that no job is admitted
  context_.request_executor = &request_executor;
  openai::Conversations conversations(context_);
  openai::KeptResponses responses(context_, submitter_, conversations);
  net::Request request;
  request.peer.principal = kOwner;
  request.body = R"({"model":"m","background":true,"input":")" + std::string(100'000, 'x') + "\"}";
  auto call = openai::decoder_of("/v1/responses")(request.body);
  ASSERT_TRUE(call) << call.error().message;
  responses.create(*std::move(call), request, std::make_shared<NotingExchange>());
  thread_.run_for(1);
  keep("other", "file", "", std::string(40'000, 'x'));
  ASSERT_FALSE(blobs_->check_room(kOwner.account, 10'000));
  const auto kept = blobs_->list(openai::KeptResponses::kKind);
  ASSERT_EQ(kept.size(), 1U);
  const auto bytes = [&] { return std::filesystem::file_size(directory_ / (kept[0]->id + ".blob")); };
  const std::uintmax_t before = bytes();
  request.path_params["id"] = kept[0]->id;
  for (int i = 0; i < 3; ++i) {
    const auto client = std::make_shared<NotingExchange>();
    responses.cancel(request, client);
    EXPECT_FALSE(client->refused) << client->refused->message;
    EXPECT_LT(bytes(), before + 100);
  }
  EXPECT_TRUE(tasks::flag_of(tasks::object_of(kept[0]->facts.body), "cancelled")) << "no later process runs it";
}

}  // namespace
}  // namespace llorch::orchestratord::http::deferred
