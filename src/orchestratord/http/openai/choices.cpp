#include "orchestratord/http/openai/choices.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "orchestratord/http/openai/renderers.h"

namespace llorch::orchestratord::http::openai {

std::uint64_t choice_seed(std::uint64_t seed, std::int64_t index) {
  if (index == 0) return seed;
  constexpr std::uint64_t kMask = 0x7fff'ffff'ffff'ffffu;
  const base::Sha256Digest digest = base::sha256(fmt::format("choice {} of {}", index, seed));
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < sizeof out; ++i) out = out << 8 | digest[i];
  return out & kMask;
}

// Tells of the job's end besides rendering it.
class Choices::ChoiceRenderer final : public streams::Renderer {
 public:
  ChoiceRenderer(std::shared_ptr<Choices> choices, std::int64_t index, std::unique_ptr<streams::Renderer> inner)
      : choices_(std::move(choices)), index_(index), inner_(std::move(inner)) {}

  bool streams() const override { return inner_->streams(); }
  Head head() const override { return inner_->head(); }
  void queued(const wire::QueuedEvent& event, const streams::EventId& id, std::string& out) override {
    inner_->queued(event, id, out);
  }
  void started(const wire::StartedEvent& event, const streams::EventId& id, std::string& out) override {
    inner_->started(event, id, out);
  }
  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override {
    inner_->token(token, id, out);
  }
  void metrics(const wire::MetricsEvent& event, std::string& out) override { inner_->metrics(event, out); }
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override {
    choices_->note_end(index_, event);
    inner_->end(event, id, out);
  }
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override {
    choices_->note_error(index_);
    inner_->error(error, id, out);
  }
  void keep_alive(std::string& out) override { inner_->keep_alive(out); }

 private:
  const std::shared_ptr<Choices> choices_;
  const std::int64_t index_;
  const std::unique_ptr<streams::Renderer> inner_;
};

class Choices::ChoiceExchange final : public net::Exchange {
 public:
  ChoiceExchange(std::shared_ptr<Choices> choices, std::int64_t index) : choices_(std::move(choices)), index_(index) {}

  bool respond(net::Response response) override { return choices_->respond(index_, std::move(response)); }
  bool respond_error(const base::Error& error) override { return client().respond_error(error); }
  void release_request() override { client().release_request(); }
  bool start_stream(int status, net::http::Headers headers) override {
    return choices_->start_stream(status, std::move(headers));
  }
  bool write(std::string_view bytes) override { return choices_->write(index_, bytes); }
  bool end() override { return choices_->end(index_); }
  void abort() override { client().abort(); }
  std::size_t queued_bytes() const override { return client().queued_bytes(); }
  std::uint64_t sent_bytes() const override { return client().sent_bytes(); }
  bool closed() const override { return client().closed(); }
  void on_drain(std::size_t low_water_bytes, std::function<void()> fn) override {
    choices_->on_drain(low_water_bytes, std::move(fn));
  }
  void on_close(std::function<void(net::CloseReason)> fn) override { choices_->on_close(std::move(fn)); }

 private:
  net::Exchange& client() const { return *choices_->exchange_; }

  const std::shared_ptr<Choices> choices_;
  const std::int64_t index_;
};

Choices::Choices(AnswerOptions options, AnswerIdentity identity, net::ExchangePtr exchange)
    : options_(std::move(options)),
      identity_(std::move(identity)),
      exchange_(std::move(exchange)),
      bodies_(static_cast<std::size_t>(options_.choices)) {}

void Choices::start() {
  exchange_->on_close([self = shared_from_this()](net::CloseReason reason) { self->close(reason); });
}

