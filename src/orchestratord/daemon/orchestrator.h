#pragma once
// The whole daemon as one object: parts, the order they start and stop in, and who owns what.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "config/config.h"
#include "orchestratord/store/files/state_file.h"

namespace llorch::orchestratord::daemon {

struct OrchestratorOptions {
  config::Config config;
  std::string api_token;  // empty: none, loopback only
  std::vector<config::TenantToken> tenants;
  std::vector<std::string> reader_tokens;
  std::filesystem::path state_directory;
  std::vector<std::filesystem::path> model_roots;  // named on the command line
  // Seams for disk faults; the defaults are the system's.
  std::string sqlite_vfs;
  store::files::OpenFile open_file = store::files::open_state_file;
  bool take_over_store = false;  // see store::KeyOwner::check
  // On the store's thread: another orchestratord owns the database now, and this one can only stop.
  std::function<void()> on_store_taken_over;
};

class Orchestrator {
 public:
  // What open() refuses of the options and of the files that they name, before it touches the state directory. Errors:
  // NON_LOOPBACK_WITHOUT_TOKEN, CONFIG_INVALID, IO_ERROR (a file cannot be read).
  static base::Result<> check(const OrchestratorOptions& options);
  // Checks the options, locks the state directory, opens the store, restores, asks the pools, serves.
  // Errors: NON_LOOPBACK_WITHOUT_TOKEN, CONFIG_INVALID, ALREADY_RUNNING, CONFLICT, STORE_UNAVAILABLE, CORRUPT_FILE,
  // UNSUPPORTED_FORMAT_VERSION, PORT_IN_USE. Where prompts of another store or of another orchestratord would be lost, see
  // store::KeyOwner::check.
  static base::Result<std::unique_ptr<Orchestrator>> open(OrchestratorOptions options);
  // Serves nothing: makes the credential of a pool of this machine and writes it to `file`, unless the file holds a
  // valid one. Errors: as of open(), CONFIG_INVALID (the file holds something else), IO_ERROR.
  static base::Result<> pair_pool(OrchestratorOptions options, const base::PoolId& pool_id,
                                  const std::filesystem::path& file);
  // Serves nothing: makes this state directory the owner of the jobs in its store. Errors: as of open(), but CONFLICT.
  static base::Result<> take_over_store(OrchestratorOptions options);
  Orchestrator(const Orchestrator&) = delete;
  Orchestrator& operator=(const Orchestrator&) = delete;
  ~Orchestrator();  // stop()

  // Goes by `loaded` from now on as far as that is possible alive: its callers, and what they may take. What differs besides is named
  // in the log and stays as it was. REQUIRES: one thread, and stop() is not called meanwhile. Errors: as of check(), and CONFIG_INVALID
  // where callers would need no token any more; then nothing has changed.
  base::Result<> reload(OrchestratorOptions loaded);
  // "127.0.0.1:8080", with the real port.
  const std::string& bind() const { return bind_; }
  // Refuses new work, ends running attempts without a verdict (the next process replays them), cuts the streams, closes
  // the store. Idempotent. REQUIRES: not on one of the daemon's own threads.
  void stop();

 private:
  struct Parts;
  explicit Orchestrator(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
  std::string bind_;
};

}  // namespace llorch::orchestratord::daemon
