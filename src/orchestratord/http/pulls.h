#pragma once
// Models on their way into a pool: asked for, followed, asked for again after a restart of either side.
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "orchestratord/http/context.h"
#include "wire/catalog.h"

namespace llorch::orchestratord::http {

// Thread-safe. REQUIRES: `context` outlives it.
class Pulls {
 public:
  explicit Pulls(const Context& context) : context_(context) {}

  // Has the pool of the named model fetch it, and follows that until it is done or has failed. Nothing happens if it is
  // followed already.
  void begin(const std::string& model_id);
  // begin() for all that an earlier process did not finish.
  void resume();
  // Forgets the pull and has the pool end it, unless another name waits for it; what has come stays there for another try.
  void cancel(const std::string& model_id);
  // How far it is; of one that failed, why. Absent: nothing is pulled under this name.
  std::optional<wire::PullStatus> status(const std::string& model_id) const;

 private:
  struct Entry {
    wire::PullStatus status;
    bool is_known = false;     // to the pool
    bool is_followed = false;  // false: it failed
  };

  bool is_shared(const wire::NamedModel& model) const;
  // Forgets a pull whose name has gone. False: it has, or was cancelled, or is another model's by now.
  bool is_wanted(const wire::NamedModel& asked);
  void end_at_pool(const wire::NamedModel& model, const std::string& pull_id);
  std::vector<wire::PeerOffer> peers_of(const wire::NamedModel& model) const;
  void follow(const std::string& model_id);
  // `begins`: the question was to begin it.
  void on_answer(const wire::NamedModel& asked, bool begins, base::Result<net::Response> response);
  void on_status(const std::string& model_id, const wire::PullStatus& status);
  void fail(const std::string& model_id, const base::Error& error);
  void follow_later(const std::string& model_id);

  const Context& context_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by name
};

// A request for `path` at the pool, with its token; absent: the pool is not known or not paired.
std::optional<net::ClientRequest> request_to_pool(const Context& context, const std::string& pool_id,
                                                  const std::string& path);

}  // namespace llorch::orchestratord::http