std::shared_ptr<streams::Renderer> Choices::renderer(std::int64_t index, const base::JobId& job_id, std::string echo,
                                                     std::int64_t tokens_in) {
  AnswerOptions options = options_;
  options.index = index;
  options.tokens_in = tokens_in;
  options.echo = std::move(echo);
  options.first_job_id = identity_.job_id;
  AnswerIdentity identity = identity_;
  identity.job_id = job_id;
  std::unique_ptr<streams::Renderer> inner;
  if (options.stream) {
    inner = std::make_unique<ChunkRenderer>(options, identity);
  } else {
    inner = std::make_unique<BodyRenderer>(options, identity);
  }
  return std::make_shared<ChoiceRenderer>(shared_from_this(), index, std::move(inner));
}

net::ExchangePtr Choices::exchange(std::int64_t index) {
  return std::make_shared<ChoiceExchange>(shared_from_this(), index);
}

void Choices::note_end(std::int64_t index, const wire::EndEvent& event) {
  const std::lock_guard lock(mutex_);
  if (index % options_.choices_per_prompt == 0) total_.tokens_in += event.tokens_in;
  total_.tokens_out += told_end(options_, event).tokens_out;
  std::string fingerprint;
  append_fingerprint(fingerprint, event);
  has_one_fingerprint_ = has_one_fingerprint_ && fingerprint_.value_or(fingerprint) == fingerprint;
  fingerprint_ = std::move(fingerprint);
}

void Choices::note_error(std::int64_t index) {
  const std::lock_guard lock(mutex_);
  if (!failed_) failed_ = index;
}

// REQUIRES: every choice has ended, and its body is here.
std::string Choices::whole_answer() const {
  std::string out = opening(options_, identity_) + R"(,"choices":[)";
  for (std::size_t i = 0; i < bodies_.size(); ++i) out.append(i == 0 ? "" : ",").append(bodies_[i]);
  out += R"(],"usage":)";
  append_usage(out, total_);
  if (has_one_fingerprint_) {
    out += *fingerprint_;
  } else {  // they ran on devices of several kinds
    append_fingerprint(out, {});
  }
  return out + "}";
}

bool Choices::respond(std::int64_t index, net::Response response) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_ && failed_ != index) return false;
    if (!failed_) {
      bodies_[static_cast<std::size_t>(index)] = std::move(response.body);
      if (++ended_count_ < options_.choices) return true;
      response.body = whole_answer();
    }
  }
  return exchange_->respond(std::move(response));
}

bool Choices::start_stream(int status, net::http::Headers headers) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_begun_, true)) return true;
  }
  return exchange_->start_stream(status, std::move(headers));
}

bool Choices::write(std::int64_t index, std::string_view bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_ && failed_ != index) return false;
  }
  return exchange_->write(bytes);
}

bool Choices::end(std::int64_t index) {
  std::string last;
  {
    const std::lock_guard lock(mutex_);
    if (failed_ && failed_ != index) return false;  // its error may not be written yet
    if (!failed_) {
      if (++ended_count_ < options_.choices) return true;
      append_stream_end(last, options_, identity_, total_);
    }
  }
  if (!last.empty()) exchange_->write(last);
  return exchange_->end();
}

void Choices::on_drain(std::size_t low_water_bytes, std::function<void()> fn) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(fn));
  }
  exchange_->on_drain(low_water_bytes, [self = shared_from_this()] {
    std::vector<std::function<void()>> waiting;
    {
      const std::lock_guard lock(self->mutex_);
      waiting.swap(self->waiting_);
    }
    for (const auto& go_on : waiting) go_on();
  });
}

void Choices::on_close(std::function<void(net::CloseReason)> fn) {
  net::CloseReason reason{};
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) return watching_.push_back(std::move(fn));
    reason = *closed_;
  }
  fn(reason);
}

void Choices::close(net::CloseReason reason) {
  std::vector<std::function<void(net::CloseReason)>> watching;
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    closed_ = reason;
    watching.swap(watching_);
    waiting.swap(waiting_);
  }
  for (const auto& tell : watching) tell(reason);
}

}  // namespace llorch::orchestratord::http::openai
