#include "bench/serve/worker/mock_worker.h"

#include <fmt/format.h>

#include <iterator>

#include "net/http/message.h"
#include "net/sse/sse.h"
#include "wire/json.h"
#include "wire/task.h"

namespace llorch::bench {
namespace {

constexpr std::size_t kOutBytesMax = 64 << 10;
constexpr int kTokensPerTurn = 256;  // then new jobs get their turn
constexpr std::int64_t kSecond = 1'000'000'000;

void append_chunk(std::string& out, std::string_view bytes) {
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", bytes.size());
  out.append(bytes).append("\r\n");
}

void append_event(std::string& out, std::string_view event, std::string_view json) {
  std::string frame;
  net::sse::append_event(frame, {.event = event, .id = {}, .data = json});
  append_chunk(out, frame);
}

void append_response(std::string& out, int status, std::string_view json) {
  fmt::format_to(std::back_inserter(out),
                 "HTTP/1.1 {} Mock\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", status,
                 json.size(), json);
}

void* owner_of(std::uint64_t number) { return reinterpret_cast<void*>(number); }

}  // namespace

MockWorker::MockWorker(MockWorkerOptions options) : options_(options), listener_(listen_on_loopback(port_)) {
  poller_.add(listener_, owner_of(0));
}

void MockWorker::run(const std::atomic<bool>& stop) {
  while (!stop) {
    const std::int64_t now = now_ns();
    std::int64_t until = now + kSecond / 10;
    if (!due_.empty()) until = std::min(until, due_.top().at_ns);
    if (!taking_.empty()) until = now;
    for (const epoll_event& event : poller_.wait(until)) {
      const auto number = reinterpret_cast<std::uint64_t>(event.data.ptr);
      number == 0 ? accept_all() : on_event(number, event.events);
    }
    send_due(now_ns());
    send_as_taken();
  }
}

void MockWorker::accept_all() {
  while (true) {
    auto connection = std::make_shared<Connection>(chunks_);
    connection->fd = accept_from(listener_);
    if (connection->fd.get() < 0) return;
    connection->number = next_number_++;
    poller_.add(connection->fd, owner_of(connection->number));
    connections_.emplace(connection->number, std::move(connection));
  }
}

void MockWorker::on_event(std::uint64_t number, std::uint32_t events) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  const ConnectionPtr connection = found->second;
  bool open = true;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) open = read(*connection);
  if (open && (events & EPOLLOUT) != 0) open = flush(*connection);
  if (!open) return drop(number);
  go_on(*connection);
}

// Lists a job that goes as fast as it is taken, unless its socket is full.
void MockWorker::go_on(Connection& connection) {
  if (options_.tokens_per_s > 0 || connection.listed || !connection.out.empty()) return;
  if (!connection.job || waits(*connection.job)) return;
  connection.listed = true;
  taking_.push_back(connection.number);
}

bool MockWorker::read(Connection& connection) {
  bool drained = false;
  while (!drained) {
    std::string_view bytes;
    if (!read_some(connection.fd, bytes, drained)) return false;
    connection.in += bytes;
  }
  if (!connection.in.empty()) take_request(connection);
  return flush(connection);
}

void MockWorker::take_request(Connection& connection) {
  while (!connection.in.empty()) {
    const auto step = connection.parser.feed(connection.in);
    if (!step) fail("the worker was sent something that is not HTTP");
    connection.in.erase(0, step->consumed);
    if (step->status == net::h1::ParseStatus::kNeedMore) return;
    if (step->status != net::h1::ParseStatus::kDone) continue;
    net::h1::RequestParser parser = std::exchange(connection.parser, net::h1::RequestParser({}, chunks_));
    if (parser.target() == "/execute") {
      auto request = wire::decode<wire::ExecuteRequest>(parser.body());
      if (!request) fail("the worker was sent an execute request that is not valid: " + request.error().message);
      return begin(connection, std::move(*request));
    }
    return append_response(connection.out, 202, R"({"job_id":"","status":"unknown"})");
  }
}

