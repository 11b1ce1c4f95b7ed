#include "orchestratord/streams/relay.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/assert.h"
#include "base/error_detail.h"
#include "base/sha256.h"
#include "net/sse/sse.h"
#include "wire/embedding_text.h"
#include "wire/json.h"
#include "wire/request_limits.h"
#include "wire/worker.h"

namespace llorch::orchestratord::streams {
namespace {

using base::ErrorCode;

constexpr std::int64_t kProgressPeriodMs = 1000;
constexpr std::size_t kErrorBodyBytesMax = 64 << 10;
constexpr std::int64_t kTailMs = 2000;  // from a job's end to that of the answer, which an honest worker sends with it
// What is kept with a job and told of it again and again: its first and its last event, and an error's message and details.
constexpr std::size_t kEventBytesMax = 16 << 10, kErrorTextBytesMax = 4 << 10;
constexpr std::size_t kErrorDetailsMax = 32, kErrorKeyBytesMax = 64;

base::Error worker_reset(std::string why) {
  return base::Error{ErrorCode::kWorkerReset, "the worker was lost while the job ran: " + std::move(why), {}};
}

void cut(std::string& text) {
  if (text.size() <= kErrorTextBytesMax) return;
  std::size_t end = kErrorTextBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a code point
  text.resize(end);
}

// In as many words as an error needs.
base::Error shortened(base::Error error) {
  cut(error.message);
  std::erase_if(error.details, [](const auto& detail) { return detail.first.size() > kErrorKeyBytesMax; });
  if (error.details.size() > kErrorDetailsMax) error.details.resize(kErrorDetailsMax);
  for (auto& [key, value] : error.details) {
    if (auto* const text = std::get_if<std::string>(&value)) cut(*text);
  }
  return error;
}

// Of alternatives, of which a request may ask for so many: whoever writes them for clients compares each with the others.
template <class Logprobs>
bool lists_too_many(const std::optional<Logprobs>& logprobs) {
  return logprobs && logprobs->top_logprobs.size() > static_cast<std::size_t>(wire::kTopLogprobsMax);
}

// A job was checked before it was accepted, so a worker that does not know a field of it has another version.
base::Error refusal_of(base::Error error) {
  if (error.code != ErrorCode::kInvalidParams || !base::has_detail(error, "reason", "unknown")) return error;
  return {ErrorCode::kVersionMismatch,
          "the worker is of a version that does not know all that the job asks for; update its node, or leave out what "
          "details.field names",
          std::move(error.details)};
}

// The first field of the receipt that contradicts the job; empty when there is none. Signing for another job, or for an
// output nobody saw, is what a broken worker does.
std::string_view contradiction(const wire::Receipt& receipt, const Relay::Order::Expected& expected,
                               const std::string& output_sha256, std::int64_t tokens_out) {
  const auto differs = [](const std::string& wanted, const std::string& said) {
    return !wanted.empty() && wanted != said;
  };
  if (receipt.seed != expected.seed) return "seed";
  if (differs(expected.prompt_sha256, receipt.prompt_sha256)) return "prompt_sha256";
  if (receipt.parameters_sha256 && differs(expected.parameters_sha256, *receipt.parameters_sha256)) {
    return "parameters_sha256";
  }
  if (differs(expected.model_digest, receipt.model_digest)) return "model_digest";
  if (receipt.tokens_out != tokens_out) return "tokens_out";
  if (receipt.output_sha256 != output_sha256) return "output_sha256";
  return {};
}

// Tokens between the worker's bytes and the stream. One per thread, since none stays in it from one read to the next: a
// stream that waits holds no memory for them.
class TokenBatch {
 public:
  void clear() {
    bytes_.clear();
    rows_.clear();
  }
  bool empty() const { return rows_.empty(); }

