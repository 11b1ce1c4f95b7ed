#include "pool_managerd/model_catalog/model_catalog.h"

#include <span>

#include "base/assert.h"
#include "pool_managerd/model_catalog/model_ref.h"

namespace llorch::pool_managerd::model_catalog {
namespace {

// A blob is a few MiB; orchestratord keeps its own copy, so few are asked for twice.
constexpr std::size_t kTokenizersKept = 4;
constexpr std::string_view kDigestPrefix = "sha256:";

}  // namespace

ModelCatalog::ModelCatalog(ModelCatalogOptions options, std::unique_ptr<ModelInspector> inspector)
    : options_(std::move(options)), inspector_(std::move(inspector)), digests_(options_.digest_cache_file) {
  ASSERT(!options_.device_kinds.empty());
}

base::Result<ModelPlan> ModelCatalog::plan(const std::string& model_ref, const WorkerShape& shape,
                                           DeviceKind device) const {
  ModelPlan plan = TRY(inspector_->inspect(TRY(resolve_model_file(model_ref, options_.allowed_roots)), shape, device));
  plan.digest = digests_.known(plan.path);
  return plan;
}

base::Result<contract::ModelFacts> ModelCatalog::describe(const std::string& model_ref, const WorkerShape& shape) {
  // First, so that a bad file is refused before all of it is read.
  ModelPlan model = TRY(plan(model_ref, shape, options_.device_kinds.front()));
  const std::string quant_kind = model.quant_kind;
  for (const DeviceKind kind : std::span(options_.device_kinds).subspan(1)) {
    ModelPlan other = TRY(plan(model_ref, shape, kind));
    if (other.required_bytes() > model.required_bytes()) model = std::move(other);
  }
  contract::ModelFacts facts;
  facts.model_ref = model_ref;
  facts.digest = std::string(kDigestPrefix) + TRY(digests_.digest_of(model.path));
  facts.architecture = model.architecture;
  facts.quant_kind = quant_kind;
  facts.size_bytes = model.size_bytes;
  facts.vocab_size = model.vocab_size;
  facts.context_length = model.shape.context_tokens;
  facts.slots = model.shape.slots;
  facts.memory_bytes = model.required_bytes();
  facts.devices = model.shape.devices;
  facts.images = model.images;
  return facts;
}

base::Result<std::shared_ptr<const std::string>> ModelCatalog::tokenizer(const std::string& digest) {
  const std::string hex = digest.starts_with(kDigestPrefix) ? digest.substr(kDigestPrefix.size()) : digest;
  const auto file = digests_.find_file(hex);
  // The file may have left the allowed folders by a change of configuration since it was hashed.
  if (!file || !resolve_model_file("file:" + file->string(), options_.allowed_roots)) {
    return base::fail(base::ErrorCode::kModelNotFound,
                      "no model with this digest is known here; ask GET /v2/models/describe for it first");
  }
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, blob] : tokenizers_) {
      if (known == hex) return blob;
    }
  }
  auto blob = std::make_shared<const std::string>(TRY(inspector_->tokenizer_blob(*file)));
  const std::lock_guard lock(mutex_);
  tokenizers_.emplace_front(hex, blob);
  if (tokenizers_.size() > kTokenizersKept) tokenizers_.pop_back();
  return blob;
}

}  // namespace llorch::pool_managerd::model_catalog
