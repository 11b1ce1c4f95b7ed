#include "orchestratord/http/tasks/collector.h"

#include <utility>

namespace llorch::orchestratord::http::tasks {

bool Collector::close(std::optional<base::Result<net::Response>> answer) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  closed_ = true;
  reason_ = answer ? net::CloseReason::kFinished : net::CloseReason::kAborted;
  executor_.post([done = std::move(done_), answer = std::move(answer)]() mutable { done(std::move(answer)); });
  if (on_close_) executor_.post([fn = std::move(on_close_), reason = reason_] { fn(reason); });
  return true;
}

bool Collector::respond(net::Response response) { return close(std::move(response)); }

bool Collector::respond_error(const base::Error& error) {
  return close(base::Result<net::Response>(base::fail(error)));
}

bool Collector::start_stream(int status, net::http::Headers headers) {
  const std::lock_guard lock(mutex_);
  answer_.status = status;
  answer_.headers = std::move(headers);
  return !closed_;
}

bool Collector::write(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  answer_.body += bytes;
  return !closed_;
}

bool Collector::end() {
  net::Response whole;
  {
    const std::lock_guard lock(mutex_);
    whole = std::move(answer_);
  }
  return close(std::move(whole));
}

void Collector::abort() { close(std::nullopt); }

std::uint64_t Collector::sent_bytes() const {
  const std::lock_guard lock(mutex_);
  return answer_.body.size();
}

bool Collector::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void Collector::on_drain(std::size_t, std::function<void()> fn) { executor_.post(std::move(fn)); }

void Collector::on_close(std::function<void(net::CloseReason)> fn) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      on_close_ = std::move(fn);
      return;
    }
  }
  fn(reason_);
}

}  // namespace llorch::orchestratord::http::tasks
