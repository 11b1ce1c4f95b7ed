#include "pool_managerd/model_catalog/model_catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/assert.h"
#include "engine/io/model_layout.h"
#include "pool_managerd/model_catalog/model_ref.h"
#include "pool_managerd/model_catalog/one_state.h"

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
  const auto path = TRY(resolve_model_file(model_ref, options_.allowed_roots));
  auto [plan, stamp] = TRY(of_one_state(path, [&] { return inspector_->inspect(path, shape, device); }));
  if (shape.context_tokens > plan.model_context) {
    return base::fail(base::Error{base::ErrorCode::kInvalidParams,
                                  fmt::format("context_tokens is {}; this model was made for at most {}",
                                              shape.context_tokens, plan.model_context),
                                  {}}
                          .with("field", std::string("context_tokens"))
                          .with("context_max", plan.model_context));
  }
  plan.digest = digests_.known(path);
  if (plan.digest && plan.digest->stamp != stamp) plan.digest.reset();
  return std::move(plan);
}

// For the device that takes most; of its weights, the type that they have on the first.
base::Result<ModelPlan> ModelCatalog::inspect(const std::filesystem::path& model, const WorkerShape& shape) const {
  ModelPlan most = TRY(inspector_->inspect(model, shape, options_.device_kinds.front()));
  const std::string quant_kind = most.quant_kind;
  for (const DeviceKind kind : std::span(options_.device_kinds).subspan(1)) {
    ModelPlan other = TRY(inspector_->inspect(model, shape, kind));
    if (other.required_bytes() > most.required_bytes()) most = std::move(other);
  }
  most.quant_kind = quant_kind;
  return most;
}

base::Result<std::vector<std::filesystem::path>> ModelCatalog::files_of(const std::string& model_ref) const {
  const auto model = TRY(resolve_model_file(model_ref, options_.allowed_roots));
  std::vector<std::filesystem::path> out;
  for (engine::io::ModelFile& file : TRY(engine::io::model_file_list(model))) out.push_back(std::move(file.path));
  return out;
}

std::optional<std::string> ModelCatalog::known_digest(const std::string& model_ref) const {
  const auto model = resolve_model_file(model_ref, options_.allowed_roots);
  if (!model) return std::nullopt;
  const auto known = digests_.known(*model);
  return known ? std::optional(known->digest) : std::nullopt;
}

base::Result<> ModelCatalog::check(const std::filesystem::path& model) const {
  TRY(inspect(model, WorkerShape{}));
  return {};
}

base::Result<wire::ModelFacts> ModelCatalog::describe(const std::string& model_ref, const WorkerShape& shape,
                                                      bool reread) {
  const auto path = TRY(resolve_model_file(model_ref, options_.allowed_roots));
  // First, so that a bad file is refused before all of it is read.
  const auto [model, stamp] = TRY(of_one_state(path, [&] { return inspect(path, shape); }));
  const engine::io::StampedDigest digest = TRY(digests_.digest_of(path, reread));
  if (digest.stamp != stamp) {
    return base::fail(
        base::ErrorCode::kConflict,
        "the model's files changed between what they say and their digest; try again when they are complete");
  }
  wire::ModelFacts facts;
  facts.model_ref = model_ref;
  facts.digest = std::string(kDigestPrefix) + digest.digest;
  facts.architecture = model.architecture;
  facts.quant_kind = model.quant_kind;
  facts.size_bytes = model.size_bytes;
  facts.vocab_size = model.vocab_size;
  facts.hidden_size = model.hidden_size;
  facts.context_length = model.shape.context_tokens;
  facts.slots = model.shape.slots;
  facts.memory_bytes = model.required_bytes();
  facts.devices = model.shape.devices;
  facts.images = model.images;
  facts.embedding_dimensions = model.embedding_dimensions;
  if (model.reranks) facts.reranks = true;
  return facts;
}

base::Result<std::shared_ptr<const std::string>> ModelCatalog::tokenizer(const std::string& digest) {
  const std::string hex = digest.starts_with(kDigestPrefix) ? digest.substr(kDigestPrefix.size()) : digest;
  const std::vector<std::filesystem::path> copies = digests_.find_files(hex);
  // A copy may have left the allowed directories by a change of configuration since it was hashed.
  const auto file = std::ranges::find_if(copies, [&](const std::filesystem::path& copy) {
    return resolve_model_file("file:" + copy.string(), options_.allowed_roots).has_value();
  });
  if (file == copies.end()) {
    return base::fail(base::ErrorCode::kModelNotFound,
                      "no model with this digest is known here; ask GET /v2/models/describe for it first");
  }
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, blob] : tokenizers_) {
      if (known == hex) return blob;
    }
  }
  auto [text, stamp] = TRY(of_one_state(*file, [&] { return inspector_->tokenizer_blob(*file); }));
  const auto now = digests_.known(*file);
  if (!now || now->digest != hex || now->stamp != stamp) {
    return base::fail(
        base::ErrorCode::kConflict,
        "the model's files changed while its tokenizer was read; ask GET /v2/models/describe for it again");
  }
  auto blob = std::make_shared<const std::string>(std::move(text));
  const std::lock_guard lock(mutex_);
  tokenizers_.emplace_front(hex, blob);
  if (tokenizers_.size() > kTokenizersKept) tokenizers_.pop_back();
  return blob;
}

}  // namespace llorch::pool_managerd::model_catalog
