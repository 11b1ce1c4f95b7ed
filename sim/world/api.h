#pragma once
// Calls of orchestratord's API: whole requests and answers, as its handlers take and give them.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "net/server.h"
#include "sim/kernel/network.h"
#include "wire/json.h"

namespace llorch::sim {

struct World;

struct ApiCall {
  net::http::Principal caller;
  std::string method = "POST";
  std::string path;
  std::string body{};
  std::int64_t timeout_ms = 5'000;
};
// The body of a success. UNREACHABLE: nobody listens. TIMEOUT, IO_ERROR: it may have been heard. Else what it was refused with.
using ApiAnswer = base::Result<std::string>;

// `done` runs in the process of `from`, exactly once while it lives.
void ask_api(World& world, Process& from, ApiCall wanted, std::function<void(const ApiAnswer&)> done);
// Nobody is there, or the answer was lost on its way: not a refusal.
bool is_unanswered(const base::Error& error);
// The error's retry_after_ms, or 0.
std::int64_t retry_after_ms(const base::Error& error);

template <class T>
base::Result<T> decoded(const ApiAnswer& answer) {
  if (!answer) return base::fail(answer.error());
  return wire::decode<T>(*answer);
}

// A request that waits for its whole answer, in orchestratord's process.
class ApiExchange final : public net::Exchange {
 public:
  explicit ApiExchange(std::function<void(net::Response)> reply) : reply_(std::move(reply)) {}

  bool respond(net::Response response) override;
  bool respond_error(const base::Error& error) override;
  bool start_stream(int, net::http::Headers) override { return false; }
  bool write(std::string_view) override { return false; }
  bool end() override { return false; }
  void abort() override { reply_ = nullptr; }
  std::size_t queued_bytes() const override { return 0; }
  std::uint64_t sent_bytes() const override { return 0; }
  bool closed() const override { return reply_ == nullptr; }
  void on_drain(std::size_t, std::function<void()>) override {}
  void on_close(std::function<void(net::CloseReason)>) override {}

 private:
  std::function<void(net::Response)> reply_;
};

}  // namespace llorch::sim
