#include "sim/world/client.h"

#include <fmt/core.h>

#include "orchestratord/streams/replay/event_id.h"
#include "sim/world/api.h"
#include "sim/world/orchestrator.h"
#include "sim/world/world.h"
#include "wire/json.h"

namespace llorch::sim {

using base::ErrorCode;

namespace {

constexpr std::int64_t kClientTimeoutMs = 30'000;
constexpr std::int64_t kPollMs = 2'000;
constexpr std::int64_t kPatienceMs = 120'000;  // of one whose job was refused; a day's budget comes back at midnight

wire::SubmitRequest submit_request_of(const Options& options, const JobRequest& r) {
  wire::SubmitRequest out;
  out.model = options.models[static_cast<std::size_t>(r.model)].name;
  out.prompt = {.text = std::string(static_cast<std::size_t>(r.tokens_in), 'p')};
  out.max_tokens = r.max_tokens;
  out.task_id = r.task_id;
  out.session_id = r.session;
  out.priority = r.priority;
  out.stop = {kPayloadNeedle + r.task_id.substr(r.task_id.size() - 12)};  // nothing generates it
  out.seed = r.seed;
  out.on_disconnect = r.on_disconnect;
  out.placement = r.placement;
  out.timeout_ms = r.timeout_ms;
  out.deadline_ms = r.deadline_ms;
  return out;
}

std::uint64_t first_8_bytes(const base::Sha256Digest& digest) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < 8; ++i) out = out << 8 | digest[i];
  return out;
}

}  // namespace

// One connection to /events.
class Client::Reader final : public StreamSink, public std::enable_shared_from_this<Reader> {
 public:
  explicit Reader(Client& client) : client_(client) {}

  void on_head(int status) override { status_ = status; }
  void on_bytes(const std::string& bytes) override {
    if (over_) return;
    std::vector<net::sse::Event> events;
    if (!decoder_.feed(bytes, events)) client_.wrong("the stream is not valid");
    const auto self = shared_from_this();
    for (const net::sse::Event& event : events) {
      if (over_ || !client_.take(event)) return;
    }
  }
  void on_gone() {
    if (std::exchange(over_, true)) return;
    if (status_ == 404) client_.unknown();
    client_.reader_over(status_ == 410);
  }
  // Lets go of the connection without a word.
  void drop() {
    over_ = true;
    if (wire) wire->close(Wire::kClient);
  }

  WirePtr wire;

 private:
  Client& client_;
  net::sse::Decoder decoder_;
  int status_ = 0;
  bool over_ = false;
};

Client::Client(World& world, ClientPlan plan)
    : world_(world), plan_(std::move(plan)), process_{.name = plan_.request.task_id, .host = kClientsHost} {
  process_.start();
  world_.loop.post(process_, plan_.submit_at_ms * kMs, [this] {
    world_.oracle.asks(plan_.request);
    submit();
    if (plan_.cancels_after_ms) world_.loop.post(process_, *plan_.cancels_after_ms * kMs, [this] { cancel(); });
  });
}

void Client::wrong(const std::string& what) {
  world_.oracle.violate(fmt::format("the client of {}: {}", plan_.request.task_id, what));
}

// ---- submission -----------------------------------------------------------------------------------------------------

net::http::Principal Client::principal() const {
  const std::string name = caller_of(plan_.request);
  return {.role = net::http::Role::kOperator, .name = name, .identity = name, .account = name};
}

