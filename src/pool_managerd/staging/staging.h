#pragma once
// Holds the files of models in the memory of this host.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
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

// Of a file, what is held: all of it, or its begin.
struct HeldPart {
  std::filesystem::path path;
  std::int64_t bytes_max = std::numeric_limits<std::int64_t>::max();
  friend bool operator==(const HeldPart&, const HeldPart&) = default;
};

// Thread-safe. One thread reads, a model at a time.
class Staging {
 public:
  explicit Staging(StagingOptions options);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();  // stop()

  // Taken before somebody looks which parts a model has, which may wait for a disk.
  using Order = std::shared_ptr<std::atomic<bool>>;  // whether it holds
  Order order(const std::string& model_ref);
  // Begins to read these parts for a model, unless they are staged; they take the place of others that are. Errors: CONFLICT with
  // required_bytes and available_bytes (they do not fit beside what is staged), IO_ERROR; CANCELLED (it was unstaged since `order`).
  base::Result<wire::StagedModel> stage(const std::string& model_ref, const std::vector<HeldPart>& parts,
                                        const Order& order = nullptr);
  // Its memory is the system's again, and orders for it are dropped. False: it was not staged.
  bool unstage(const std::string& model_ref);
  // By reference.
  std::vector<wire::StagedModel> list() const;
  std::int64_t bytes_max() const { return options_.bytes_max; }
  void stop();  // idempotent

 private:
  class HeldFile;
  struct Model {
    wire::StagedModel facts;  // under mutex_
    std::vector<HeldPart> parts;
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
  std::multimap<std::string, std::weak_ptr<std::atomic<bool>>> orders_;  // by reference
  std::deque<ModelPtr> to_read_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace llorch::pool_managerd::staging
