// Several jobs as one answer: the bytes that the client gets, and who learns of what.
#include "orchestratord/http/openai/choices.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "base/file.h"

namespace llorch::orchestratord::http::openai {
namespace {

// What the client was sent.
class Client final : public net::Exchange {
 public:
  bool respond(net::Response response) override {
    if (answered) return false;
    answered = true;
    status = response.status;
    body = std::move(response.body);
    return true;
  }
  bool respond_error(const base::Error&) override { return false; }
  void release_request() override { ++releases; }
  bool start_stream(int stream_status, net::http::Headers) override {
    EXPECT_EQ(status, 0) << "a stream begins once";
    status = stream_status;
    return true;
  }
  bool write(std::string_view bytes) override {
    if (answered) return false;
    body += bytes;
    return true;
  }
  bool end() override { return !std::exchange(answered, true); }
  void abort() override { aborted = true; }
  std::size_t queued_bytes() const override { return 5; }
  std::uint64_t sent_bytes() const override { return 7; }
  bool closed() const override { return false; }
  void on_drain(std::size_t, std::function<void()> fn) override { drain = std::move(fn); }
  void on_close(std::function<void(net::CloseReason)> fn) override { close = std::move(fn); }

  int status = 0, releases = 0;
  bool answered = false, aborted = false;
  std::string body;
  std::function<void()> drain;
  std::function<void(net::CloseReason)> close;
};

base::JobId choice_job(std::int64_t index) { return base::JobId("job-" + std::to_string(index)); }

wire::EndEvent choice_end(std::int64_t index) {
  return {.job_id = choice_job(index).value,
          .tokens_in = 11,
          .tokens_out = 2 + index,
          .stop_reason = index == 0 ? wire::StopReason::kEos : wire::StopReason::kMaxTokens,
          .receipt = wire::Receipt{.model_digest = "sha256:aa", .seed = 7 + static_cast<std::uint64_t>(index)}};
}

// Three streams as streams::Stream drives them.
class ThreeChoices : public testing::Test {
 protected:
  // Every exchange closes once, and lets go of who watches it.
  ~ThreeChoices() override {
    client_->drain = nullptr;
    if (const auto close = std::exchange(client_->close, {})) close(net::CloseReason::kFinished);
  }

  void begin(Endpoint endpoint, bool stream, bool usage = false) {
    client_ = std::make_shared<Client>();
    const AnswerOptions options{.endpoint = endpoint,
                                .model = "tale",
                                .stream = stream,
                                .include_usage = usage,
                                .choices = 3,
                                .choices_per_prompt = 3};
    choices_ = std::make_shared<Choices>(options, AnswerIdentity{.job_id = choice_job(0), .created_unix_s = 1764000000},
                                         client_);
    choices_->start();
    for (std::int64_t i = 0; i < 3; ++i) {
      renderers_.push_back(choices_->renderer(i, choice_job(i), "", 0));
      exchanges_.push_back(choices_->exchange(i));
      if (stream) {
        exchanges_.back()->start_stream(200, {});
      } else {
        exchanges_.back()->release_request();
      }
      exchanges_.back()->on_close([this, i](net::CloseReason) { gone_.insert(i); });
    }
  }
  void say(std::size_t i, std::string_view text) {
    std::string out;
    renderers_[i]->token({.t = text, .i = said_[i]++}, {}, out);
    deliver(i, out);
  }
  void finish(std::size_t i) {
    std::string out = std::exchange(bodies_[i], {});
    renderers_[i]->end(choice_end(static_cast<std::int64_t>(i)), {}, out);
    close(i, out);
  }
  void fail(std::size_t i) { close(i, rendered_failure(i)); }
  // What the choice's stream renders and has not written yet: those of the others run on other threads.
  std::string rendered_failure(std::size_t i) {
    std::string out;
    renderers_[i]->error({.code = "POOL_UNAVAILABLE", .message = "no device", .retriable = true}, {}, out);
    return out;
  }

  void close(std::size_t i, const std::string& out) {
    if (renderers_[i]->streams()) {
      exchanges_[i]->write(out);
      exchanges_[i]->end();
    } else {
      exchanges_[i]->respond({.status = renderers_[i]->head().status, .headers = {}, .body = out});
    }
  }

  std::shared_ptr<Client> client_;
  std::vector<net::ExchangePtr> exchanges_;
  std::set<std::int64_t> gone_;