void Client::submit() {
  if (done_) return;
  ask_api(world_, process_,
          {.caller = principal(),
           .path = "/v2/tasks",
           .body = wire::encode(submit_request_of(world_.options, plan_.request)),
           .timeout_ms = kClientTimeoutMs},
          [this](const ApiAnswer& answer) {
            if (answer) {
              accepted_ = true;
              world_.oracle.told_202(plan_.request.task_id);
              return follow();
            }
            if (!is_unanswered(answer.error())) return refused(answer.error());
            if (answer.error().code != ErrorCode::kUnreachable) world_.oracle.reached("202 lost on its way");
            world_.loop.post(process_, world_.dice_work.between(100, 3'000) * kMs, [this] { submit(); });
          });
}

void Client::refused(const base::Error& error) {
  const std::int64_t after_ms = retry_after_ms(error);
  // The pool its placement names may not be registered yet.
  const bool no_pool = error.code == ErrorCode::kInvalidParams && plan_.request.placement != wire::Placement{};
  if (error.code == ErrorCode::kInternal || error.code == ErrorCode::kConflict ||
      (error.code == ErrorCode::kInvalidParams && !no_pool)) {
    wrong(fmt::format("its job is refused with {}: {}", error.name(), error.message));
  }
  // Nobody has looked at the model yet: it waits for that as long as it takes.
  const bool counts = error.code != ErrorCode::kPoolUnready;
  if (error.code == ErrorCode::kDeadlineUnmet || after_ms > kPatienceMs ||
      (counts && ++refusals_ > plan_.tries_after_refusal)) {
    done_ = true;
    return;
  }
  world_.loop.post(process_, (after_ms + world_.dice_work.below(500)) * kMs, [this] { submit(); });
}

void Client::follow() { plan_.polls ? poll() : read(true); }

void Client::cancel() {
  if (done_) return;
  world_.oracle.asks_cancel(plan_.request.task_id);
  ask_api(world_, process_,
          {.caller = principal(),
           .method = "DELETE",
           .path = "/v2/tasks/" + plan_.request.task_id,
           .timeout_ms = kClientTimeoutMs},
          [this, knows = accepted_](const ApiAnswer& answer) {
            const bool not_found = !answer && answer.error().code == ErrorCode::kJobNotFound;
            if (answer || (!not_found && !is_unanswered(answer.error()))) return;
            if (not_found && knows) unknown();
            world_.loop.post(process_, 1'000 * kMs, [this] { cancel(); });
          });
}

// Nobody knows its job. That is the end only if the job is so long over that its row is gone.
void Client::unknown() {
  world_.oracle.told_unknown(plan_.request.task_id);
  if (world_.disk.retired.contains(plan_.request.task_id)) done_ = true;
}

void Client::poll() {
  ask_api(world_, process_,
          {.caller = principal(),
           .method = "GET",
           .path = "/v2/tasks/" + plan_.request.task_id,
           .timeout_ms = kClientTimeoutMs},
          [this](const ApiAnswer& answer) {
            if (!answer && answer.error().code == ErrorCode::kJobNotFound) unknown();
            if (done_) return;
            const auto view = decoded<wire::JobView>(answer);
            if (view && wire::is_terminal(view->status)) {
              world_.oracle.told_status(plan_.request.task_id, view->status, view->tokens_out);
              done_ = true;
              return;
            }
            world_.loop.post(process_, kPollMs * kMs, [this] { poll(); });
          });
}

// ---- the stream -----------------------------------------------------------------------------------------------------

void Client::read(bool with_claim) {
  if (done_) return;
  std::optional<std::string> claim;
  if (with_claim && !last_event_id_.empty()) claim = last_event_id_;
  if (claim && tokens_ > 0) world_.oracle.reached("reconnect in mid-stream");
  if (!claim) {
    tokens_ = 0;
    next_seq_ = 0;
    hash_ = {};
    last_event_id_.clear();
    diverged_.reset();
  }
  const auto reader = std::make_shared<Reader>(*this);
  reader_ = reader;
  reader->wire = world_.network.connect(
      process_, world_.orchestrator_process,
      [this, claim, reader](const WirePtr& wire) {
        world_.orchestrator->events({principal(), plan_.request.task_id, claim}, wire, reader);
      },
      [reader] { reader->on_gone(); });
  reader->wire->on_broken(Wire::kClient, [reader] { reader->on_gone(); });
}

void Client::reader_over(bool answered_410) {
  if (stalled_) stop_stalling();
  if (done_) return;
  if (ending_known_) return poll();
  const bool claims = !answered_410;
  world_.loop.post(process_, world_.dice_work.between(50, 3'000) * kMs, [this, claims] { read(claims); });
}

// Whether the connection is read on.
bool Client::take(const net::sse::Event& event) {
  if (event.event == "metrics") return true;
  if (ending_known_) wrong("something came after the end");
  if (!event.id) {  // the claim was refused
    if (world_.faults_ever().diverges == 0) wrong("the server says that what the client holds is no prefix");
    reader_->drop();
    last_event_id_.clear();
    reader_over(true);
    return false;
  }
  return take_numbered(event);
}

bool Client::take_numbered(const net::sse::Event& event) {
  const auto id = orchestratord::streams::parse_event_id(*event.id);
  if (!id) {
    wrong("an event id is not valid");
    return false;
  }
  const bool error = event.event == "error";
  const bool terminal = error || event.event == "end";
  const bool from_store = terminal && next_seq_ == 0;  // a stored ending is alone
  // An ending in error may leave out what was sealed, and may come before what a restarted server has replayed.
  if (!error && !from_store && id->seq != next_seq_)
    wrong(fmt::format("event {} came instead of {}", id->seq, next_seq_));
  if (terminal) {
    if (event.event == "end" && id->seq - 2 != tokens_count(plan_.request))
      wrong("it ended before all tokens were there");
    if (event.event == "end" && !from_store && tokens_ != tokens_count(plan_.request))
      wrong("tokens are missing at the end");
    ended(event.event, event.data);
    return true;
  }
  if (event.event == "token") take_token(event);
  const std::uint64_t prefix = first_8_bytes(hash_.digest());
  if (id->prefix != prefix) wrong(fmt::format("event {} does not prove its prefix", id->seq));
  last_event_id_ = *event.id;
  next_seq_ = id->seq + 1;
  if (event.event == "token") after_token();
  return true;
}

void Client::take_token(const net::sse::Event& event) {
  const auto token = wire::decode<wire::TokenEvent>(event.data);
  if (!token || token->i != tokens_) return wrong(fmt::format("a token came instead of number {}", tokens_));
  const std::string right = token_text(plan_.request, token->i);
  const bool other = token->t != right;
  if (other && (world_.faults_ever().diverges == 0 || token->i < kDivergesAt || token->t != "other " + right)) {
    wrong(fmt::format("token {} is not the right one", tokens_));
  }
  // One run's tokens, or another's; never first the one and then the other.
  if (token->i >= kDivergesAt) {
    if (diverged_ && *diverged_ != other) wrong("two runs were spliced into one stream");
    diverged_ = other;
  }
  hash_.update_u32_le(static_cast<std::uint32_t>(token->i))
      .update_u32_le(static_cast<std::uint32_t>(token->t.size()))
      .update(token->t);
  ++tokens_;
}

void Client::after_token() {
  if (disconnects_ < plan_.disconnects_at.size() && tokens_ >= plan_.disconnects_at[disconnects_]) {
    ++disconnects_;
    world_.oracle.stream_lost(plan_.request.task_id);
    const auto reader = reader_;
    reader->drop();
    return reader_over(false);
  }
  if (plan_.stalls_at && !stalled_ && tokens_ == *plan_.stalls_at && !world_.healed()) {
    stalled_ = true;
    reader_->stalled = true;
    world_.loop.post(process_, world_.dice_work.between(500, 60'000) * kMs, [this] { stop_stalling(); });
  }
}

void Client::stop_stalling() {
  if (!reader_ || !reader_->stalled) return;
  reader_->stalled = false;
  world_.orchestrator->client_reads(reader_);
}

void Client::ended(std::string_view event, std::string_view data) {
  ending_known_ = true;
  world_.oracle.told_ending(plan_.request.task_id, event, data);
}

}  // namespace llorch::sim