  // False: `json` is no WorkerTokenEvent, or lists more alternatives than there may be.
  bool add(std::string_view json) {
    Row row{.text_begin = bytes_.size()};
    if (const auto numbers = read_token_json(json, bytes_)) {
      row.numbers = *numbers;
      row.text_end = bytes_.size();
    } else {
      const auto token = wire::decode<wire::WorkerTokenEvent>(json);
      if (!token) return false;
      row.numbers.i = token->i;
      if (token->id) row.numbers.id = base::TokenId{static_cast<std::uint32_t>(*token->id)};
      row.text_end = bytes_.append(token->t).size();
      if (token->logprobs && token->prompt_logprobs) return false;
      if (lists_too_many(token->logprobs) || lists_too_many(token->prompt_logprobs)) return false;
      if (token->logprobs) bytes_ += wire::encode(*token->logprobs);
      row.of_prompt = token->prompt_logprobs.has_value();
      if (row.of_prompt) bytes_ += wire::encode(*token->prompt_logprobs);
    }
    row.logprobs_end = bytes_.size();
    rows_.push_back(row);
    return true;
  }

  // Valid until the next add() or clear().
  std::span<const TokenView> tokens() {
    const std::string_view bytes = bytes_;
    tokens_.clear();
    for (const Row& row : rows_) {
      tokens_.push_back({.t = bytes.substr(row.text_begin, row.text_end - row.text_begin),
                         .i = row.numbers.i,
                         .logprobs = bytes.substr(row.text_end, row.logprobs_end - row.text_end),
                         .id = row.numbers.id,
                         .of_prompt = row.of_prompt});
    }
    return tokens_;
  }

 private:
  struct Row {
    std::size_t text_begin = 0, text_end = 0, logprobs_end = 0;
    TokenNumbers numbers;
    bool of_prompt = false;
  };
  std::string bytes_;
  std::vector<Row> rows_;
  std::vector<TokenView> tokens_;
};

// The payload is an object that has members; what is this attempt's own comes at its end.
std::string execute_body(std::string_view payload, const std::string& execution_id, std::int64_t timeout_ms) {
  ASSERT(payload.ends_with('}'));
  payload.remove_suffix(1);
  return fmt::format("{},\"timeout_ms\":{},\"execution_id\":\"{}\"}}", payload, timeout_ms, execution_id);
}

// What may be held of an answer of so many tokens. A text of a token has some bytes, with all its alternatives some thousand;
// an engine's piece of text is at most 64 KiB; a vector is as long as its model makes it.
constexpr std::int64_t kTokenBytes = 4 << 10;
std::int64_t bytes_max(wire::Workload workload, std::int64_t tokens_max) {
  constexpr std::int64_t kBytes = 1 << 20, kVectorBytes = 128 << 10, kTokensMax = 1 << 30;
  return kBytes +
         std::min(tokens_max, kTokensMax) * (workload == wire::Workload::kCompletion ? kTokenBytes : kVectorBytes);
}

bool is_token_of(wire::Workload workload, const TokenView& token) {
  if (token.of_prompt) return token.t.empty();
  switch (workload) {
    case wire::Workload::kCompletion: return true;
    case wire::Workload::kEmbedding: return wire::is_vector(token.t);
    case wire::Workload::kRerank: return wire::read_score(token.t).has_value();
  }
  return false;
}

TokenBatch& thread_batch() {
  thread_local TokenBatch batch;
  return batch;
}

}  // namespace

class Relay::Execution : public std::enable_shared_from_this<Execution> {
 public:
  Execution(Relay& relay, Order order, Reports reports)
      : relay_(relay), order_(std::move(order)), reports_(std::move(reports)) {}

  void begin();
  void abort();
  void tick();
  // Whether what follows its end has had its time. REQUIRES: it has ended.
  bool is_over(std::int64_t now_ms);

 private:
  std::string id() const { return fmt::format("{}-{}", relay_.options_.boot_id, order_.execution); }
  void on_response(int status);
  void on_data(std::string_view bytes);
  void on_end(const base::Result<>& result);
  void take(const net::sse::Decoder::Decoded& event, TokenBatch& batch);
  void take_started(std::string_view data);
  void take_end(std::string_view data);
  void take_error(std::string_view data);
  void flush(TokenBatch& batch);
  void end(std::optional<wire::EndEvent> end_event, std::optional<base::Error> error);

  Relay& relay_;
  Order order_;
  Reports reports_;

