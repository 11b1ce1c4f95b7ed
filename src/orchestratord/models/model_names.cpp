#include "orchestratord/models/model_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/edit_distance.h"
#include "base/file.h"
#include "base/log.h"
#include "wire/json.h"
#include "wire/model_name.h"

namespace llorch::orchestratord::models {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::size_t kNamesBytesMax = 16 << 20;
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kPullRetryAfterMs = 2000;

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool is_same_model(const wire::NamedModel& a, const wire::NamedModel& b) {
  return a.source == b.source && a.pool_id == b.pool_id && a.wanted_checksum == b.wanted_checksum &&
         a.watched == b.watched;
}

}  // namespace

std::string name_from_source(std::string_view source) {
  const std::string_view scheme = source.substr(0, source.find(':'));
  std::string_view text = source.substr(std::min(source.size(), scheme.size() + 1));
  text = text.substr(0, text.find_first_of("?#@"));
  if (scheme == "hf") text = text.substr(0, text.find(':'));
  if (const std::size_t slash = text.find_last_of('/'); slash != std::string_view::npos) text.remove_prefix(slash + 1);
  for (const std::string_view end : {".gguf", "-GGUF", "-gguf"}) {
    if (text.ends_with(end)) text.remove_suffix(end.size());
  }
  return lower_case(wire::model_name_from(text));
}

wire::CatalogModel catalog_model(const wire::NamedModel& model) {
  wire::CatalogModel out;
  out.model_id = model.model_id;
  out.model_ref = model.model_ref;
  out.lifecycle_state = model.lifecycle_state;
  out.source = model.source.substr(0, model.source.find_first_of("?#"));
  if (!model.checksum.empty()) out.checksum = model.checksum;
  if (model.size_bytes > 0) out.size_bytes = model.size_bytes;
  if (!model.pool_id.empty()) out.pool_id = model.pool_id;
  out.pinned = model.pinned;
  if (!model.model_ref.empty() && !model.source.starts_with("file:")) out.signature = model.signature;
  if (model.used_unix_ms > 0) out.used_unix_ms = model.used_unix_ms;
  out.verification = model.verification;
  return out;
}

base::Result<std::unique_ptr<ModelNames>> ModelNames::open(Options options) {
  std::unique_ptr<ModelNames> out(new ModelNames(std::move(options)));
  TRY(out->read());
  for (const auto& [name, ref] : out->options_.configured) {
    const auto real = resolve_model_ref(name, out->options_.configured, out->options_.roots);
    if (real) out->keep(ref, *real);
  }
  return out;
}

ModelNames::~ModelNames() {
  if (!used_) return;
  if (const auto written = write(models_); !written) {
    base::log_event(base::LogLevel::kWarn, "model_names_unsaved", {}, "When models were used last is forgotten.",
                    {{"reason", written.error().message}});
  }
}

base::Result<> ModelNames::read() {
  std::error_code ec;
  if (options_.file.empty() || !std::filesystem::exists(options_.file, ec)) return {};
  const std::string text = TRY(base::read_file(options_.file, kNamesBytesMax));
  const auto file = wire::decode<wire::NamedModels>(text);
  if (!file) {
    return base::fail(
        ErrorCode::kCorruptFile,
        fmt::format("{} cannot be read: {}; restore it from a copy, or move it away to begin without names",
                    options_.file.string(), file.error().message));
  }
  if (file->version != kVersion) {
    return base::fail(
        ErrorCode::kUnsupportedFormatVersion,
        fmt::format("{} has version {}, and this program reads {}", options_.file.string(), file->version, kVersion));
  }
  for (const wire::NamedModel& model : file->models) models_.emplace(model.model_id, model);
  return {};
}

base::Result<> ModelNames::write(const Models& models) const {
  if (options_.file.empty()) return {};
  wire::NamedModels file{.version = kVersion, .models = {}};
  for (const auto& [name, model] : models) file.models.push_back(model);
  const std::string text = wire::encode(file);
  if (text.size() > kNamesBytesMax) {
    return base::fail(
        ErrorCode::kPayloadTooLarge,
        fmt::format("the names of all models would take more than {} bytes; remove some", kNamesBytesMax));
  }
  return base::write_file_atomic(options_.file, text);
}

base::Result<> ModelNames::replace(const std::function<base::Result<>(Models&)>& change) {
  const std::lock_guard writing(writing_);
  Models changed;
  {
    const std::lock_guard lock(mutex_);
    changed = models_;
  }
  TRY(change(changed));
  TRY(write(changed));
  const std::lock_guard lock(mutex_);
  for (const auto& [name, model] : models_) {  // used meanwhile
    const auto it = changed.find(name);
    if (it != changed.end()) it->second.used_unix_ms = std::max(it->second.used_unix_ms, model.used_unix_ms);
  }
  models_ = std::move(changed);
  std::erase_if(led_to_, [this](const auto& entry) {
    const auto is_of = [&](const auto& model) { return model.second.model_ref == entry.first; };
    const auto is_configured = [&](const auto& alias) { return alias.second == entry.first; };
    return std::ranges::none_of(models_, is_of) && std::ranges::none_of(options_.configured, is_configured);
  });
  return {};
}

namespace {
base::Result<> check_usable(const wire::NamedModel& model) {
  if (model.lifecycle_state == wire::ModelLifecycle::kRetired) {
    return base::fail(
        ErrorCode::kModelDeprecated,
        fmt::format("{} is retired; llorch activate {} makes it active again", model.model_id, model.model_id));
  }
  if (model.model_ref.empty()) {
    return base::fail(Error{
        ErrorCode::kPoolUnready,
        fmt::format("{} is being fetched; GET /v2/catalog/models/{} and `llorch ls` say how far it is", model.model_id,
                    model.model_id),
        {}}.with("reason", std::string("pulling"))
                          .with("retry_after_ms", kPullRetryAfterMs));
  }
  return {};
}
}  // namespace

