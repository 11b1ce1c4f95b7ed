#pragma once
// The names that requests may use: those of the configuration, and those given at run time, which are kept in a file.
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file_reads.h"
#include "orchestratord/models/model_ref.h"
#include "wire/catalog.h"

namespace llorch::orchestratord::models {

inline constexpr const char* kNamesFile = "models.json";  // in the state directory

// Thread-safe. What changes a name waits for the disk.
class ModelNames {
 public:
  struct Options {
    std::filesystem::path file;                     // empty: names are not kept
    std::map<std::string, std::string> configured;  // models.aliases
    AllowedRoots roots;
    const base::Clock* clock = nullptr;  // REQUIRES not null; outlives the object
  };
  // `file` need not exist. Errors: CORRUPT_FILE, UNSUPPORTED_FORMAT_VERSION, IO_ERROR.
  static base::Result<std::unique_ptr<ModelNames>> open(Options options);
  ~ModelNames();  // keeps when each was used

  struct Resolved {
    std::string model_ref;  // file:/absolute/path
    std::string checksum;   // "sha256:<hex>" that the model must have; empty: any
    bool is_watched = false;
  };
  // Where links are followed, which may wait for a dead mount; both null: in the call. Names are the operator's, and paths are whoever's
  // that submits: a tenant's many do not get in the way of a name. REQUIRES: stopped before the names are gone.
  struct Reads {
    base::FileReads* of_names = nullptr;
    base::FileReads* of_paths = nullptr;
  };
  // A name or a file: reference. Looks where links lead. Errors: those of resolve_model_ref(); MODEL_DEPRECATED (a retired model); POOL_UNREADY with
  // retry_after_ms (it is being fetched).
  base::Result<Resolved> resolve(std::string_view model) const;
  // As resolve(), where a mount that does not answer holds up only what `model` names: `done` is called once, in this call or on a
  // thread of `reads`. Where too many other names are looked for, a name leads to where it led when it was resolved last. Errors: those
  // of FileReads::read() too.
  void resolve(std::string_view model, Reads reads, std::function<void(base::Result<Resolved>)> done) const;
  // Where an operator's file: reference leads that has no name yet; as resolve() otherwise.
  void resolve_path(std::string ref, Reads reads, std::function<void(base::Result<std::string>)> done) const;
  // As resolve(), for a job: the name counts as used now.
  base::Result<Resolved> use(std::string_view model);
  void use(std::string_view model, Reads reads, std::function<void(base::Result<Resolved>)> done);
  // As resolve(), without a look at the file system, which may wait for a dead mount: a configured name leads to where it led when it was
  // resolved last, and a file: reference to the path as it is spelled.
  base::Result<std::string> reference_of(std::string_view model) const;

  // By name, those of the configuration included. Without a look at the file system.
  std::vector<wire::CatalogModel> list() const;
  // `model` as it is known: without the tag that clients of Ollama add ("tale:latest"), where only the rest is a name.
  std::string known(const std::string& model) const;
  // Whether a request may name it.
  bool has(const std::string& model_id) const;
  bool is_configured(const std::string& model_id) const { return options_.configured.contains(model_id); }
  // Names given at run time.
  std::optional<wire::NamedModel> find(std::string_view model_id) const;
  std::vector<wire::NamedModel> named() const;
  // Adds it, or takes the place of what is the same model: of one source, pool and wanted checksum, watched or not; what an operator has
  // set of that one, and when it was used, stay. Errors: CONFLICT (another model has the name), IO_ERROR, PAYLOAD_TOO_LARGE (too many
  // names): then nothing changed.
  base::Result<> put(wire::NamedModel model);
  // Nothing happens without one of this name.
  base::Result<> change(const std::string& model_id, const std::function<void(wire::NamedModel&)>& change);
  base::Result<> erase(const std::string& model_id);

 private:
  // What a name stands for, or a path that is none.
  struct Look {
    std::string ref;
    bool is_name = false;
    bool is_operators = false;  // only where it leads counts
    Resolved about{};           // without `model_ref`
  };
  base::Result<Look> look_for(std::string_view model) const;
  base::Result<Resolved> resolved(std::string_view model, Look look, base::Result<std::string> real) const;
  void count_use(std::string_view model);

  using Models = std::map<std::string, wire::NamedModel, std::less<>>;
  explicit ModelNames(Options options);
  base::Result<> read();
  base::Result<> write(const Models& models) const;
  base::Result<> replace(const std::function<base::Result<>(Models&)>& change);
  void keep(const std::string& ref, const std::string& real) const;
  std::string kept(const std::string& ref) const;
  std::string nearest_name(std::string_view word) const;

  const Options options_;
  const std::shared_ptr<const AllowedRoots> roots_;  // the same, for reads that may end behind this object
  std::mutex writing_;                               // one change at a time; taken before the other
  mutable std::mutex mutex_;
  Models models_;
  // Where the references of names led when they were resolved last, if that is another path.
  mutable std::map<std::string, std::string> led_to_;
  bool used_ = false;  // since they were written
};

// As a listing shows it.
wire::CatalogModel catalog_model(const wire::NamedModel& model);
// A name for a model that was asked for without one, made from its reference.
std::string name_from_source(std::string_view source);

}  // namespace llorch::orchestratord::models