 private:
  void deliver(std::size_t i, const std::string& out) {
    if (renderers_[i]->streams()) {
      exchanges_[i]->write(out);
    } else {
      bodies_[i] += out;
    }
  }

  std::shared_ptr<Choices> choices_;
  std::vector<std::shared_ptr<streams::Renderer>> renderers_;
  std::int64_t said_[3] = {};
  std::string bodies_[3];
};

void expect_same_bytes(const std::string& name, const std::string& actual) {
  const std::string path = std::string(LLORCH_SOURCE_DIR) + "/src/orchestratord/http/openai/golden/" + name;
  if (std::getenv("LLORCH_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << actual;
  const auto expected = base::read_file(path, 1 << 20);
  ASSERT_TRUE(expected) << path;
  EXPECT_EQ(actual, *expected) << "run with LLORCH_UPDATE_GOLDEN=1 after a meant change";
}

TEST_F(ThreeChoices, AreOneBodyWhicheverEndsFirst) {
  begin(Endpoint::kChat, false);
  say(2, "c");
  say(0, "a");
  finish(2);
  say(1, "b");
  finish(0);
  EXPECT_FALSE(client_->answered);
  finish(1);
  EXPECT_EQ(client_->status, 200);
  expect_same_bytes("chat_choices.json", client_->body);
}

TEST_F(ThreeChoices, AreOneStream) {
  begin(Endpoint::kCompletions, true, true);
  say(2, "c");
  say(0, "a");
  finish(2);
  say(0, "A");
  say(1, "b");
  finish(1);
  EXPECT_FALSE(client_->answered);
  finish(0);
  EXPECT_TRUE(client_->answered);
  expect_same_bytes("completion_choices_stream.sse", client_->body);
}

TEST_F(ThreeChoices, TheFirstFailureEndsTheStream) {
  begin(Endpoint::kChat, true);
  say(0, "a");
  finish(2);
  fail(1);
  EXPECT_TRUE(client_->answered);
  const std::string told = client_->body;
  EXPECT_NE(told.find("no device"), std::string::npos);
  EXPECT_EQ(told.find("[DONE]"), std::string::npos);
  say(0, "more");
  fail(0);
  EXPECT_EQ(client_->body, told);
  client_->close(net::CloseReason::kFinished);
  EXPECT_EQ(gone_, (std::set<std::int64_t>{0, 1, 2}));
}

TEST_F(ThreeChoices, NoOtherChoiceEndsTheStreamBeforeTheFailureIsTold) {
  begin(Endpoint::kChat, true);
  const std::string failure = rendered_failure(1);
  finish(0);
  EXPECT_FALSE(client_->answered);
  close(1, failure);
  EXPECT_TRUE(client_->answered);
  EXPECT_NE(client_->body.find("no device"), std::string::npos);
}

TEST_F(ThreeChoices, TheFirstFailureIsTheAnswer) {
  begin(Endpoint::kChat, false);
  finish(0);
  fail(2);
  EXPECT_EQ(client_->status, 503);
  finish(1);
  fail(1);
  EXPECT_NE(client_->body.find("no device"), std::string::npos);
  EXPECT_EQ(client_->body.find("choices"), std::string::npos);
}

TEST_F(ThreeChoices, AllLearnThatTheClientHasGone) {
  begin(Endpoint::kChat, true);
  std::set<int> drained;
  exchanges_[0]->on_drain(1, [&] { drained.insert(0); });
  exchanges_[2]->on_drain(1, [&] { drained.insert(2); });
  client_->drain();
  EXPECT_EQ(drained, (std::set<int>{0, 2}));
  client_->close(net::CloseReason::kPeerGone);
  EXPECT_EQ(gone_, (std::set<std::int64_t>{0, 1, 2}));
  exchanges_[1]->abort();
  EXPECT_TRUE(client_->aborted);
}

TEST(ChoiceSeed, IsTheRequestsOwnAndThenOthers) {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0} >> 1}) {
    EXPECT_EQ(choice_seed(seed, 0), seed);
    std::set<std::uint64_t> seeds;
    for (std::int64_t i = 0; i < wire::kChoicesMax; ++i) {
      seeds.insert(choice_seed(seed, i));
      EXPECT_EQ(choice_seed(seed, i) >> 63, 0U);
    }
    EXPECT_EQ(seeds.size(), static_cast<std::size_t>(wire::kChoicesMax));
  }
  EXPECT_EQ(choice_seed(7, 1), 337599958958900504U) << "part of what a request means: it never changes";
}

}  // namespace
}  // namespace llorch::orchestratord::http::openai
