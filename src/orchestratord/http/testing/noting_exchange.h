#pragma once
// An exchange of a test that looks at one answer.
#include <optional>
#include <string>
#include <utility>

#include "net/testing/silent_exchange.h"

namespace llorch::orchestratord::http {

// Notes how it is answered.
class NotingExchange final : public net::testing::SilentExchange {
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

  int status = 0;
  std::string body;
  std::optional<base::Error> refused{};
};

}  // namespace llorch::orchestratord::http
