#pragma once
// A client of a test that hears nothing.
#include <cstdint>
#include <functional>
#include <string_view>

#include "net/server.h"

namespace llorch::net::testing {

// What looks at one answer overrides respond() and respond_error().
class SilentExchange : public Exchange {
 public:
  bool respond(Response) override { return false; }
  bool respond_error(const base::Error&) override { return false; }
  bool start_stream(int, http::Headers) override { return false; }
  bool write(std::string_view) override { return false; }
  bool end() override { return false; }
  void abort() override {}
  std::size_t queued_bytes() const override { return 0; }
  std::uint64_t sent_bytes() const override { return 0; }
  bool closed() const override { return false; }
  void on_drain(std::size_t, std::function<void()>) override {}
  void on_close(std::function<void(CloseReason)>) override {}
};

}  // namespace llorch::net::testing
