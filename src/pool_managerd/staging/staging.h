#pragma once
// Holds the files of models in the memory of this host.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/file_reads.h"
#include "base/result.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::staging {

struct StagingOptions {
  std::int64_t bytes_max = 0;
  // A model has been read, or could not be. On the thread that read it; may be null.
  std::function<void()> on_change;
  std::shared_ptr<base::FileReads> reads;  // by model_ref; REQUIRES not null. Whoever made it stops it.
};

// Of a file, what is held: all of it, or its begin.
struct HeldPart {
  std::filesystem::path path;
  std::int64_t bytes_max = std::numeric_limits<std::int64_t>::max();
  friend bool operator==(const HeldPart&, const HeldPart&) = default;
};

// Thread-safe. A model whose disk does not answer holds up no other one.
class Staging {
 public:
  explicit Staging(StagingOptions options) : options_(std::move(options)) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { stop(); }

  // Taken before somebody looks which parts a model has, which may wait for a disk.
  using Order = std::shared_ptr<std::atomic<bool>>;  // whether it holds
  Order order(const std::string& model_ref);
  // Begins to read these parts for a model, unless they are staged; they take the place of others that are. Errors: CONFLICT with
  // required_bytes and available_bytes (they do not fit beside what is staged, and what reads of models that are staged no more still
  // hold), IO_ERROR; CANCELLED (it was unstaged since `order`).
  base::Result<wire::StagedModel> stage(const std::string& model_ref, const std::vector<HeldPart>& parts,
                                        const Order& order = nullptr);
  // Its memory is the system's again, and orders for it are dropped. False: it was not staged.
  bool unstage(const std::string& model_ref);
  // The same for every model whose reference begins so.
  void unstage_all(const std::string& begin);
  // By reference.
  std::vector<wire::StagedModel> list() const;
  std::int64_t bytes_max() const { return options_.bytes_max; }
  void stop();  // what is read ends with the next piece, which nobody waits for; idempotent

 private:
  class HeldFile;
  struct Model {
    wire::StagedModel facts;  // under State::mutex, as the two flags
    std::vector<HeldPart> parts;
    std::vector<std::unique_ptr<HeldFile>> files;
    bool reading = false;
    bool dropped = false;
    std::int64_t held_bytes() const;  // at most, while its read runs
  };
  using ModelPtr = std::shared_ptr<Model>;
  // What a read owns, which may end after the staging.
  struct State {
    std::mutex mutex;
    std::map<std::string, ModelPtr> models;
    std::vector<std::weak_ptr<const Model>> dropped;  // whose reads may still hold memory
    bool stopped = false;

    base::Result<bool> read(Model& model);
    base::Result<bool> read_files(Model& model);
    bool goes_on(const Model& model);
    void forget(const ModelPtr& model);
    // The two below: with the lock.
    void drop(const ModelPtr& model);
    std::int64_t bytes_still_held(const std::string& besides);  // of models other than that one
  };

  const StagingOptions options_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::multimap<std::string, std::weak_ptr<std::atomic<bool>>> orders_;  // by reference; under state_->mutex
};

}  // namespace llorch::pool_managerd::staging
