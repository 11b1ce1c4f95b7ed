#include "sim/world/exchange.h"

#include <utility>

namespace llorch::sim {

// Dropped within a stream: the client sees that it is not complete.
SimExchange::~SimExchange() {
  if (!closed_) wire_->close(Wire::kServer);
}

void SimExchange::listen() {
  wire_->on_broken(Wire::kServer, [self = weak_from_this()] {
    if (const auto exchange = self.lock()) exchange->close(net::CloseReason::kPeerGone);
  });
}

bool SimExchange::respond(net::Response response) {
  if (!start_stream(response.status, {})) return false;
  return end();
}

bool SimExchange::respond_error(const base::Error& error) {
  return respond({.status = base::info(error.code).http_status, .headers = {}, .body = {}});
}

bool SimExchange::start_stream(int status, net::http::Headers) {
  if (closed_ || started_) return false;
  started_ = true;
  if (on_status_) on_status_(status);
  wire_->send(Wire::kServer, [sink = sink_, status] { sink->on_head(status); });
  return true;
}

bool SimExchange::write(std::string_view bytes) {
  if (closed_ || ended_) return false;
  if (std::exchange(lose_first_event_, false)) bytes.remove_prefix(bytes.find("\n\n") + 2);
  queued_bytes_ += bytes.size();
  queue_.emplace_back(bytes);
  flush();
  return true;
}

bool SimExchange::end() {
  if (closed_ || ended_) return false;
  ended_ = true;
  flush();
  return true;
}

void SimExchange::flush() {
  if (closed_ || sink_->stalled) return;
  for (std::string& bytes : queue_) {
    sent_bytes_ += bytes.size();
    wire_->send(Wire::kServer, [sink = sink_, bytes = std::move(bytes)] { sink->on_bytes(bytes); });
  }
  queue_.clear();
  queued_bytes_ = 0;
  if (on_drain_) loop_.post(server_, 10, std::exchange(on_drain_, nullptr));
  if (ended_) close(net::CloseReason::kFinished);
}

void SimExchange::abort() { close(net::CloseReason::kAborted); }

void SimExchange::on_drain(std::size_t, std::function<void()> fn) { on_drain_ = std::move(fn); }

void SimExchange::on_close(std::function<void(net::CloseReason)> fn) {
  if (closed_) return fn(reason_);
  on_close_ = std::move(fn);
}

void SimExchange::close(net::CloseReason reason) {
  if (closed_) return;
  closed_ = true;
  reason_ = reason;
  on_drain_ = nullptr;
  if (reason != net::CloseReason::kFinished && on_lost_) on_lost_(reason);
  on_lost_ = nullptr;
  wire_->close(Wire::kServer);
  // On a thread of its own: whoever writes or aborts may hold a lock that the callback takes.
  loop_.post(server_, 10, [self = shared_from_this()] {
    if (const auto fn = std::exchange(self->on_close_, nullptr)) fn(self->reason_);
  });
}

void SimExchange::drop() {
  closed_ = true;
  on_drain_ = nullptr;
  on_close_ = on_lost_ = nullptr;
  on_status_ = nullptr;
}

}  // namespace llorch::sim
