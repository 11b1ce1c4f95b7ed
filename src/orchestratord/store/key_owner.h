#pragma once
// Which store's payloads the keys of a state directory open. A start destroys every key that no live job of its own store has, and one
// payload.keys serves whatever store the configuration names. So payload.keys.store beside it names that store, and a start that would
// destroy keys of another one, or payloads of another state directory, is refused.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "orchestratord/store/backend.h"
#include "orchestratord/store/files/state_file.h"

namespace llorch::orchestratord::store {

struct SealedPayload {
  std::string job_id;
  PayloadRow row;
};
// A store as a start finds it, before it changes anything there.
struct FoundStore {
  std::string kind;                                                    // "SQLite", "PostgreSQL"
  std::optional<std::int64_t> made_unix_ms;                            // none: it has no schema yet
  std::optional<std::string> owner;                                    // another state directory, where that is
  std::function<base::Result<std::vector<SealedPayload>>()> payloads;  // of its live jobs
};

// Not thread-safe.
class KeyOwner {
 public:
  static constexpr const char* kFileName = "payload.keys.store";

  struct Options {
    files::StateFile* keys = nullptr;  // REQUIRES not null; outlives it
    files::StateFilePtr name;          // kFileName, opened
    std::string place;                 // of the state directory, for people
    bool take_over = false;            // check() refuses nothing
  };
  static base::Result<KeyOwner> open(Options options);

  // CONFLICT: a start would destroy keys of another store (detail `keys_of`), or the store is another state directory's and these keys do
  // not open each of its payloads (detail `store_owner`).
  base::Result<> check(const FoundStore& found) const;
  // The text of a payload; none: these keys do not open it.
  std::optional<std::string> unsealed(const SealedPayload& payload) const;
  // From now on the keys are those of this store. Where none was named, a disk without room is no error: a start needs none. REQUIRES:
  // check() has let it in; no key was destroyed yet.
  base::Result<> record(const std::string& kind, std::int64_t made_unix_ms);

 private:
  struct Name {
    std::string kind;
    std::int64_t made_unix_ms = 0;
    friend bool operator==(const Name&, const Name&) = default;
  };
  KeyOwner(Options options, std::optional<Name> name) : options_(std::move(options)), name_(std::move(name)) {}
  static std::optional<Name> parse(std::string_view text);
  static std::string words(const Name& name);
  base::Result<bool> holds_keys() const;

  Options options_;
  std::optional<Name> name_;  // none: no start has said it, or a crash tore it
};

}  // namespace llorch::orchestratord::store
