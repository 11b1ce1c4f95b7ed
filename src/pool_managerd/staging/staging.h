#pragma once
// Holds the files of models in the memory of this host.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::staging {

struct StagingOptions {
  std::int64_t bytes_max = 0;
  // A model has been read, or could not be. On the thread of the staging; may be null.
  std::function<void()> on_change;
};

// Thread-safe. One thread reads, a model at a time.
class Staging {
 public:
  explicit Staging(StagingOptions options);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();  // stop()

  // Begins to read the model of these files, unless it is staged. Errors: CONFLICT with required_bytes and available_bytes (it
  // does not fit beside what is staged), IO_ERROR.
  base::Result<wire::StagedModel> stage(const std::string& model_ref, const std::vector<std::filesystem::path>& files);
  // Its memory is the system's again. False: it was not staged.
  bool unstage(const std::string& model_ref);
  // By reference.
  std::vector<wire::StagedModel> list() const;
  std::int64_t bytes_max() const { return options_.bytes_max; }
  void stop();  // idempotent

 private:
  class HeldFile;
  struct Model {
    wire::StagedModel facts;  // under mutex_
    std::vector<std::unique_ptr<HeldFile>> files;
    bool dropped = false;  // under mutex_
  };
  using ModelPtr = std::shared_ptr<Model>;

  void run();
  void read(const ModelPtr& model);
  bool goes_on(const Model& model) const;

  const StagingOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, ModelPtr> models_;
  std::deque<ModelPtr> to_read_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace llorch::pool_managerd::staging
