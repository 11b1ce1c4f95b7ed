#include "orchestratord/store/postgres_store.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <string_view>

#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "orchestratord/store/group_core.h"
#include "orchestratord/store/key_owner.h"
#include "orchestratord/store/postgres/backend.h"
#include "orchestratord/store/store_thread.h"

namespace llorch::orchestratord::store {
namespace {

constexpr std::size_t kStoreIdBytes = 16;

bool is_store_id(std::string_view text) {
  return text.size() == 2 * kStoreIdBytes && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Made by the first start; on disk before the database hears of it.
base::Result<std::string> read_or_make_store_id(const std::filesystem::path& directory, base::Entropy& entropy) {
  const std::filesystem::path path = directory / "store_id";
  std::error_code ec;
  if (std::filesystem::exists(path, ec)) {
    auto text = TRY(base::read_file(path, 4096));
    if (is_store_id(text)) return text;
  }
  std::array<std::uint8_t, kStoreIdBytes> random{};
  entropy.fill(std::as_writable_bytes(std::span(random)));
  std::string id = base::to_hex(random);
  TRY(base::write_file_atomic(path, id));
  return id;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace

base::Result<std::unique_ptr<Store>> open_postgres_store(PostgresStoreOptions options) {
  ASSERT(options.clock != nullptr && options.entropy != nullptr);
  GroupCoreOptions core;
  core.keys = TRY(files::open_state_file(options.directory / "payload.keys"));
  auto store_id = read_or_make_store_id(options.directory, *options.entropy);
  if (!store_id) {
    store_id.error().code = base::ErrorCode::kStoreUnavailable;
    return base::fail(std::move(store_id).error());
  }
  std::error_code ec;
  const postgres::StateDirectoryFacts self{*std::move(store_id), host_name(),
                                           std::filesystem::absolute(options.directory, ec).string()};
  KeyOwner key_owner = TRY(KeyOwner::open({.keys = core.keys.get(),
                                           .name = TRY(files::open_state_file(options.directory / KeyOwner::kFileName)),
                                           .place = fmt::format("{}:{}", self.host, self.directory),
                                           .take_over = options.take_over}));
  core.backend = TRY(postgres::open_backend(
      {.connection = {.conninfo = std::move(options.conninfo), .reply_timeout = options.reply_timeout},
       .read_conninfo = std::move(options.read_conninfo),
       .self = self,
       .keys = &key_owner,
       .before_migration = std::move(options.before_migration),
       .check_live_job = std::move(options.check_live_job),
       .lock_wait = options.lock_wait,
       .clock = options.clock,
       .on_taken_over = std::move(options.on_taken_over)}));
  base::log_event(base::LogLevel::kInfo, "store.library", {}, "The jobs are in PostgreSQL.");
  core.retention = options.retention;
  core.clock = options.clock;
  core.entropy = options.entropy;
  return start_store_thread(TRY(open_group_core(std::move(core))), *options.clock);
}

}  // namespace llorch::orchestratord::store