// The file system is asked without the lock: others list names meanwhile.
base::Result<ModelNames::Resolved> ModelNames::resolve(std::string_view model) const {
  if (const auto named = find(model)) {
    TRY(check_usable(*named));
    std::map<std::string, std::string> operators;
    if (!named->watched) operators.emplace(named->model_ref, named->model_ref);
    std::string ref = TRY(resolve_model_ref(named->model_ref, operators, options_.roots));
    keep(named->model_ref, ref);
    return Resolved{std::move(ref), named->checksum, named->watched};
  }
  auto ref = resolve_model_ref(model, options_.configured, options_.roots);
  if (ref) {
    if (const auto it = options_.configured.find(std::string(model)); it != options_.configured.end())
      keep(it->second, *ref);
    return Resolved{*std::move(ref)};
  }
  Error error = std::move(ref).error();
  if (const std::string name = nearest_name(model); error.code == ErrorCode::kModelNotFound && !name.empty()) {
    error.message = fmt::format("did you mean {}? {}", name, error.message);
  }
  return base::fail(std::move(error));
}

base::Result<std::string> ModelNames::reference_of(std::string_view model) const {
  std::string ref(model);
  if (auto named = find(model)) {
    TRY(check_usable(*named));
    ref = std::move(named->model_ref);
  } else if (const auto it = options_.configured.find(ref); it != options_.configured.end()) {
    ref = it->second;
  }
  return resolve_model_ref(kept(ref), {}, options_.roots, Links::kLeave);
}

void ModelNames::keep(const std::string& ref, const std::string& real) const {
  const std::lock_guard lock(mutex_);
  if (ref == real) {
    led_to_.erase(ref);
  } else {
    led_to_[ref] = real;
  }
}

std::string ModelNames::kept(const std::string& ref) const {
  const std::lock_guard lock(mutex_);
  const auto it = led_to_.find(ref);
  return it == led_to_.end() ? ref : it->second;
}

// The name that `word` is with other capitals or up to two slips; empty: none.
std::string ModelNames::nearest_name(std::string_view word) const {
  constexpr std::size_t kSlipsMax = 2;
  const std::string wanted = lower_case(word);
  std::string nearest;
  std::size_t least = kSlipsMax + 1;
  const auto consider = [&](const std::string& name) {
    const std::size_t shorter = std::min(name.size(), wanted.size()), longer = std::max(name.size(), wanted.size());
    if (longer - shorter > kSlipsMax || shorter <= kSlipsMax) return;
    const std::size_t distance = base::edit_distance(lower_case(name), wanted);
    if (distance >= least) return;
    least = distance;
    nearest = name;
  };
  for (const auto& [name, ref] : options_.configured) consider(name);
  const std::lock_guard lock(mutex_);
  for (const auto& [name, model] : models_) {
    if (model.lifecycle_state == wire::ModelLifecycle::kActive) consider(name);
  }
  return nearest;
}

base::Result<ModelNames::Resolved> ModelNames::use(std::string_view model) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = models_.find(model); it != models_.end()) {
      it->second.used_unix_ms = options_.clock->now().unix_ms;
      used_ = true;
    }
  }
  return resolve(model);
}

std::vector<wire::CatalogModel> ModelNames::list() const {
  std::map<std::string, wire::CatalogModel> out;
  for (const auto& [name, ref] : options_.configured) out[name] = {.model_id = name, .model_ref = kept(ref)};
  for (const wire::NamedModel& model : named()) out[model.model_id] = catalog_model(model);
  std::vector<wire::CatalogModel> list;
  for (auto& [name, model] : out) list.push_back(std::move(model));
  return list;
}

std::string ModelNames::known(const std::string& model) const {
  constexpr std::string_view kLatest = ":latest";
  if (has(model) || !model.ends_with(kLatest)) return model;
  std::string bare = model.substr(0, model.size() - kLatest.size());
  return has(bare) ? bare : model;
}

bool ModelNames::has(const std::string& model_id) const { return is_configured(model_id) || find(model_id); }

std::optional<wire::NamedModel> ModelNames::find(std::string_view model_id) const {
  const std::lock_guard lock(mutex_);
  const auto it = models_.find(model_id);
  return it == models_.end() ? std::nullopt : std::optional(it->second);
}

std::vector<wire::NamedModel> ModelNames::named() const {
  const std::lock_guard lock(mutex_);
  std::vector<wire::NamedModel> out;
  for (const auto& [name, model] : models_) out.push_back(model);
  return out;
}

base::Result<> ModelNames::put(wire::NamedModel model) {
  return replace([&](Models& models) -> base::Result<> {
    const auto [it, is_new] = models.try_emplace(model.model_id);
    if (!is_new) {
      const wire::NamedModel& there = it->second;
      if (!is_same_model(there, model)) {
        return base::fail(ErrorCode::kConflict, "another model has this name: remove it first, or choose another name");
      }
      model.lifecycle_state = there.lifecycle_state;
      model.pinned = there.pinned;
      model.created_unix_ms = there.created_unix_ms;
      model.used_unix_ms = there.used_unix_ms;
    }
    it->second = std::move(model);
    return {};
  });
}

base::Result<> ModelNames::change(const std::string& model_id, const std::function<void(wire::NamedModel&)>& change) {
  return replace([&](Models& models) -> base::Result<> {
    if (const auto it = models.find(model_id); it != models.end()) change(it->second);
    return {};
  });
}

base::Result<> ModelNames::erase(const std::string& model_id) {
  return replace([&](Models& models) -> base::Result<> {
    models.erase(model_id);
    return {};
  });
}

}  // namespace llorch::orchestratord::models
