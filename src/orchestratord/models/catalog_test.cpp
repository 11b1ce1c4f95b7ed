#include "orchestratord/models/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "base/error_detail.h"
#include "base/log.h"
#include "net/server.h"
#include "text/test_vocabularies.h"
#include "wire/json.h"

namespace llorch::orchestratord::models {
namespace {

using base::ErrorCode;

class CatalogTest : public testing::Test {
 public:
  ~CatalogTest() override {
    kept_.clear();
    server_.stop(0);
    client_.reset();
    runtime_.stop();
    catalog_.reset();
  }

 protected:
  CatalogTest() {
    server_.route("GET", "/v2/models/describe", net::Scope::kPublic,
                  [this](const net::Request& request, const net::ExchangePtr& exchange) {
                    ++describes_;
                    correlations_ += request.correlation_id.value + " ";
                    query_ = std::string(request.query_param("ref").value_or("")) + " " +
                             std::string(request.query_param("kv_dtype").value_or(""));
                    if (const auto devices = request.query_param("devices")) query_ += " on " + std::string(*devices);
                    if (silent_) {
                      const std::lock_guard lock(kept_mutex_);
                      return kept_.push_back(exchange);
                    }
                    if (error_) return void(exchange->respond_error(*error_));
                    wire::ModelFacts facts;
                    facts.model_ref = std::string(request.query_param("ref").value_or(""));
                    facts.digest = digest_;
                    facts.context_length = 512;
                    facts.vocab_size = vocab_size_;
                    facts.devices = says_devices_;
                    exchange->respond(net::http::json_response(200, wire::encode(facts)));
                  });
    server_.route("GET", "/v2/models/{digest}/tokenizer", net::Scope::kPublic,
                  [this](const net::Request& request, const net::ExchangePtr& exchange) {
                    ++tokenizers_;
                    correlations_ += request.correlation_id.value + " ";
                    exchange->respond({200, {{"Content-Type", "application/octet-stream"}}, blob_});
                  });
    EXPECT_TRUE(server_.start());
    client_ = std::make_unique<net::Client>(runtime_);
    make_catalog({});
  }
  void make_catalog(CatalogOptions options, net::Executor* executor = nullptr) {
    options.client = client_.get();
    options.runtime = executor != nullptr ? executor : &executor_;
    options.clock = &clock_;
    options.stale_wait_ms = 60'000;  // as long as the machine takes
    options.token_at = [this](const std::string& endpoint) -> std::optional<std::string> {
      if (endpoint == stranger_) return std::nullopt;
      return endpoint == server_.url() ? kToken : std::string();  // the others need none
    };
    options.pools_besides = [this](const std::vector<std::string>& endpoints) {
      std::vector<std::string> out;
      for (const auto& [id, endpoint] : paired_) {
        if (std::ranges::find(endpoints, endpoint) == endpoints.end()) out.push_back(id);
      }
      return out;
    };
    options.devices_of = [this](const std::string& ref) { return ref == "file:/m.gguf" ? devices_ : 1; };
    catalog_ = std::make_unique<Catalog>(std::move(options));
  }
  base::Result<KnownModel> find(std::int64_t wait_ms = 60'000) { return find("file:/m.gguf", wait_ms); }
  base::Result<KnownModel> find(const std::string& model_ref, std::int64_t wait_ms, bool anew = false) {
    std::promise<base::Result<KnownModel>> done;
    const Catalog::Wanted wanted{model_ref, wait_ms, base::CorrelationId("corr-1"), anew};
    catalog_->find(wanted, [&](base::Result<KnownModel> r) { done.set_value(std::move(r)); });
    return done.get_future().get();
  }

  base::ManualClock clock_;
  net::IoRuntime runtime_;
  const std::string kToken = std::string(32, 'k');
  std::string stranger_;                                     // the endpoint that nobody is paired with
  std::vector<std::pair<std::string, std::string>> paired_;  // ids, endpoints
  static net::http::AuthRules server_auth(const std::string& token) {
    return {.credentials = {net::http::make_credential(token, net::http::Role::kOperator).value()}};
  }
  net::Server server_{runtime_, {.component = "test-pool", .auth = server_auth(kToken)}};
  net::RuntimeExecutor executor_{runtime_};
  std::unique_ptr<net::Client> client_;
  std::unique_ptr<Catalog> catalog_;
  std::atomic<int> describes_{0}, tokenizers_{0};
  std::string query_, correlations_;
  std::int64_t vocab_size_ = 0;
  std::int64_t devices_ = 1, says_devices_ = 1;  // asked for, answered
  std::string digest_ = "sha256:aa";
  std::string blob_ = text::serialize(text::byte_bpe_data({})).value();
  std::optional<base::Error> error_;
  std::atomic<bool> silent_{false};
  std::mutex kept_mutex_;
  std::vector<net::ExchangePtr> kept_;
};

// ORCH-3091#said: never hang; say what is missing.
TEST_F(CatalogTest, WithoutAPoolItSaysSo) {
  const auto result = find();
  EXPECT_EQ(result.error().code, ErrorCode::kPoolUnready);
}

// A pool registers moments after `llorch up` has ended.
TEST_F(CatalogTest, AQuestionWaitsForThePoolOfAStart) {
  std::promise<base::Result<KnownModel>> answer;
  catalog_->find({.model_ref = "file:/m.gguf", .wait_ms = 60'000},
                 [&](base::Result<KnownModel> found) { answer.set_value(std::move(found)); });
  catalog_->pool_seen(server_.url());
  const auto found = answer.get_future().get();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->facts.context_length, 512);
}

// Its worker would refuse it too, but only with the weights in memory.
TEST_F(CatalogTest, ATokenizerOfAnotherModelIsRefused) {
  vocab_size_ = 255;
  catalog_->pool_seen(server_.url());
  EXPECT_EQ(find().error().code, ErrorCode::kModelIncompatible);
}

TEST_F(CatalogTest, AsksOnceAndThenKnows) {
  catalog_->pool_seen(server_.url());
  catalog_->pool_seen(server_.url());
  EXPECT_FALSE(catalog_->known_facts("file:/m.gguf"));
  const auto first = find().value();
  EXPECT_EQ(catalog_->known_facts("file:/m.gguf")->digest, first.facts.digest);
  EXPECT_EQ(first.facts.context_length, 512);
  EXPECT_EQ(first.tokenizer->encode("ab").value().size(), 2u);
  EXPECT_EQ(query_, "file:/m.gguf f16");
  const auto second = find().value();
  EXPECT_EQ(second.tokenizer, first.tokenizer);
  EXPECT_EQ(describes_, 1);
  EXPECT_EQ(tokenizers_, 1);
}

// What is known is bounded: the models that nobody asked for the longest are forgotten, and so are their tokenizers.
TEST_F(CatalogTest, ForgetsWhatNobodyAsksFor) {
  make_catalog({.models_max = 2});
  catalog_->pool_seen(server_.url());
  const auto ask = [&](const std::string& name) {
    digest_ = "sha256:" + name;
    return find("file:/" + name, 60'000).value().tokenizer;
  };
  const std::weak_ptr<const text::Tokenizer> b = (ask("a"), ask("b"));
  const auto a = ask("a");
  ask("c");
  EXPECT_EQ(describes_, 3);
  EXPECT_TRUE(b.expired());
  EXPECT_EQ(ask("a"), a);
  EXPECT_EQ(describes_, 3);
  ask("b");
  EXPECT_EQ(describes_, 4);
  EXPECT_EQ(tokenizers_, 4);
}

TEST_F(CatalogTest, ForgetsLargeTokenizersSooner) {
  make_catalog({.tokenizer_bytes_max = static_cast<std::int64_t>(blob_.size())});
  catalog_->pool_seen(server_.url());
  const auto held = find("file:/a", 60'000).value();
  digest_ = "sha256:bb";
  ASSERT_TRUE(find("file:/b", 60'000));
  EXPECT_FALSE(held.tokenizer->encode("ab").value().empty()) << "who has it keeps it";
  digest_ = "sha256:aa";
  ASSERT_TRUE(find("file:/a", 60'000));
  EXPECT_EQ(describes_, 3);
}

// ORCH-1092, SYS-5.6.1: the request that brings a model up is known by its id in the pool and in the log.
TEST_F(CatalogTest, PassesTheCorrelationIdOn) {
  catalog_->pool_seen(server_.url());
  error_ = base::Error{ErrorCode::kCorruptFile, "not a model", {}};
  std::string log;
  base::capture_log_lines([&](std::string_view line) { log += line; });
  EXPECT_FALSE(find());
  base::capture_log_lines({});
  EXPECT_NE(log.find("\"correlation_id\":\"corr-1\""), std::string::npos) << log;
  EXPECT_NE(log.find("\"model_ref\":\"file:/m.gguf\""), std::string::npos) << log;
  error_.reset();
  ASSERT_TRUE(find());
  EXPECT_EQ(correlations_, "corr-1 corr-1 corr-1 ") << "described twice, its tokenizer once";
}

// ORCH-3052: what a worker needs is asked for as many devices as shall share the model.
TEST_F(CatalogTest, AsksForTheDevicesThatShareTheModel) {
  devices_ = says_devices_ = 2;
  catalog_->pool_seen(server_.url());
  EXPECT_TRUE(find());
  EXPECT_EQ(query_, "file:/m.gguf f16 on 2");
}

// Jobs of all nodes are placed by the answer of one: it does not choose over how many devices.
TEST_F(CatalogTest, APoolThatNamesOtherDevicesThanWereAskedForIsPassedOver) {
  says_devices_ = 2;
  catalog_->pool_seen(server_.url());
  EXPECT_EQ(find("file:/a", 60'000).error().code, ErrorCode::kPoolUnready);
  EXPECT_EQ(find("engine:x", 60'000).error().code, ErrorCode::kPoolUnready);
  devices_ = 3;
  EXPECT_EQ(find().error().code, ErrorCode::kPoolUnready);
}

// What it says is kept with the model and with each of its jobs.
TEST_F(CatalogTest, APoolThatDescribesAModelInLongTextsIsPassedOver) {
  digest_ = "sha256:" + std::string(1000, 'a');
  catalog_->pool_seen(server_.url());
  EXPECT_EQ(find().error().code, ErrorCode::kPoolUnready);
}

TEST_F(CatalogTest, AReplacedFileIsNoticed) {
  catalog_->pool_seen(server_.url());
  ASSERT_TRUE(find());
  digest_ = "sha256:bb";
  EXPECT_EQ(find()->facts.digest, "sha256:aa") << "a moment ago it was that";
  clock_.advance_ms(10'000);
  EXPECT_EQ(find()->facts.digest, "sha256:bb") << "or a job for it would end where its worker loads the new one";
  EXPECT_EQ(tokenizers_, 2);
}

TEST_F(CatalogTest, AFileThatNobodyCanLookAtNowIsWhatItWas) {
  catalog_->pool_seen(server_.url());
  ASSERT_TRUE(find());
  clock_.advance_ms(10'000);
  error_ = base::Error{ErrorCode::kPoolUnready, "busy", {}};
  EXPECT_TRUE(find()) << "what passes is no answer";
  EXPECT_EQ(describes_, 2);
  silent_ = true;
  EXPECT_TRUE(find(20)) << "which waits for the pool a little";
  while (describes_ < 3) std::this_thread::yield();
  clock_.advance_ms(60'000);
  EXPECT_TRUE(find()) << "and the next one not at all";
  EXPECT_EQ(describes_, 3);
  catalog_->pool_lost(server_.url());
  EXPECT_TRUE(find());
}

TEST_F(CatalogTest, AFileThatIsGoneIsNotAnsweredFromMemory) {
  catalog_->pool_seen(server_.url());
  ASSERT_TRUE(find());
  clock_.advance_ms(10'000);
  error_ = base::Error{ErrorCode::kModelNotFound, "no such file", {}};
  EXPECT_EQ(find().error().code, ErrorCode::kModelNotFound);
}

// Who knows that the file is another one is not told of the old one, whether it is remembered or asked for already.
TEST_F(CatalogTest, WhatIsAskedAnewIsOfTheFileAsItIs) {
  catalog_->pool_seen(server_.url());
  ASSERT_TRUE(find());
  digest_ = "sha256:bb";
  EXPECT_EQ(find("file:/m.gguf", 60'000, true)->facts.digest, "sha256:bb");
  EXPECT_EQ(describes_, 2);

  silent_ = true;
  clock_.advance_ms(10'000);
  ASSERT_TRUE(find(0)) << "which begins the question that stays without an answer";
  while (describes_ < 3) std::this_thread::yield();
  std::promise<base::Result<KnownModel>> done;
  catalog_->find({"file:/m.gguf", 60'000, base::CorrelationId("corr-1"), true},
                 [&](base::Result<KnownModel> known) { done.set_value(std::move(known)); });
  silent_ = false;
  digest_ = "sha256:cc";
  net::ExchangePtr early;
  while (early == nullptr) {
    const std::lock_guard lock(kept_mutex_);
    if (!kept_.empty()) early = std::exchange(kept_.front(), nullptr);
  }
  early->respond_error({ErrorCode::kTimeout, "", {}});
  EXPECT_EQ(done.get_future().get()->facts.digest, "sha256:cc");
  EXPECT_EQ(describes_, 4);
}

TEST_F(CatalogTest, ThePoolsErrorIsTheAnswerAndIsNotKept) {
  catalog_->pool_seen(server_.url());
  error_ = base::Error{ErrorCode::kModelNotFound, "no such file", {}};
  EXPECT_EQ(find().error().code, ErrorCode::kModelNotFound);
  error_.reset();
  EXPECT_TRUE(find());
}

// What a client named may be a link: where it leads is the operators' to read.
TEST_F(CatalogTest, AClientIsNotToldWhichPathAPoolStillReads) {
  catalog_->pool_seen(server_.url());
  error_ = base::Error{ErrorCode::kPoolUnready, "file:/m.gguf is still being read", {}}
               .with("reason", std::string("MODEL_BEING_READ"))
               .with("file", std::string("file:/m.gguf"));
  const auto result = find();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kPoolUnready);
  EXPECT_TRUE(base::has_detail(result.error(), "reason", "MODEL_BEING_READ"));
  EXPECT_FALSE(base::has_detail(result.error(), "file", "file:/m.gguf"));
  EXPECT_EQ(result.error().message.find("/m.gguf"), std::string::npos);
}

TEST_F(CatalogTest, ASlowPoolIsNotWaitedForForEver) {
  catalog_->pool_seen(server_.url());
  silent_ = true;
  const auto result = find(20);
  EXPECT_EQ(result.error().code, ErrorCode::kPoolUnready);
  bool has_retry = false;
  for (const auto& [key, value] : result.error().details) has_retry = has_retry || key == "retry_after_ms";
  EXPECT_TRUE(has_retry);
}

TEST_F(CatalogTest, ADeadPoolIsPassedOver) {
  net::Server dead(runtime_, {.component = "dead"});
  ASSERT_TRUE(dead.start());
  catalog_->pool_seen(dead.url());
  dead.stop(0);
  EXPECT_EQ(find().error().code, ErrorCode::kPoolUnready);
  catalog_->pool_seen(server_.url());
  EXPECT_TRUE(find());
}

// A pool that takes another token than we have is no answer for who asks us.
TEST_F(CatalogTest, APoolThatRefusesOurTokenIsPassedOver) {
  net::Server other(runtime_, {.component = "other-pool", .auth = server_auth(std::string(32, 'x'))});
  ASSERT_TRUE(other.start());
  catalog_->pool_seen(other.url());
  EXPECT_EQ(find().error().code, ErrorCode::kPoolUnready);
  catalog_->pool_seen(server_.url());
  EXPECT_TRUE(find());
  other.stop(0);
}

// Where no paired pool is, nobody is called; who is one is called with its token (the server here takes no other).
TEST_F(CatalogTest, OnlyPairedPoolsAreCalled) {
  net::Server stranger(runtime_, {.component = "stranger"});
  std::atomic<int> called = 0;
  for (const char* path : {"/v2/models/describe", "/v2/models/{digest}/tokenizer"}) {
    stranger.route("GET", path, net::Scope::kPublic, [&](const net::Request&, const net::ExchangePtr& exchange) {
      ++called;
      exchange->respond({});
    });
  }
  ASSERT_TRUE(stranger.start());
  stranger_ = stranger.url();
  catalog_->pool_seen(stranger_);
  EXPECT_EQ(find().error().code, ErrorCode::kPoolUnready);
  catalog_->pool_seen(server_.url());
  EXPECT_TRUE(find());
  EXPECT_EQ(called, 0);
  stranger.stop(0);
}

// A file may be on one host only.
TEST_F(CatalogTest, APoolThatLacksTheFileIsPassedOver) {
  net::Server other(runtime_, {.component = "other-pool"});
  other.route("GET", "/v2/models/describe", net::Scope::kPublic,
              [](const net::Request&, const net::ExchangePtr& exchange) {
                exchange->respond_error({ErrorCode::kModelNotFound, "no such file here", {}});
              });
  ASSERT_TRUE(other.start());
  catalog_->pool_seen(other.url());
  EXPECT_EQ(find().error().code, ErrorCode::kModelNotFound);
  catalog_->pool_seen(server_.url());
  EXPECT_TRUE(find());
}

// A damaged copy, or a description of another model, hides no healthy copy.
TEST_F(CatalogTest, APoolWithABadCopyIsPassedOver) {
  std::string says;
  net::Server other(runtime_, {.component = "other-pool"});
  other.route("GET", "/v2/models/describe", net::Scope::kPublic,
              [&](const net::Request&, const net::ExchangePtr& exchange) {
                if (says.empty()) return void(exchange->respond_error({ErrorCode::kCorruptFile, "damaged", {}}));
                wire::ModelFacts facts;
                facts.model_ref = says;
                facts.digest = "sha256:bb";
                exchange->respond(net::http::json_response(200, wire::encode(facts)));
              });
  ASSERT_TRUE(other.start());
  catalog_->pool_seen(other.url());
  EXPECT_EQ(find("file:/a", 60'000).error().code, ErrorCode::kCorruptFile);
  catalog_->pool_seen(server_.url());
  EXPECT_EQ(find("file:/a", 60'000).value().facts.digest, digest_);
  says = "file:/other";
  EXPECT_EQ(find("file:/b", 60'000).value().facts.digest, digest_);
  other.stop(0);
}

// Another pool, which needs no token and says what the test wants.
struct OtherPool {
  explicit OtherPool(net::IoRuntime& runtime) : server(runtime, {.component = "other-pool"}) {
    server.route("GET", "/v2/models/describe", net::Scope::kPublic,
                 [this](const net::Request& request, const net::ExchangePtr& exchange) {
                   facts.model_ref = std::string(request.query_param("ref").value_or(""));
                   exchange->respond(net::http::json_response(200, wire::encode(facts)));
                 });
    server.route("GET", "/v2/models/{digest}/tokenizer", net::Scope::kPublic,
                 [](const net::Request&, const net::ExchangePtr& exchange) {
                   exchange->respond({200, {}, text::serialize(text::byte_bpe_data({})).value()});
                 });
    EXPECT_TRUE(server.start());
  }
  ~OtherPool() { server.stop(0); }

  wire::ModelFacts facts;
  net::Server server;
};

// Its file was replaced, or it lies: a name stands for certain bytes, and the next pool may have them.
TEST_F(CatalogTest, APoolWithOtherBytesIsPassedOver) {
  OtherPool other(runtime_);
  other.facts.digest = "sha256:bb";
  catalog_->pool_seen(other.server.url());
  const auto find_bytes = [&](const std::string& checksum) {
    std::promise<base::Result<KnownModel>> done;
    catalog_->find({.model_ref = "file:/a", .wait_ms = 60'000, .correlation_id = {}, .checksum = checksum},
                   [&](base::Result<KnownModel> r) { done.set_value(std::move(r)); });
    return done.get_future().get();
  };
  const auto alone = find_bytes(digest_);
  ASSERT_FALSE(alone);
  EXPECT_TRUE(is_other_file(alone.error()));
  EXPECT_TRUE(base::has_detail(alone.error(), "found", "sha256:bb"));

  catalog_->pool_seen(server_.url());
  error_ = base::Error{ErrorCode::kModelNotFound, "no such file", {}};
  EXPECT_TRUE(is_other_file(find_bytes(digest_).error())) << "which says more than that there is none";
  error_ = base::Error{ErrorCode::kPoolUnready, "", {}}.with("reason", std::string("MODEL_BEING_READ"));
  EXPECT_EQ(find_bytes(digest_).error().code, ErrorCode::kPoolUnready) << "it may have them";
  error_.reset();
  EXPECT_EQ(find_bytes(digest_).value().facts.digest, digest_);
  EXPECT_EQ(find("file:/a", 60'000).value().facts.digest, "sha256:bb") << "where any bytes will do";
  EXPECT_EQ(find_bytes(digest_).value().facts.digest, digest_) << "which takes no place from those";
  EXPECT_EQ(catalog_->known_facts("file:/a")->digest, digest_) << "those that were asked for last";
}

// A refusal for good ends jobs whose bytes a silent pool may have.
TEST_F(CatalogTest, OtherBytesAreTheAnswerOnceEveryPairedPoolHasAnswered) {
  OtherPool other(runtime_);
  other.facts.digest = "sha256:bb";
  const std::string here = other.server.url();
  net::Server dead(runtime_, {.component = "dead"});
  ASSERT_TRUE(dead.start());
  const auto find_bytes = [&] {
    std::promise<base::Result<KnownModel>> done;
    catalog_->find({.model_ref = "file:/a", .wait_ms = 60'000, .correlation_id = {}, .checksum = digest_},
                   [&](base::Result<KnownModel> r) { done.set_value(std::move(r)); });
    return done.get_future().get();
  };
  paired_ = {{"pool-here", here}, {"pool-dead", dead.url()}};
  catalog_->pool_seen(here);
  catalog_->pool_seen(dead.url());
  dead.stop(0);
  for (const char* is : {"asked", "away"}) {
    const auto refused = find_bytes();
    ASSERT_FALSE(refused) << is;
    EXPECT_EQ(refused.error().code, ErrorCode::kPoolUnready) << is;
    EXPECT_TRUE(base::has_detail(refused.error(), "silent_pools", "pool-dead")) << is;
    EXPECT_TRUE(base::has_detail(refused.error(), "retry_after_ms")) << is;
    EXPECT_NE(refused.error().message.find("pool-dead"), std::string::npos) << refused.error().message;
    catalog_->pool_lost(dead.url());
  }
  for (const char* id : {"b", "c", "d", "e"}) paired_.emplace_back(id, "");  // have yet to come
  EXPECT_TRUE(base::has_detail(find_bytes().error(), "silent_pools", "pool-dead, b, c, d and 1 more"));
  paired_.resize(1);
  EXPECT_TRUE(is_other_file(find_bytes().error())) << "nobody else is paired";
  paired_.emplace_back("pool-there", server_.url());
  catalog_->pool_seen(server_.url());
  error_ = base::Error{ErrorCode::kModelNotFound, "no such file", {}};
  EXPECT_TRUE(is_other_file(find_bytes().error())) << "everybody has answered";
}

// Jobs of all nodes are refused by the memory that one names.
TEST_F(CatalogTest, AModelThatDoesNotFitWhereItIsDescribedIsAskedOfTheNextPool) {
  constexpr std::int64_t kDevice = 8LL << 30, kMuch = 1LL << 49, kLess = 1LL << 40;
  OtherPool other(runtime_), third(runtime_);
  other.facts.digest = "sha256:bb";
  other.facts.memory_bytes = kMuch;
  third.facts.digest = "sha256:cc";
  third.facts.memory_bytes = kLess;
  const auto see = [&](const std::string& endpoint) {
    catalog_->pool_seen(endpoint);
    catalog_->devices_seen(endpoint, kDevice);
  };
  see(other.server.url());
  EXPECT_EQ(find("file:/a", 60'000).value().facts.memory_bytes, kMuch)
      << "nobody knows better, and the numbers say why";
  see(third.server.url());
  const auto least = find("file:/b", 60'000).value();
  EXPECT_EQ(least.facts.memory_bytes, kLess);
  EXPECT_EQ(least.facts.digest, "sha256:cc");
  EXPECT_NE(least.tokenizer, nullptr);
  see(server_.url());
  EXPECT_EQ(find("file:/c", 60'000).value().facts.digest, digest_);
}

// An orderly stop while a pool still reads a model: the question ends, and no other pool is asked.
TEST_F(CatalogTest, AClientThatEndsEndsTheQuestion) {
  net::Server other(runtime_, {.component = "other-pool"});
  ASSERT_TRUE(other.start());
  silent_ = true;
  catalog_->pool_seen(server_.url());
  catalog_->pool_seen(other.url());
  std::promise<base::Result<KnownModel>> done;
  catalog_->find({.model_ref = "file:/m.gguf", .wait_ms = 60'000},
                 [&](base::Result<KnownModel> r) { done.set_value(std::move(r)); });
  while (describes_ == 0) std::this_thread::yield();
  client_.reset();
  EXPECT_EQ(done.get_future().get().error().code, ErrorCode::kCancelled);
  other.stop(0);
}

// What one pool says of a digest is nothing to the models of another.
TEST_F(CatalogTest, ATokenizerIsOfThePoolThatSentIt) {
  std::string blob = text::serialize(text::byte_bpe_data({{"a", "b"}})).value();
  net::Server other(runtime_, {.component = "other-pool"});
  other.route("GET", "/v2/models/describe", net::Scope::kPublic,
              [&](const net::Request& request, const net::ExchangePtr& exchange) {
                wire::ModelFacts facts;
                facts.model_ref = std::string(request.query_param("ref").value_or(""));
                facts.digest = digest_;
                if (facts.model_ref != "file:/theirs") {
                  return void(exchange->respond_error({ErrorCode::kModelNotFound, "not here", {}}));
                }
                exchange->respond(net::http::json_response(200, wire::encode(facts)));
              });
  other.route("GET", "/v2/models/{digest}/tokenizer", net::Scope::kPublic,
              [&](const net::Request&, const net::ExchangePtr& exchange) {
                exchange->respond({200, {}, blob});
              });
  ASSERT_TRUE(other.start());
  catalog_->pool_seen(other.url());
  const auto theirs = find("file:/theirs", 60'000).value();
  EXPECT_EQ(theirs.tokenizer->encode("ab").value().size(), 1u);
  catalog_->pool_seen(server_.url());
  EXPECT_EQ(find("file:/ours", 60'000).value().tokenizer->encode("ab").value().size(), 2u);
  other.stop(0);
}

// Not on the thread that carries the streams: a tokenizer takes a while to build, and so does what its waiters do.
TEST_F(CatalogTest, AnswersOnItsOwnThread) {
  net::IoRuntime aside;
  net::RuntimeExecutor executor(aside);
  const auto runs_aside = [&](std::int64_t wait_ms) {
    std::promise<bool> done;
    catalog_->find({.model_ref = "file:/m.gguf", .wait_ms = wait_ms},
                   [&](const base::Result<KnownModel>&) { done.set_value(aside.on_io_thread()); });
    return done.get_future().get();
  };
  CatalogOptions options;
  make_catalog(std::move(options), &executor);
  EXPECT_TRUE(runs_aside(0)) << "nobody to ask";
  catalog_->pool_seen(server_.url());
  EXPECT_TRUE(runs_aside(60'000)) << "asked";
  EXPECT_TRUE(runs_aside(60'000)) << "known";
  aside.stop();
}

TEST_F(CatalogTest, ABlobThatIsNoTokenizerIsAnError) {
  catalog_->pool_seen(server_.url());
  blob_ = "garbage";
  EXPECT_EQ(find().error().code, ErrorCode::kCorruptFile);
}

}  // namespace
}  // namespace llorch::orchestratord::models
