#pragma once
// Gives the models of this pool's cache to other pools that orchestratord lets have them.
#include <atomic>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log_limiter.h"
#include "base/task_thread.h"
#include "net/server.h"
#include "pool_managerd/provisioner/provisioner.h"

namespace llorch::pool_managerd {

struct PeerFilesOptions {
  const provisioner::Provisioner* provisioner = nullptr;  // REQUIRES not null, as `clock`; both outlive the object
  const base::Clock* clock = nullptr;
  std::string control_token;  // with which orchestratord made the grants
};

// Thread-safe. Reads on a thread of its own, a piece at a time; what a slow peer has not taken waits on the disk.
class PeerFiles {
 public:
  explicit PeerFiles(PeerFilesOptions options) : options_(std::move(options)) {}

  // The files of the model whose digest is the path's {digest}.
  void list(const net::Request& request, const net::ExchangePtr& exchange);
  // A range of the file {name}: whoever fetches a model asks for ranges.
  void send(const net::Request& request, const net::ExchangePtr& exchange);
  void stop() { thread_.stop(); }

 private:
  struct Sending;

  base::Result<std::string> check_grant(const net::Request& request) const;
  base::Result<std::shared_ptr<Sending>> open(const net::Request& request, const std::string& digest);
  void send_more(const std::shared_ptr<Sending>& sending);

  const PeerFilesOptions options_;
  std::atomic<int> sendings_ = 0;
  base::LogLimiter failed_reads_{10, 10'000};  // who fetches decides how often a damaged file is read; on thread_
  base::TaskThread thread_;
};

}  // namespace llorch::pool_managerd