void MockWorker::begin(Connection& connection, wire::ExecuteRequest request) {
  static const std::string kHead =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  wire::StartedEvent started;
  started.job_id = request.job_id;
  started.seed = request.seed.value_or(0);
  connection.out += kHead;
  append_event(connection.out, "started", wire::encode(started));
  connection.job.emplace();
  Job& job = *connection.job;
  job.request = std::move(request);
  if (waits(job)) return;
  if (options_.tokens_per_s == 0) return;  // go_on() lists it
  // The golden ratio spreads the jobs' first tokens, and so all their tokens, evenly over the period.
  const double phase = static_cast<double>(connection.number) * 0.6180339887498949;
  const double period_ns = 1e9 / options_.tokens_per_s;
  job.due_ns =
      now_ns() + static_cast<std::int64_t>((phase - static_cast<double>(static_cast<std::int64_t>(phase))) * period_ns);
  due_.push({job.due_ns, connection.number});
}

bool MockWorker::waits(const Job& job) const { return options_.hold_after >= 0 && job.next >= options_.hold_after; }

void MockWorker::send_due(std::int64_t now) {
  const auto period_ns = options_.tokens_per_s > 0 ? static_cast<std::int64_t>(1e9 / options_.tokens_per_s) : 0;
  for (int i = 0; i < kTokensPerTurn && !due_.empty() && due_.top().at_ns <= now; ++i) {
    const Due next = due_.top();
    due_.pop();
    const auto found = connections_.find(next.number);
    if (found == connections_.end()) continue;
    Connection& connection = *found->second;
    if (!write_tokens(connection, 1)) {
      drop(next.number);
    } else if (connection.job && !waits(*connection.job)) {
      // A late token does not make the next ones come in a rush.
      due_.push({std::max(next.at_ns + period_ns, now), next.number});
    }
  }
}

void MockWorker::send_as_taken() {
  std::vector<std::uint64_t> round;
  round.swap(taking_);
  for (const std::uint64_t number : round) {
    const auto found = connections_.find(number);
    if (found == connections_.end()) continue;
    Connection& connection = *found->second;
    connection.listed = false;
    if (!write_tokens(connection, options_.burst_tokens)) {
      drop(number);
    } else {
      go_on(connection);
    }
  }
}

// Nothing while the socket is full. False: the peer is gone.
bool MockWorker::write_tokens(Connection& connection, std::int64_t count) {
  for (std::int64_t i = 0; i < count && connection.job && connection.out.size() < kOutBytesMax; ++i) {
    if (waits(*connection.job)) break;
    write_token(connection);
    if (connection.job->next == connection.job->request.max_tokens) write_end(connection);
  }
  return flush(connection);
}

void MockWorker::write_token(Connection& connection) {
  Job& job = *connection.job;
  char text[32];
  const auto end = options_.stamps
                       ? fmt::format_to(text, "{:016x}", now_ns())
                       : fmt::format_to(text, " w{}-{}", job.request.seed.value_or(0) % 1000, job.next * 7919 % 1000);
  const std::string_view word(text, static_cast<std::size_t>(end - text));
  job.output.update(word);
  char frame[128];
  const auto frame_end =
      fmt::format_to(frame, "event: token\ndata: {{\"t\":\"{}\",\"i\":{},\"id\":{}}}\n\n", word, job.next, job.next);
  append_chunk(connection.out, {frame, static_cast<std::size_t>(frame_end - frame)});
  ++job.next;
}

void MockWorker::write_end(Connection& connection) {
  Job& job = *connection.job;
  wire::EndEvent end;
  end.job_id = job.request.job_id;
  end.tokens_in = job.request.prompt_tokens ? static_cast<std::int64_t>(job.request.prompt_tokens->size()) : 0;
  end.tokens_out = job.next;
  end.stop_reason = wire::StopReason::kMaxTokens;
  wire::Receipt receipt;
  receipt.model_digest = kModelDigest;
  receipt.seed = job.request.seed.value_or(0);
  receipt.prompt_sha256 = job.request.prompt_sha256.value_or("");
  receipt.output_sha256 = base::to_hex(job.output.digest());
  receipt.tokens_out = job.next;
  end.receipt = receipt;
  append_event(connection.out, "end", wire::encode(end));
  connection.out += "0\r\n\r\n";
  connection.job.reset();
}

bool MockWorker::flush(Connection& connection) { return send_some(connection.fd, connection.out, connection.sent); }

void MockWorker::drop(std::uint64_t number) { connections_.erase(number); }

}  // namespace llorch::bench
