#pragma once
// The schema, version by version, whichever database holds it.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::orchestratord::store {

struct Migration {
  std::int64_t version;
  std::string_view name;
  std::string_view sql;
};

// A migration as the database records it.
struct AppliedMigration {
  std::int64_t version = 0;
  std::string sha256;
  std::int64_t applied_unix_ms = 0;
};

// The schema that a start finds.
struct FoundSchema {
  std::size_t applied_count = 0;
  std::optional<std::int64_t> made_unix_ms;  // none: there is none
};

std::string fingerprint(const Migration& migration);

// How many of `known` are applied; the rest is to be applied, in order. UNSUPPORTED_FORMAT_VERSION: the schema was written
// by a newer program. CORRUPT_FILE: an applied migration is not the one this program knows.
base::Result<std::size_t> applied_count(std::span<const Migration> known, std::span<const AppliedMigration> applied);
// Errors: as of applied_count().
base::Result<FoundSchema> found_schema(std::span<const Migration> known, std::span<const AppliedMigration> applied);

}  // namespace llorch::orchestratord::store
