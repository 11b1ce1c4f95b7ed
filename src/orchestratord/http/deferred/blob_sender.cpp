#include "orchestratord/http/deferred/blob_sender.h"

#include <cstdint>
#include <memory>
#include <utility>

namespace llorch::orchestratord::http::deferred {
namespace {

constexpr std::size_t kSendBytes = 256 << 10;
constexpr std::size_t kQueuedBytesMax = 1 << 20;

struct Sender : std::enable_shared_from_this<Sender> {
  Sender(const Context& context, std::vector<std::string> ids, net::ExchangePtr exchange)
      : context_(context), ids_(std::move(ids)), exchange_(std::move(exchange)) {}

  void send() {
    while (exchange_->queued_bytes() < kQueuedBytesMax) {
      if (at_ == ids_.size()) return void(exchange_->end());
      const auto bytes = context_.blobs->read(ids_[at_], offset_, kSendBytes);
      if (!bytes) return exchange_->abort();
      offset_ = bytes->empty() ? 0 : offset_ + bytes->size();
      if (bytes->empty()) {
        ++at_;
      } else if (!exchange_->write(*bytes)) {
        return;
      }
    }
    exchange_->on_drain(kSendBytes,
                        [self = shared_from_this()] { self->context_.files->post([self] { self->send(); }); });
  }

 private:
  const Context& context_;
  const std::vector<std::string> ids_;
  const net::ExchangePtr exchange_;
  std::size_t at_ = 0;  // of ids_
  std::uint64_t offset_ = 0;
};

}  // namespace

void send_blobs(const Context& context, std::vector<std::string> ids, std::string_view content_type,
                const net::ExchangePtr& exchange) {
  exchange->start_stream(200, {{"Content-Type", std::string(content_type)}});
  std::make_shared<Sender>(context, std::move(ids), exchange)->send();
}

}  // namespace llorch::orchestratord::http::deferred
