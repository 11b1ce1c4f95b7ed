#pragma once
// An exchange of a test that looks at one answer.
#include <optional>
#include <string>
#include <utility>

#include "net/server.h"

namespace llorch::orchestratord::http {

// Notes how it is answered.
class NotingExchange final : public net::Exchange {
 public:
  bool respond(net::Response response) override {
    status = response.status;
    body = std::move(response.body);
    return true;
  }
  bool respond_error(const base::Error& error) override {
    refused = error;
    return true;
  }
  bool start_stream(int, net::http::Headers) override { return false; }
  bool write(std::string_view) override { return false; }
  bool end() override { return false; }
  void abort() override {}
  std::size_t queued_bytes() const override { return 0; }
  std::uint64_t sent_bytes() const override { return 0; }
  bool closed() const override { return false; }
  void on_drain(std::size_t, std::function<void()>) override {}
  void on_close(std::function<void(net::CloseReason)>) override {}

  int status = 0;
  std::string body;
  std::optional<base::Error> refused{};
};

}  // namespace llorch::orchestratord::http
