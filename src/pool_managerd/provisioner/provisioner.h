#pragma once
// Brings models from elsewhere into the model cache: whole and verified, or not at all.
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/id.h"
#include "config/config.h"
#include "pool_managerd/provisioner/download/part_file.h"
#include "pool_managerd/provisioner/room.h"
#include "pool_managerd/provisioner/sources/locate.h"
#include "wire/catalog.h"

namespace llorch::pool_managerd::provisioner {

struct ProvisionerOptions {
  std::filesystem::path cache;  // a model is CACHE/<digest>/<file>; what is under way is in CACHE/.partial
  web::WebOptions web;
  sources::SourceSettings sources;
  std::int64_t connections = 4;
  std::shared_ptr<const base::Clock> clock;  // REQUIRES not null
  // Looks at a model before it is published; what it returns refuses the model. May be null.
  std::function<base::Result<>(const std::filesystem::path& model)> check;
  // A model has been published, with the digest that its bytes had. May be null.
  std::function<void(const std::filesystem::path& model, const std::string& digest)> on_published;
  // A model has been removed. May be null.
  std::function<void(const std::string& digest)> on_removed;
  MakeRoom make_room;                 // for a model that the disk has no room for; any thread calls it. May be null.
  std::int64_t stop_wait_ms = 5'000;  // for pulls that end
};
// With the secrets that `config` names files for. Errors: CONFIG_INVALID, IO_ERROR.
base::Result<ProvisionerOptions> provisioner_options(const config::Config& config);

struct PullCounters {
  std::int64_t succeeded = 0, failed = 0;
};

// Thread-safe. Pulls run on threads of its own, three at a time; the others wait in order.
class Provisioner {
 public:
  // Where nobody has it any more, it stops. REQUIRES: the functions of `options` refer to nothing that their copies do not own, for a
  // pull whose disk does not answer may end after everything else has.
  static std::shared_ptr<Provisioner> make(ProvisionerOptions options);
  Provisioner(const Provisioner&) = delete;
  Provisioner& operator=(const Provisioner&) = delete;

  // The pull of this source, which runs already or begins now: equal requests have one, until it is cancelled. Errors:
  // INVALID_PARAMS, FORBIDDEN (the policy), SERVER_BUSY (too many wait).
  base::Result<wire::PullStatus> start(const wire::PoolPullRequest& request, const base::CorrelationId& correlation_id);
  // The last few that have ended are remembered.
  std::optional<wire::PullStatus> status(const std::string& pull_id) const;
  // What has come stays for another try; a pull that waits ends at once. False: no such pull.
  bool cancel(const std::string& pull_id);
  // The directory of the model with this digest (64 hex digits), whether or not it exists.
  std::filesystem::path directory_of(const std::string& digest) const { return options_.cache / digest; }
  // Removes a published model; the bytes it took. `begins` (may be null) is asked when all that remains is to do it: false forbids it.
  // REQUIRES: nobody uses it. Errors: MODEL_NOT_FOUND, IO_ERROR, CANCELLED (it was forbidden).
  base::Result<std::int64_t> remove(const std::string& digest, const std::function<bool()>& begins = nullptr);
  PullCounters counters() const;
  // Ends every pull soon; one whose disk does not answer is left to itself. Idempotent.
  void stop();

 private:
  explicit Provisioner(ProvisionerOptions options);

  struct Pull {
    wire::PoolPullRequest request;
    base::CorrelationId correlation_id;
    StopFlag stop;
    wire::PullStatus status;  // under mutex_
    std::int64_t measured_ms = 0, measured_bytes = 0;
  };
  using PullPtr = std::shared_ptr<Pull>;
  struct Fetched {
    std::vector<download::PartFile> parts;  // they keep other processes out
    sources::Artifact artifact;
  };
  struct Published {
    std::filesystem::path model;
    std::string digest;
  };

  void run_thread();
  void run(const PullPtr& pull);
  base::Result<Published> pull_model(const PullPtr& pull);
  base::Result<sources::Artifact> locate(const PullPtr& pull);
  std::optional<base::Result<Published>> pull_from_peers(const PullPtr& pull, const std::string& checksum);
  base::Result<Published> pull_from_peer(const PullPtr& pull, const wire::PeerOffer& offer);
  // `checksum`: that the model must have; empty: any.
  base::Result<Published> pull_artifact(const PullPtr& pull, web::Web& web, sources::Artifact artifact,
                                        const std::string& checksum);
  base::Result<Fetched> fetch(const PullPtr& pull, web::Web& web, sources::Artifact artifact);
  base::Result<Published> publish(const PullPtr& pull, web::Web& web, Fetched fetched, const std::string& checksum);
  // Puts the signature that the publisher gives of the model beside it. What comes of it decides nothing.
  static void fetch_signature(const PullPtr& pull, web::Web& web, const sources::Artifact& artifact,
                              const std::filesystem::path& directory);
  base::Result<std::filesystem::path> stage(const PullPtr& pull, const Fetched& fetched,
                                            const std::filesystem::path& directory) const;
  std::optional<Published> find_published(const std::string& digest) const;
  void set_state(const PullPtr& pull, wire::PullState state);
  void on_bytes(const PullPtr& pull, std::int64_t done, std::int64_t total);
  void finish(const PullPtr& pull, const base::Result<Published>& result);
  void forget_old();  // REQUIRES mutex_ held
  void tidy();
  void remove_published_parts() const;
  std::filesystem::path partial() const { return options_.cache / ".partial"; }

  const ProvisionerOptions options_;
  web::Web web_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_threads_;
  std::map<std::string, PullPtr> pulls_;  // by id
  std::deque<PullPtr> waiting_;
  std::deque<std::string> ended_;  // ids, oldest first
  std::set<std::string> busy_;     // names of partial files that a pull works on
  PullCounters counters_;
  bool stopped_ = false;
  std::size_t threads_ = 0;  // that run; each of them has a share in this
};

}  // namespace llorch::pool_managerd::provisioner