  std::mutex mutex_;  // guards the next five: abort(), a pause and the end may come before the handle
  net::StreamHandle handle_;
  bool aborted_ = false;
  bool paused_ = false;
  bool answered_ = false;  // a pause waits for the head of the answer, which has a time limit
  std::optional<std::int64_t>
      ended_ms_;  // what comes now is the end of the answer's bytes: never paused, and bounded in time
  std::atomic<std::int64_t> tokens_out_{0};

  // Used by the client's callbacks only, which come one at a time.
  int status_ = 0;
  std::string refusal_;
  net::sse::Decoder decoder_;
  base::Sha256 output_hash_;  // of this attempt's texts
  std::optional<std::int64_t> last_progress_ms_;
  std::int64_t bytes_out_ = 0;
  std::int64_t prompt_events_ = 0;
  bool started_ = false;
  bool ended_ = false;
};

void Relay::Execution::begin() {
  order_.stream->begin_attempt(order_.holds_stream);
  relay_.options_.hub->relay_begins(*order_.stream, [weak = weak_from_this()](bool paused) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    const std::lock_guard lock(self->mutex_);
    self->paused_ = paused && !self->ended_ms_;
    self->order_.stream->relay_paused(self->paused_, self->relay_.options_.clock->now().mono_ms);
    if (!self->answered_) return;
    self->paused_ ? self->handle_.pause() : self->handle_.resume();
  });
  net::ClientRequest request;
  request.method = "POST";
  request.url = order_.worker_uri + "/execute";
  request.headers.add("Content-Type", "application/json");
  request.headers.add("Accept", "text/event-stream");
  request.bearer = order_.bearer;
  request.body = execute_body(std::exchange(order_.payload, {}), id(), order_.timeout_ms);  // nobody needs it twice
  request.correlation_id = order_.correlation_id;
  request.timeout_ms = relay_.options_.head_timeout_ms;
  const auto self = shared_from_this();
  net::StreamHandle handle = relay_.options_.client->stream(
      std::move(request), {.on_response = [self](int status, const net::http::Headers&) { self->on_response(status); },
                           .on_data = [self](std::string_view bytes) { self->on_data(bytes); },
                           .on_end = [self](const base::Result<>& result) { self->on_end(result); }});
  const std::lock_guard lock(mutex_);
  handle_ = handle;
  if (paused_ && answered_) handle_.pause();
  if (aborted_) handle_.cancel();
}

void Relay::Execution::on_response(int status) {
  status_ = status;
  const std::lock_guard lock(mutex_);
  answered_ = true;
  if (paused_) handle_.pause();
}

void Relay::Execution::tick() {
  {
    const std::lock_guard lock(mutex_);
    if (!paused_ || aborted_) return;
  }
  reports_.progress(tokens_out_);
}

bool Relay::Execution::is_over(std::int64_t now_ms) {
  const std::lock_guard lock(mutex_);
  if (now_ms - *ended_ms_ < kTailMs) return false;
  handle_.cancel();  // no effect on one that has ended
  return true;
}

void Relay::Execution::abort() {
  net::ClientRequest request;
  request.method = "POST";
  request.url = order_.worker_uri + "/cancel";
  request.headers.add("Content-Type", "application/json");
  request.bearer = order_.bearer;
  request.body =
      wire::encode(wire::WorkerCancelRequest{.job_id = order_.stream->identity().job_id.value, .execution_id = id()});
  request.correlation_id = order_.correlation_id;
  // The closed connection aborts the job as well; the call only makes it quicker.
  relay_.options_.client->request(std::move(request), [](const base::Result<net::Response>&) {});
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  handle_.cancel();
}

void Relay::Execution::on_data(std::string_view bytes) {
  if (ended_) return;
  if (status_ != 200) {
    refusal_.append(bytes.substr(0, kErrorBodyBytesMax - std::min(kErrorBodyBytesMax, refusal_.size())));
    return;
  }
  TokenBatch& batch = thread_batch();
  batch.clear();
  const base::Result<> fed = decoder_.feed(bytes, [this, &batch](const net::sse::Decoder::Decoded& event) {
    if (!ended_) take(event, batch);
  });
  flush(batch);
  if (!fed && !ended_) end(std::nullopt, worker_reset("its stream is not valid"));
}

