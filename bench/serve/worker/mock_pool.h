#pragma once
// The pool manager of a MockWorker, as orchestratord sees one: registers with the worker ready, sends heartbeats, answers
// for the model and its tokenizer.
#include <string>

#include "wire/pool.h"
#include "config/pool_credential.h"
#include "net/client.h"
#include "net/server.h"

namespace llorch::bench {

class MockPool {
 public:
  struct Options {
    std::string orchestrator_url;
    std::string worker_uri;
    std::int64_t slots = 1;
  };
  explicit MockPool(Options options);
  ~MockPool();

  // Blocks until orchestratord took the registration; exits when it refuses.
  void register_now();

 private:
  wire::PoolState state() const;
  wire::WorkerInfo worker(std::int64_t number, std::int64_t slots) const;
  void add_routes();
  net::ClientRequest report(const std::string& path) const;

  const Options options_;
  const config::PoolCredential credential_;
  net::IoRuntime runtime_;
  net::Server server_;
  net::Client client_{runtime_};
  net::Timer heartbeat_;
};

}  // namespace llorch::bench
