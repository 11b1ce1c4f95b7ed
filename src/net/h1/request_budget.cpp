#include "net/h1/request_budget.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace llorch::net::h1 {
namespace {

constexpr std::int64_t kRetryAfterMs = 1000;
constexpr std::size_t kSmallBytes = 64 << 10;

base::Error busy(std::string message, std::size_t held, std::size_t max) {
  return base::Error{base::ErrorCode::kServerBusy, std::move(message), {}}
      .with("held", static_cast<std::int64_t>(held))
      .with("held_max", static_cast<std::int64_t>(max))
      .with("retry_after_ms", kRetryAfterMs);
}

base::Error bytes_error(std::size_t held, std::size_t max, std::size_t limit) {
  return busy(fmt::format("requests of this server hold {} bytes of bodies, and {} is what there is for this one (its "
                          "limit is {} in all); send fewer at a time, or try again in {} ms",
                          held, max, limit, kRetryAfterMs),
              held, max);
}

// Whether a request of `bytes` fits beside `others` that handlers hold already.
base::Result<> fits(std::size_t bytes, std::size_t others, std::size_t limit) {
  const std::size_t half = limit / 2;
  const std::size_t max = bytes > kSmallBytes ? half - half / 4 : half;
  if (others > 0 && others + bytes > max) return base::fail(bytes_error(others, max, limit));
  return {};
}

}  // namespace

RequestLease::RequestLease(std::shared_ptr<Totals> totals, std::size_t bytes)
    : totals_(std::move(totals)), bytes_(bytes) {
  totals_->bytes += bytes_;
  ++totals_->requests;
}

RequestLease::RequestLease(RequestLease&& other) noexcept {
  const std::lock_guard lock(other.mutex_);
  totals_ = std::exchange(other.totals_, nullptr);
  bytes_ = other.bytes_;
}

base::Result<> RequestLease::grow(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (totals_ == nullptr) return {};
  TRY(fits(bytes_ + bytes, totals_->bytes - bytes_, totals_->bytes_max));
  totals_->bytes += bytes;
  bytes_ += bytes;
  return {};
}

void RequestLease::release() {
  const std::lock_guard lock(mutex_);
  if (totals_ == nullptr) return;
  totals_->bytes -= bytes_;
  --totals_->requests;
  totals_ = nullptr;
}

RequestBudget::Reader& RequestBudget::largest() const {
  const auto account = std::max_element(accounts_.begin(), accounts_.end(),
                                        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
  ASSERT(account != accounts_.end());
  return *account->second.readers.rbegin()->second;
}

base::Result<> RequestBudget::hold(Reader& reader, const std::string& account, std::size_t bytes) {
  ASSERT(bytes > 0);
  if (bytes == reader.bytes_) return {};
  if (reader.bytes_ == 0) reader.account_ = account;
  Account& mine = accounts_[account];
  mine.readers.erase({reader.bytes_, &reader});
  mine.bytes += bytes - reader.bytes_;
  received_bytes_ += bytes - reader.bytes_;
  reader.bytes_ = bytes;
  mine.readers.emplace(bytes, &reader);
  const std::size_t handled = handled_->bytes;
  while (received_bytes_ + handled > limits_.bytes_max) {
    Reader& who = largest();
    const base::Error error = bytes_error(received_bytes_ + handled, limits_.bytes_max, limits_.bytes_max);
    if (&who == &reader) {
      forget(reader);
      return base::fail(error);
    }
    who.give_way(error);
    ASSERT(who.bytes_ == 0, "a body gave way and is still held");
  }
  return {};
}

void RequestBudget::forget(Reader& reader) {
  if (reader.bytes_ == 0) return;
  const auto it = accounts_.find(reader.account_);
  it->second.readers.erase({reader.bytes_, &reader});
  it->second.bytes -= reader.bytes_;
  received_bytes_ -= std::exchange(reader.bytes_, 0);
  if (it->second.readers.empty()) accounts_.erase(it);
}

base::Result<RequestLease> RequestBudget::hand_over(Reader& reader) {
  const std::size_t bytes = reader.bytes_, requests = handled_->requests, handled = handled_->bytes;
  forget(reader);
  if (requests >= limits_.requests_max) {
    return base::fail(busy(fmt::format("{} requests of this server are not answered yet, its limit; try again in {} ms",
                                       requests, kRetryAfterMs),
                           requests, limits_.requests_max));
  }
  TRY(fits(bytes, handled, limits_.bytes_max));
  return RequestLease(handled_, bytes);
}

}  // namespace llorch::net::h1