void Relay::Execution::take(const net::sse::Decoder::Decoded& event, TokenBatch& batch) {
  if (event.event == "token") {
    if (!batch.add(event.data)) end(std::nullopt, worker_reset("a token event is not valid"));
    return;
  }
  flush(batch);
  if (ended_) return;
  if (event.event == "started") return take_started(event.data);
  if (event.event == "end") return take_end(event.data);
  if (event.event == "error") return take_error(event.data);
  // What clients are told beside the answer is the core's to say, so a worker's `metrics` end here.
}

void Relay::Execution::take_started(std::string_view data) {
  auto event = wire::decode<wire::StartedEvent>(data);
  if (!event || data.size() > kEventBytesMax) return end(std::nullopt, worker_reset("its started event is not valid"));
  if (started_) return end(std::nullopt, worker_reset("it started the job twice"));
  if (event->seed != order_.expected.seed) return end(std::nullopt, worker_reset("it draws from another seed"));
  event->job_id = order_.stream->identity().job_id.value;
  event->worker_id = order_.worker_id;
  event->model = order_.model;
  event->queue_wait_ms = order_.queue_wait_ms;
  event->queue_position = order_.queue_position;
  event->predicted_start_ms = order_.predicted_start_ms;
  if (!event->started_at) event->started_at = base::rfc3339(relay_.options_.clock->now().unix_ms);
  order_.stream->started(*event);
  started_ = true;
  reports_.started();
}

void Relay::Execution::flush(TokenBatch& batch) {
  if (batch.empty() || ended_) return;
  const std::span<const TokenView> tokens = batch.tokens();
  if (!started_) return end(std::nullopt, worker_reset("a token came before the job had started"));
  const std::int64_t told = std::ranges::count_if(tokens, &TokenView::of_prompt);
  const std::int64_t made = static_cast<std::int64_t>(tokens.size()) - told;
  if (made > order_.tokens_max - tokens_out_ || told > order_.prompt_events - prompt_events_) {
    return end(std::nullopt, worker_reset("it sent more tokens than it was asked for"));
  }
  if (!std::ranges::all_of(tokens, [this](const TokenView& token) { return is_token_of(order_.workload, token); })) {
    return end(std::nullopt, worker_reset("a token is not what the job is for"));
  }
  for (const TokenView& token : tokens) bytes_out_ += static_cast<std::int64_t>(token.t.size() + token.logprobs.size());
  if (bytes_out_ > bytes_max(order_.workload, order_.tokens_max) + order_.prompt_events * kTokenBytes) {
    return end(std::nullopt, worker_reset("its tokens are longer than tokens are"));
  }
  const std::int64_t now_ms = relay_.options_.clock->now().mono_ms;
  const base::Result<> appended = order_.stream->tokens(tokens, now_ms);
  for (const TokenView& token : tokens) output_hash_.update(token.t);
  tokens_out_ += made;
  prompt_events_ += told;
  batch.clear();
  if (!appended) return end(std::nullopt, appended.error());
  if (!last_progress_ms_ || now_ms - *last_progress_ms_ >= kProgressPeriodMs) {
    last_progress_ms_ = now_ms;
    reports_.progress(tokens_out_);
  }
}

