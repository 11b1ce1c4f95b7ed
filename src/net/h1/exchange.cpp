#include "net/h1/exchange.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/assert.h"
#include "base/clock.h"
#include "net/h1/wire.h"

namespace llorch::net::h1 {
namespace {

constexpr std::size_t kChunkHeadBytes = 18;  // 16 hex digits, CR, LF
constexpr std::size_t kKeptBytes = 512;      // of a buffer between two writes
constexpr std::size_t kWriteThroughBytesMax = 4096;

// "<size in hex>\r\n" to the end of `line`; where it begins.
char* write_chunk_head(std::size_t size, std::span<char, kChunkHeadBytes> line) {
  static constexpr char kHex[] = "0123456789abcdef";
  char* at = line.data() + kChunkHeadBytes;
  *--at = '\n';
  *--at = '\r';
  do {
    *--at = kHex[size & 0xf];
    size >>= 4;
  } while (size != 0);
  return at;
}

}  // namespace

// The port is used under the mutex only: after close() no thread is inside the connection any more.
void ExchangeState::request_flush_locked() {
  if (flush_requested_) return;
  if (const auto port = port_.lock()) {
    flush_requested_ = true;
    port->flush_soon();
  }
}

// Most events of a stream meet a socket that has room: they go there from the stack, without the queue and its turn of the
// io thread.
bool ExchangeState::write_through_locked(std::string_view bytes) {
  if (!framed_.empty() || !pending_.empty() || bytes.size() > kWriteThroughBytesMax) return false;
  const auto port = port_.lock();
  if (port == nullptr || !port->can_write_now()) return false;
  std::array<char, kChunkHeadBytes + kWriteThroughBytesMax + 2> wire;  // not initialised on purpose
  char* const body = wire.data() + kChunkHeadBytes;
  char* end = std::copy(bytes.begin(), bytes.end(), body);
  char* begin = body;
  if (chunked_) {
    begin = write_chunk_head(bytes.size(), std::span(wire).first<kChunkHeadBytes>());
    *end++ = '\r';
    *end++ = '\n';
  }
  const std::size_t taken = port->write_now({begin, end});
  if (taken == 0) return false;
  sent_ += taken;
  framed_.assign(begin + taken, end);
  queued_ += framed_.size();
  if (!framed_.empty()) request_flush_locked();
  return true;
}

void ExchangeState::queue_locked(std::string_view bytes) {
  queued_ += bytes.size();
  if (chunked_ && pending_.empty()) pending_.assign(kChunkHeadBytes, '0');
  pending_ += bytes;
}

// Without a length it is that of a stream.
std::string ExchangeState::head_locked(int status, http::Headers headers, std::optional<std::size_t> length) const {
  for (const auto& [name, value] : info_.headers.fields()) headers.set(name, value);
  const Framing stream = chunked_ ? Framing::kChunked : Framing::kUntilClose;
  return write_head(ResponseHead{.status = status,
                                 .headers = &headers,
                                 .framing = length ? Framing::kContentLength : stream,
                                 .content_length = length.value_or(0),
                                 .keep_alive = info_.keep_alive,
                                 .correlation_id = info_.correlation_id.value,
                                 .unix_ms = base::SystemClock().now().unix_ms});
}

bool ExchangeState::respond(Response response) {
  const std::lock_guard lock(mutex_);
  if (closed_ || phase_ != Phase::kUnanswered) return false;
  if (response.status == 204 || response.status == 304) response.body.clear();
  framed_ = head_locked(response.status, std::move(response.headers), response.body.size());
  if (info_.is_head) response.body.clear();
  queued_ += framed_.size();
  queued_ += response.body.size();
  pending_ = std::move(response.body);
  phase_ = Phase::kEnded;
  request_flush_locked();
  return true;
}

bool ExchangeState::respond_error(const base::Error& error) {
  return respond(info_.write_error(error, info_.correlation_id));
}

bool ExchangeState::start_stream(int status, http::Headers headers) {
  const std::lock_guard lock(mutex_);
  if (closed_ || phase_ != Phase::kUnanswered) return false;
  chunked_ = !info_.is_http_1_0;
  info_.keep_alive = info_.keep_alive && chunked_;
  framed_ = head_locked(status, std::move(headers), std::nullopt);
  queued_ += framed_.size();
  if (info_.is_head) chunked_ = false;  // not even the chunk that ends it
  phase_ = info_.is_head ? Phase::kEnded : Phase::kStreaming;
  request_flush_locked();
  return true;
}

bool ExchangeState::write(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (closed_ || phase_ != Phase::kStreaming) return false;
  if (bytes.empty() || write_through_locked(bytes)) return true;
  queue_locked(bytes);
  request_flush_locked();
  return true;
}

bool ExchangeState::end() {
  const std::lock_guard lock(mutex_);
  if (closed_ || phase_ != Phase::kStreaming) return false;
  phase_ = Phase::kEnded;
  flush_requested_ =
      false;  // also a connection that waits for its client must learn of the end: the stall limit starts
  request_flush_locked();
  return true;
}

void ExchangeState::abort() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  if (const auto port = port_.lock()) port->abort_soon();
}

