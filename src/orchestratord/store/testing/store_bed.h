#pragma once
// Where a store of either kind lives during a test.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "orchestratord/store/postgres_store.h"
#include "orchestratord/store/sqlite_store.h"
#include "orchestratord/store/testing/postgres_server.h"
#include "orchestratord/store/testing/store_test_support.h"

namespace llorch::orchestratord::store {

enum class StoreKind { kSqlite, kPostgresql };

struct StoreBed {
  explicit StoreBed(StoreKind k) : kind(k) {
    if (kind == StoreKind::kPostgresql) conninfo = testing::PostgresServer::instance()->create_database();
  }
  base::Result<std::unique_ptr<Store>> try_open(RetentionLimits retention = {.ms = kKeepAll}) const {
    if (kind == StoreKind::kSqlite) {
      SqliteStoreOptions options = options_in(dir);
      options.retention = retention;
      options.clock = clock;
      return open_sqlite_store(std::move(options));
    }
    PostgresStoreOptions options;
    options.conninfo = conninfo;
    options.directory = dir.path();
    options.retention = retention;
    options.clock = clock;
    options.entropy = &g_entropy;
    return open_postgres_store(std::move(options));
  }
  std::unique_ptr<Store> open(RetentionLimits retention = {.ms = kKeepAll}) const {
    return try_open(retention).value();
  }
  // Whether any file of the store holds `needle`, also those of the server.
  bool holds(std::string_view needle) const {
    return found_on_disk(dir.path(), needle) ||
           (kind == StoreKind::kPostgresql && found_on_disk(testing::PostgresServer::instance()->directory(), needle));
  }

  static constexpr std::int64_t kKeepAll = 100LL * 365 * 24 * 3600 * 1000;
  StoreKind kind;
  TempDir dir;
  std::string conninfo;
  const base::Clock* clock = &kClock;
};

// A test that runs over every kind of store.
class EveryStore : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    if (GetParam() == StoreKind::kPostgresql && testing::PostgresServer::instance() == nullptr) {
      GTEST_SKIP() << testing::PostgresServer::why_not();
    }
  }
};

inline std::string name_of(const ::testing::TestParamInfo<StoreKind>& info) {
  return info.param == StoreKind::kSqlite ? "sqlite" : "postgresql";
}

}  // namespace llorch::orchestratord::store
