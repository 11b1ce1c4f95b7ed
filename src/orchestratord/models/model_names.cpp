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

ModelNames::ModelNames(Options options)
    : options_(std::move(options)), roots_(std::make_shared<const AllowedRoots>(options_.roots)) {}

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

base::Result<ModelNames::Look> ModelNames::look_for(std::string_view model) const {
  if (const auto named = find(model)) {
    TRY(check_usable(*named));
    return Look{.ref = named->model_ref,
                .is_name = true,
                .is_operators = !named->watched,
                .about = {.model_ref = {}, .checksum = named->checksum, .is_watched = named->watched}};
  }
  const auto configured = options_.configured.find(std::string(model));
  if (configured == options_.configured.end()) return Look{.ref = std::string(model)};
  return Look{.ref = configured->second, .is_name = true, .is_operators = true};
}

namespace {
// One for all spellings of a path: there is one look at it at a time.
std::string as_spelled(const std::string& file_ref) {
  constexpr std::string_view kFile = "file:";
  const std::filesystem::path path(file_ref.substr(kFile.size()));
  return std::string(kFile) + path.lexically_normal().string();
}

// Refers to nothing of a ModelNames, and asks the file system.
base::Result<std::string> follow(const std::string& ref, bool is_operators, const AllowedRoots& roots) {
  std::map<std::string, std::string> operators;
  if (is_operators) operators.emplace(ref, ref);
  return resolve_model_ref(ref, operators, roots);
}
}  // namespace

base::Result<ModelNames::Resolved> ModelNames::resolved(std::string_view model, Look look,
                                                        base::Result<std::string> real) const {
  if (real) {
    if (look.is_name) keep(look.ref, *real);
    look.about.model_ref = *std::move(real);
    return std::move(look.about);
  }
  Error error = std::move(real).error();
  if (error.code != ErrorCode::kModelNotFound || find(model)) return base::fail(std::move(error));
  if (const std::string name = nearest_name(model); !name.empty()) {
    error.message = fmt::format("did you mean {}? {}", name, error.message);
  }
  return base::fail(std::move(error));
}

// The file system is asked without the lock: others list names meanwhile.
base::Result<ModelNames::Resolved> ModelNames::resolve(std::string_view model) const {
  Look look = TRY(look_for(model));
  auto real = follow(look.ref, look.is_operators, options_.roots);
  return resolved(model, std::move(look), std::move(real));
}

void ModelNames::resolve(std::string_view model, Reads reads, std::function<void(base::Result<Resolved>)> done) const {
  auto look = look_for(model);
  if (!look) return done(base::fail(std::move(look).error()));
  base::FileReads* const thread = look->is_name ? reads.of_names : reads.of_paths;
  const std::string ref = look->ref;
  const bool is_operators = look->is_operators;
  if (thread == nullptr || !ref.starts_with("file:")) {
    return done(resolved(model, *std::move(look), follow(ref, is_operators, options_.roots)));
  }
  // By what is asked for: a refusal names nothing else.
  const std::string asked = look->is_name ? std::string(model) : as_spelled(ref);
  thread->read<std::string>(
      asked, [ref, is_operators, roots = roots_] { return follow(ref, is_operators, *roots); },
      [this, model = std::string(model), look = *std::move(look),
       done = std::move(done)](base::Result<std::string> real) {
        // Names of a dead mount leave no thread for a look at this one.
        if (!real && look.is_name && base::FileReads::is_for_others(real.error())) {
          real = resolve_model_ref(kept(look.ref), {}, options_.roots, Links::kLeave);
        }
        done(resolved(model, look, std::move(real)));
      });
}

void ModelNames::resolve_path(std::string ref, Reads reads, std::function<void(base::Result<std::string>)> done) const {
  if (reads.of_names == nullptr) return done(follow(ref, true, options_.roots));
  reads.of_names->read<std::string>(
      ref.starts_with("file:") ? as_spelled(ref) : ref, [ref, roots = roots_] { return follow(ref, true, *roots); },
      std::move(done));
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

void ModelNames::count_use(std::string_view model) {
  const std::lock_guard lock(mutex_);
  const auto it = models_.find(model);
  if (it == models_.end()) return;
  it->second.used_unix_ms = options_.clock->now().unix_ms;
  used_ = true;
}

base::Result<ModelNames::Resolved> ModelNames::use(std::string_view model) {
  count_use(model);
  return resolve(model);
}

void ModelNames::use(std::string_view model, Reads reads, std::function<void(base::Result<Resolved>)> done) {
  count_use(model);
  resolve(model, reads, std::move(done));
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
