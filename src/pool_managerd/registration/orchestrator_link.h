#pragma once
// The registration core over HTTP. Lives on the main thread; answers come back to it through `post`.
#include <functional>
#include <memory>
#include <string>

#include "net/client.h"
#include "pool_managerd/registration/registration.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::registration {

struct OrchestratorLinkOptions {
  std::string url;    // base URL; empty = work alone
  std::string token;  // with which orchestratord knows this pool
  std::string pool_id;
  RegistrationConfig registration;
};

class OrchestratorLink {
 public:
  // Runs a function on the main thread, from any thread. It must not run one after the link is destroyed.
  using Post = std::function<void(std::function<void()>)>;
  using State = std::function<wire::PoolState()>;

  OrchestratorLink(OrchestratorLinkOptions options, net::Client& client, const base::Clock& clock, Post post,
                   State state);

  void start();
  void report(Report report);
  void changed();
  void heard();
  // Sends what is pending, deregisters; left() is true when done. The caller bounds the wait.
  void leave();
  void tick();
  std::optional<std::int64_t> next_wake_ms() const { return core_.next_wake_ms(); }
  bool left() const { return core_.left(); }
  bool connected() const { return core_.connected(); }
  const Counters& counters() const { return core_.counters(); }

 private:
  void step(const Event& event);
  void execute(const SendRegister&);
  void execute(const SendHeartbeat&);
  void execute(const SendReport&);
  void execute(const SendDeregister&);
  void execute(const ConnectionChanged&);
  void send(std::string method, std::string path, std::string body,
            std::function<Event(base::Result<std::string> body)> to_event);

  OrchestratorLinkOptions options_;
  net::Client& client_;
  const base::Clock& clock_;
  Post post_;
  State state_;
  Registration core_;
};

}  // namespace llorch::pool_managerd::registration