void ExchangeState::abandon() {
  Phase phase;
  {
    const std::lock_guard lock(mutex_);
    phase = phase_;
  }
  if (phase == Phase::kStreaming) abort();
  if (phase == Phase::kUnanswered) {
    respond_error(
        base::Error{base::ErrorCode::kInternal, "the request was dropped without an answer; report this as a bug", {}});
  }
}

void ExchangeState::on_drain(std::size_t low_water_bytes, std::function<void()> fn) {
  std::function<void()> replaced;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  low_water_bytes_ = low_water_bytes;
  replaced = std::exchange(drain_, std::move(fn));
  request_flush_locked();  // the connection looks whether it is low already
}

void ExchangeState::on_close(std::function<void(CloseReason)> fn) {
  std::unique_lock lock(mutex_);
  ASSERT(!close_fn_given_, "one on_close callback per exchange");
  close_fn_given_ = true;
  if (!closed_) {
    close_fn_ = std::move(fn);
    return;
  }
  const CloseReason reason = *closed_;
  lock.unlock();
  fn(reason);
}

bool ExchangeState::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_.has_value();
}

ExchangeState::Batch ExchangeState::take(std::string spent) {
  spent.clear();
  if (spent.capacity() > kKeptBytes) std::string().swap(spent);
  const std::lock_guard lock(mutex_);
  flush_requested_ = false;
  Batch batch{.bytes = std::exchange(pending_, std::move(spent)), .begin = 0, .is_last = phase_ == Phase::kEnded};
  std::size_t framing = 0;
  if (chunked_ && !batch.bytes.empty()) {
    const std::span<char, kChunkHeadBytes> room(batch.bytes.data(), kChunkHeadBytes);
    const char* const head = write_chunk_head(batch.bytes.size() - kChunkHeadBytes, room);
    batch.begin = static_cast<std::size_t>(head - batch.bytes.data());
    batch.bytes += "\r\n";
    framing = kChunkHeadBytes - batch.begin + 2;
  }
  if (chunked_ && batch.is_last) {
    batch.bytes += "0\r\n\r\n";
    framing += 5;
    chunked_ = false;  // written once
  }
  if (!framed_.empty()) {
    framed_.append(batch.wire());
    batch.bytes = std::exchange(framed_, {});
    batch.begin = 0;
  }
  queued_ += framing;
  return batch;
}

void ExchangeState::sent(std::size_t bytes) {
  std::function<void()> drained;
  {
    const std::lock_guard lock(mutex_);
    queued_ -= bytes;
    sent_ += bytes;
    if (drain_ && queued_ <= low_water_bytes_) drained = std::exchange(drain_, nullptr);
  }
  if (drained) drained();
}

bool ExchangeState::ended() const {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::kEnded;
}

bool ExchangeState::is_streaming() const {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::kStreaming;
}

bool ExchangeState::keep_alive() const {
  const std::lock_guard lock(mutex_);
  return info_.keep_alive;
}

void ExchangeState::forbid_keep_alive() {
  const std::lock_guard lock(mutex_);
  info_.keep_alive = false;
}

void ExchangeState::close(CloseReason reason) {
  std::function<void(CloseReason)> on_close;
  std::function<void()> dropped;  // destroyed after the lock is released
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = reason;
    on_close = std::exchange(close_fn_, nullptr);
    dropped = std::exchange(drain_, nullptr);
    framed_.clear();
    std::string().swap(pending_);
    queued_ = 0;
  }
  if (on_close) on_close(reason);
}

namespace {

class ExchangeHandle final : public Exchange {
 public:
  ExchangeHandle(std::shared_ptr<ExchangeState> state, RequestLease lease)
      : state_(std::move(state)), lease_(std::move(lease)) {}
  ~ExchangeHandle() override { state_->abandon(); }

  bool respond(Response response) override {
    lease_.release();
    return state_->respond(std::move(response));
  }
  bool respond_error(const base::Error& error) override {
    lease_.release();
    return state_->respond_error(error);
  }
  void release_request() override { lease_.release(); }
  base::Result<> hold(std::size_t bytes) override { return lease_.grow(bytes); }
  bool start_stream(int status, http::Headers headers) override {
    lease_.release();
    return state_->start_stream(status, std::move(headers));
  }
  bool write(std::string_view bytes) override { return state_->write(bytes); }
  bool end() override { return state_->end(); }
  void abort() override { state_->abort(); }
  std::size_t queued_bytes() const override { return state_->queued_bytes(); }
  std::uint64_t sent_bytes() const override { return state_->sent_bytes(); }
  bool closed() const override { return state_->closed(); }
  void on_drain(std::size_t low_water_bytes, std::function<void()> fn) override {
    state_->on_drain(low_water_bytes, std::move(fn));
  }
  void on_close(std::function<void(CloseReason)> fn) override { state_->on_close(std::move(fn)); }

 private:
  std::shared_ptr<ExchangeState> state_;
  RequestLease lease_;
};

}  // namespace

ExchangePtr make_exchange(std::shared_ptr<ExchangeState> state, RequestLease lease) {
  return std::make_shared<ExchangeHandle>(std::move(state), std::move(lease));
}

}  // namespace llorch::net::h1
