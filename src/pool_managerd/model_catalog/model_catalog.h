#pragma once
// The model files of this host: what they are, what they need, their digests and tokenizers.
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "pool_managerd/model_catalog/digest_cache.h"
#include "pool_managerd/model_catalog/model_inspector.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::model_catalog {

struct ModelCatalogOptions {
  std::vector<std::filesystem::path> allowed_roots;
  std::filesystem::path digest_cache_file;
  std::vector<DeviceKind> device_kinds;  // of this host; at least one, GPUs first
};

// Thread-safe. Every call may block on the disk: describe() of a new file reads all of it.
class ModelCatalog {
 public:
  ModelCatalog(ModelCatalogOptions options, std::unique_ptr<ModelInspector> inspector);

  // Facts and digest are of one and the same state of the files. Errors: resolve_model_file's, ModelInspector's, DigestCache's;
  // CONFLICT if a file changed meanwhile. The memory is that of the kind of device that takes most, the
  // type of the weights that on the first kind. `reread`: as DigestCache::digest_of().
  base::Result<wire::ModelFacts> describe(const std::string& model_ref, const WorkerShape& shape, bool reread = false);
  // As describe(); with a digest if that of this state of the files is known. INVALID_PARAMS too for a context that the model was
  // not made for.
  base::Result<ModelPlan> plan(const std::string& model_ref, const WorkerShape& shape, DeviceKind device) const;
  // `digest`: "sha256:<hex>" or "<hex>" of a model described before. Read from the files
  // that have the digest. Errors: MODEL_NOT_FOUND otherwise; CONFLICT if they changed meanwhile.
  base::Result<std::shared_ptr<const std::string>> tokenizer(const std::string& digest);
  // As DigestCache::confirms(); afterwards the digest is known here.
  base::Result<bool> confirms(const std::filesystem::path& model, const engine::io::StampedDigest& told) {
    return digests_.confirms(model, told);
  }
  // As DigestCache::computed().
  void computed(const std::filesystem::path& model, const std::string& digest) { digests_.computed(model, digest); }
  // The files of a model. Errors: resolve_model_file's, engine::io::model_file_list()'s.
  base::Result<std::vector<std::filesystem::path>> files_of(const std::string& model_ref) const;
  // The digest ("<hex>") of what the model's files hold now, where that is known without reading them.
  std::optional<std::string> known_digest(const std::string& model_ref) const;
  // Whether this pool can run what is in the files, on a device it has. Errors: those of ModelInspector.
  base::Result<> check(const std::filesystem::path& model) const;
  bool runs_on_cpus_alone() const { return options_.device_kinds == std::vector{DeviceKind::kCpu}; }
  // Makes running and later calls that read whole files end with CANCELLED.
  void stop() { digests_.stop(); }

 private:
  base::Result<ModelPlan> inspect(const std::filesystem::path& model, const WorkerShape& shape) const;

  ModelCatalogOptions options_;
  std::unique_ptr<ModelInspector> inspector_;
  DigestCache digests_;
  std::mutex mutex_;
  std::deque<std::pair<std::string, std::shared_ptr<const std::string>>> tokenizers_;  // by digest, newest first
};

}  // namespace llorch::pool_managerd::model_catalog
