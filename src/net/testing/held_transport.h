#pragma once
// What tests put in the place of a client and of a thread.
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "net/client.h"
#include "net/executor.h"

namespace llorch::net::testing {

// Keeps what it is asked until the test answers it.
struct HeldTransport final : Transport {
  using Done = std::function<void(base::Result<Response>)>;
  void request(ClientRequest request, Done done) override {
    requests.emplace_back(std::move(request), std::move(done));
  }
  StreamHandle stream(ClientRequest, StreamCallbacks) override { return {}; }
  // The last one that is not answered. REQUIRES: there is one.
  void answer(base::Result<Response> response) {
    Done done = std::move(requests.back().second);
    requests.pop_back();
    done(std::move(response));
  }
  std::vector<std::pair<ClientRequest, Done>> requests;
};

// Runs what is posted at once; what is posted for later never runs.
struct InlineExecutor final : Executor {
  void post(std::function<void()> fn) override { fn(); }
  void post_after(std::int64_t, std::function<void()>) override {}
};

}  // namespace llorch::net::testing
