#include "orchestratord/http/blob_sender.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace llorch::orchestratord::http {
namespace {

// A client's socket queue holds at most so much, is filled again below kQueuedBytesLow, by so much at a time.
constexpr std::size_t kQueuedBytesMax = 256 << 10;
constexpr std::size_t kQueuedBytesLow = 64 << 10;
constexpr std::size_t kSendBytes = 64 << 10;
constexpr std::int64_t kTakingLookMs = 1000;  // how often it is looked whether a client takes something

struct Sender : std::enable_shared_from_this<Sender> {
  Sender(const Context& context, std::vector<std::string> ids, net::ExchangePtr exchange)
      : context_(context), ids_(std::move(ids)), exchange_(std::move(exchange)) {}

  void start() {
    sent_changed_ms_ = context_.clock->now().mono_ms;
    send();
    look();
  }

 private:
  void send() {
    while (exchange_->queued_bytes() + kSendBytes <= kQueuedBytesMax) {
      if (at_ == ids_.size()) {
        ended_ = true;
        return void(exchange_->end());
      }
      const auto bytes = context_.blobs->read(ids_[at_], offset_, kSendBytes);
      if (!bytes) return exchange_->abort();
      offset_ = bytes->empty() ? 0 : offset_ + bytes->size();
      if (bytes->empty()) {
        ++at_;
      } else if (!exchange_->write(*bytes)) {
        return;
      }
    }
    exchange_->on_drain(kQueuedBytesLow,
                        [self = shared_from_this()] { self->context_.files->post([self] { self->send(); }); });
  }

  // Until all is written: from there on the server bounds how long it lies.
  void look() {
    if (ended_ || exchange_->closed()) return;
    const std::int64_t now_ms = context_.clock->now().mono_ms;
    const std::int64_t timeout_ms = context_.config->orchestratord.stream.slow_client_timeout_ms;
    const std::uint64_t sent = exchange_->sent_bytes();
    if (sent != sent_bytes_ || exchange_->queued_bytes() == 0) {
      sent_bytes_ = sent;
      sent_changed_ms_ = now_ms;
    } else if (now_ms - sent_changed_ms_ >= timeout_ms) {
      return exchange_->abort();
    }
    context_.files->post_after(std::min(kTakingLookMs, timeout_ms), [self = shared_from_this()] { self->look(); });
  }

  const Context& context_;
  const std::vector<std::string> ids_;
  const net::ExchangePtr exchange_;
  std::size_t at_ = 0;  // of ids_
  std::uint64_t offset_ = 0;
  bool ended_ = false;
  std::uint64_t sent_bytes_ = 0;
  std::int64_t sent_changed_ms_ = 0;
};

}  // namespace

void send_blobs(const Context& context, std::vector<std::string> ids, std::string_view content_type,
                const net::ExchangePtr& exchange) {
  exchange->start_stream(200, {{"Content-Type", std::string(content_type)}});
  std::make_shared<Sender>(context, std::move(ids), exchange)->start();
}

}  // namespace llorch::orchestratord::http