void Relay::Execution::take_end(std::string_view data) {
  auto event = wire::decode<wire::EndEvent>(data);
  if (!event || data.size() > kEventBytesMax) return end(std::nullopt, worker_reset("its end event is not valid"));
  event->job_id = order_.stream->identity().job_id.value;
  event->budget = {};  // the core's to say
  // A replay that stops early is as wrong as one with other words.
  if (const auto held = order_.stream->progress(); !held.sealed && held.tokens_count != tokens_out_ + prompt_events_) {
    return end(std::nullopt,
               base::Error{ErrorCode::kReplayDiverged,
                           "the job was run again and ended before what its stream had already sent; submit "
                           "it again",
                           {}}
                   .with("tokens_held", held.tokens_count - held.prompt_tokens_count)
                   .with("tokens_out", tokens_out_));
  }
  if (prompt_events_ != order_.prompt_events) {
    return end(std::nullopt, worker_reset("it did not tell every token of the prompt"));
  }
  if (event->tokens_out != tokens_out_) {
    return end(std::nullopt, worker_reset("it counts other tokens than it sent"));
  }
  if (order_.workload != wire::Workload::kCompletion && tokens_out_ != order_.tokens_max) {
    return end(std::nullopt, worker_reset("it did not answer each input"));
  }
  if (event->receipt) {
    const std::string_view field =
        contradiction(*event->receipt, order_.expected, base::to_hex(output_hash_.digest()), tokens_out_);
    if (!field.empty()) {
      return end(std::nullopt, worker_reset("its receipt contradicts the job").with("field", std::string(field)));
    }
  }
  end(std::move(*event), std::nullopt);
}

void Relay::Execution::take_error(std::string_view data) {
  const auto body = wire::decode<wire::ErrorBody>(data);
  end(std::nullopt, body ? shortened(wire::to_error(*body)) : worker_reset("its error event is not valid"));
}

void Relay::Execution::on_end(const base::Result<>& result) {
  if (ended_) return;
  if (!result && result.error().code == ErrorCode::kCancelled) return end(std::nullopt, result.error());
  if (!result && result.error().code == ErrorCode::kUnreachable) return end(std::nullopt, result.error());
  if (status_ >= 400 && result) {  // else what it says may be cut short
    net::Response response;
    response.status = status_;
    response.body = std::move(refusal_);
    return end(std::nullopt, refusal_of(shortened(net::http::error_of(response))));
  }
  if (status_ == 0) return end(std::nullopt, worker_reset("it did not answer"));
  end(std::nullopt, worker_reset("its stream broke off"));
}

void Relay::Execution::end(std::optional<wire::EndEvent> end_event, std::optional<base::Error> error) {
  ended_ = true;
  {
    const std::lock_guard lock(mutex_);
    ended_ms_ = relay_.options_.clock->now().mono_ms;
    paused_ = false;
    order_.stream->relay_paused(false, *ended_ms_);
    if (error) {
      aborted_ = true;
      handle_.cancel();
    } else {
      handle_.resume();
    }
  }
  relay_.options_.hub->relay_ends(*order_.stream);
  relay_.drop(order_.execution, error.has_value());  // before the report: whoever has it finds nothing left to abort
  reports_.ended({.tokens_out = tokens_out_, .end = std::move(end_event), .error = std::move(error)});
}

void Relay::execute(Order order, Reports reports) {
  const std::uint64_t id = order.execution;
  const auto execution = std::make_shared<Execution>(*this, std::move(order), std::move(reports));
  {
    const std::lock_guard lock(mutex_);
    running_.emplace(id, execution);
  }
  execution->begin();
}

void Relay::abort(std::uint64_t execution) {
  std::shared_ptr<Execution> running;
  {
    const std::lock_guard lock(mutex_);
    const auto it = running_.find(execution);
    if (it == running_.end()) return;
    running = it->second;
  }
  running->abort();
}

void Relay::tick() {
  std::vector<std::shared_ptr<Execution>> running;
  {
    const std::lock_guard lock(mutex_);
    running.reserve(running_.size());
    for (const auto& [id, execution] : running_) running.push_back(execution);
  }
  for (const auto& execution : running) execution->tick();
  const std::int64_t now_ms = options_.clock->now().mono_ms;
  const std::lock_guard lock(mutex_);
  std::erase_if(ending_, [now_ms](const auto& weak) {
    const auto execution = weak.lock();
    return execution == nullptr || execution->is_over(now_ms);
  });
}

void Relay::drop(std::uint64_t execution, bool is_closed) {
  const std::lock_guard lock(mutex_);
  const auto it = running_.find(execution);
  if (it == running_.end()) return;
  if (!is_closed) ending_.push_back(it->second);
  running_.erase(it);
}

}  // namespace llorch::orchestratord::streams
