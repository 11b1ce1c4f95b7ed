#pragma once
// pool-managerd as a whole: one per host (SYS-6.2.1). Cores on the main thread, HTTP on the io thread, the driver on a task
// thread, files on threads of their own; they meet in the main loop.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace llorch::pool_managerd {

struct PoolManagerOptions {
  config::Config config;
  std::filesystem::path state_directory;
  std::vector<std::filesystem::path> model_roots;  // besides the model cache and models.allowed_roots
  std::string api_token;                           // empty: loopback only
  std::vector<std::string> reader_tokens;
  std::string nvml_library = "libnvidia-ml.so.1";
};

class PoolManager {
 public:
  // What open() refuses of the options and of the files that they name, before it touches this machine. Errors: CONFIG_INVALID,
  // NON_LOOPBACK_WITHOUT_TOKEN, IO_ERROR (a file cannot be read).
  static base::Result<> check(const PoolManagerOptions& options);
  // Checks the options, takes the state directory's lock, finds the devices, binds. Errors: ALREADY_RUNNING, NO_GPU, CONFIG_INVALID,
  // NON_LOOPBACK_WITHOUT_TOKEN, PORT_IN_USE, IO_ERROR. REQUIRES: called on the main thread (workers die with the thread
  // that started them), after base::block_stop_signals().
  static base::Result<std::unique_ptr<PoolManager>> open(PoolManagerOptions options);
  ~PoolManager();

  // "127.0.0.1:9200", with the real port.
  std::string bind() const;
  // Serves until SIGTERM or SIGINT; then stops the workers (a second signal: at once), deregisters and returns.
  void run();

 private:
  class Impl;
  explicit PoolManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace llorch::pool_managerd
