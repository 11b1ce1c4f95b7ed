#include "orchestratord/store/backup/backup.h"

#include <endian.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/state_directory.h"
#include "orchestratord/store/key_owner.h"
#include "orchestratord/store/payload/payload_keys.h"
#include "orchestratord/store/payload/sealing.h"
#include "orchestratord/store/sqlite/database.h"
#include "orchestratord/store/sqlite/migrations.h"

namespace llorch::orchestratord::store::backup {
namespace {

using base::ErrorCode;
namespace fs = std::filesystem;

// The file: magic, u64 bytes of the keys, u64 bytes of the database (little endian), SHA-256 of what follows; then the
// keys as in payload.keys, with zeroes in the slots no live job owns; then the database.
constexpr std::string_view kMagic = "llorch-backup-1\n";
constexpr std::size_t kHeaderBytes = 16 + 8 + 8 + 32;
constexpr std::size_t kCopyBytes = 1 << 20;
constexpr const char* kDatabaseName = "orchestrator.db";
constexpr const char* kKeysName = "payload.keys";
constexpr const char* kRequestName = "backup.request";
constexpr std::size_t kPathBytesMax = 4096;
constexpr gid_t kNobodysGroup = 65534;

// Closed, and removed unless kept: what a failure leaves is nothing.
class NewFile {
 public:
  static base::Result<NewFile> create(const fs::path& path) { return open(path, O_RDWR | O_CREAT | O_EXCL); }
  // In the place of what an earlier attempt has left.
  static base::Result<NewFile> replace(const fs::path& path) {
    ::unlink(path.c_str());
    return create(path);
  }
  static base::Result<NewFile> open(const fs::path& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return base::fail(base::io_error("cannot open", path, errno));
    return NewFile(fd, path);
  }
  NewFile(NewFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  base::Result<> append(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return base::fail(base::io_error("cannot write", path_, errno));
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
  }
  base::Result<> overwrite_start(std::string_view bytes) {
    if (::lseek(fd_, 0, SEEK_SET) != 0) return base::fail(base::io_error("cannot write", path_, errno));
    return append(bytes);
  }
  // Under its final name, on disk.
  base::Result<> keep(const fs::path& name) {
    if (::fsync(fd_) != 0) return base::fail(base::io_error("cannot sync", path_, errno));
    if (::rename(path_.c_str(), name.c_str()) != 0) return base::fail(base::io_error("cannot rename to", name, errno));
    ::close(std::exchange(fd_, -1));
    return base::sync_parent_directory(name);
  }
  base::Result<> give_to_owner_of(const fs::path& directory) { return base::give_to_owner_of(directory, fd_); }
  // Under the name it has.
  void keep_as_it_is() { ::close(std::exchange(fd_, -1)); }
  const fs::path& path() const { return path_; }

 private:
  NewFile(int fd, fs::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  fs::path path_;
};

// As root, until its end: the rights of the owner of `directory` and no others, so that what he puts there, a link for instance, which
// SQLite follows, gives him nothing of root's. As anybody else, and where root is the owner, it does nothing. REQUIRES: no other thread
// opens files meanwhile.
class OwnersRights {
 public:
  static base::Result<OwnersRights> take(const fs::path& directory) {
    OwnersRights rights;
    if (::geteuid() != 0) return rights;
    struct stat st {};
    if (::stat(directory.c_str(), &st) != 0) return base::fail(base::io_error("cannot stat", directory, errno));
    if (st.st_uid == 0) return rights;
    rights.groups_.resize(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
    const int groups_count = ::getgroups(static_cast<int>(rights.groups_.size()), rights.groups_.data());
    rights.groups_.resize(static_cast<std::size_t>(std::max(0, groups_count)));
    rights.group_ = ::getegid();
    rights.are_taken_ = true;
    const gid_t group = st.st_gid == 0 ? kNobodysGroup : st.st_gid;
    if (::setgroups(1, &group) != 0 || ::setegid(group) != 0 || ::seteuid(st.st_uid) != 0) {
      return base::fail(base::io_error("cannot take the rights of the owner of", directory, errno));
    }
    return rights;
  }
  OwnersRights(OwnersRights&& other) noexcept
      : are_taken_(std::exchange(other.are_taken_, false)), group_(other.group_), groups_(std::move(other.groups_)) {}
  OwnersRights& operator=(OwnersRights&&) = delete;
  ~OwnersRights() {
    if (!are_taken_) return;
    const bool is_root_again = ::seteuid(0) == 0;
    ASSERT(is_root_again);
    (void)!::setegid(group_);
    (void)!::setgroups(groups_.size(), groups_.data());
  }

 private:
  OwnersRights() = default;
  bool are_taken_ = false;
  gid_t group_ = 0;
  std::vector<gid_t> groups_;
};

// SQLite's own journal beside a copy that is being made; gone with it.
struct RemoveJournals {
  fs::path database;
  ~RemoveJournals() {
    for (const char* suffix : {"-wal", "-shm", "-journal"}) ::unlink((database.string() + suffix).c_str());
  }
};

using Sink = std::function<base::Result<>(std::string_view)>;

// A file that is read as far as it went when it was opened. One that a disk does not give, or that is cut short meanwhile, is an error
// where a mapping would be a signal.
class Source {
 public:
  static base::Result<Source> open(const fs::path& path) {
    base::Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // of a pipe without a writer
    struct stat facts {};
    if (fd.get() < 0 || ::fstat(fd.get(), &facts) != 0) return base::fail(base::io_error("cannot open", path, errno));
    if (!S_ISREG(facts.st_mode)) {
      return base::fail(ErrorCode::kIoError, fmt::format("{} is not a regular file", path.string()));
    }
    return Source(std::move(fd), path, static_cast<std::uint64_t>(facts.st_size));
  }
  std::uint64_t size() const { return size_; }
  // REQUIRES: offset + bytes <= size().
  base::Result<> for_each_part(std::uint64_t offset, std::uint64_t bytes, const Sink& sink) const {
    std::string buffer(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kCopyBytes)), '\0');
    while (bytes > 0) {
      const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, buffer.size()));
      const ssize_t got = ::pread(fd_.get(), buffer.data(), wanted, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return base::fail(base::io_error("cannot read", path_, errno));
      if (got == 0) return base::fail(ErrorCode::kIoError, fmt::format("{} was cut short meanwhile", path_.string()));
      TRY(sink(std::string_view(buffer).substr(0, static_cast<std::size_t>(got))));
      offset += static_cast<std::uint64_t>(got);
      bytes -= static_cast<std::uint64_t>(got);
    }
    return {};
  }
  base::Result<std::string> read(std::uint64_t offset, std::uint64_t bytes) const {
    std::string out;
    TRY(for_each_part(offset, bytes, [&](std::string_view part) -> base::Result<> {
      out += part;
      return {};
    }));
    return out;
  }

 private:
  Source(base::Descriptor fd, fs::path path, std::uint64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), size_(size) {}
  base::Descriptor fd_;
  fs::path path_;
  std::uint64_t size_;
};

struct Header {
  std::uint64_t keys_bytes = 0;
  std::uint64_t database_bytes = 0;
  base::Sha256Digest digest{};
};

std::string encode(const Header& header) {
  std::string out(kMagic);
  for (const std::uint64_t n : {header.keys_bytes, header.database_bytes}) {
    const std::uint64_t little = htole64(n);
    out.append(reinterpret_cast<const char*>(&little), sizeof little);
  }
  return out.append(reinterpret_cast<const char*>(header.digest.data()), header.digest.size());
}

base::Error damaged(const fs::path& file, std::string_view why) {
  return {ErrorCode::kCorruptFile, fmt::format("{} is not a whole backup: {}", file.string(), why), {}};
}

base::Result<> check_digest(const fs::path& file, const Header& header, const base::Sha256& hash) {
  if (hash.digest() == header.digest) return {};
  return base::fail(damaged(file, "its check sum is not the one it names"));
}

// Also checks that the bytes behind it are the ones it promises.
base::Result<Header> read_header(const fs::path& file, const Source& source) {
  const std::string bytes = TRY(source.read(0, std::min<std::uint64_t>(source.size(), kHeaderBytes)));
  if (!bytes.starts_with(kMagic.substr(0, 14))) return base::fail(damaged(file, "it does not begin like one"));
  if (!bytes.starts_with(kMagic)) {
    return base::fail(ErrorCode::kUnsupportedFormatVersion,
                      fmt::format("{} was written by a newer program; restore it with that one", file.string()));
  }
  if (bytes.size() < kHeaderBytes) return base::fail(damaged(file, "it is cut short"));
  Header header;
  std::memcpy(&header.keys_bytes, bytes.data() + 16, 8);
  std::memcpy(&header.database_bytes, bytes.data() + 24, 8);
  header.keys_bytes = le64toh(header.keys_bytes);
  header.database_bytes = le64toh(header.database_bytes);
  std::memcpy(header.digest.data(), bytes.data() + 32, header.digest.size());
  const std::uint64_t rest = source.size() - kHeaderBytes;
  if (header.keys_bytes > rest || header.database_bytes != rest - header.keys_bytes) {
    return base::fail(damaged(file, "its length is not the one it names"));
  }
  if (header.keys_bytes > payload::kKeysBytesMax) {
    return base::fail(damaged(file, "it has more keys than a job store has"));
  }
  base::Sha256 hash;
  TRY(source.for_each_part(kHeaderBytes, rest, [&](std::string_view part) -> base::Result<> {
    hash.update(part);
    return {};
  }));
  TRY(check_digest(file, header, hash));
  return header;
}

base::Result<std::int64_t> count(sqlite::Database& database, const char* sql) {
  const sqlite::StatementUse row(*TRY(database.statement(sql)));
  if (!TRY(row->step())) return std::int64_t{0};
  return row->integer(0);
}

base::Result<Summary> summarise(sqlite::Database& database) {
  Summary summary;
  summary.jobs_count = TRY(count(database, "SELECT count(*) FROM jobs"));
  summary.live_jobs_count = TRY(count(database, "SELECT count(*) FROM jobs WHERE completed_at IS NULL"));
  return summary;
}

// Errors: IO_ERROR, where that cannot be known.
base::Result<bool> is_there(const fs::path& path) {
  std::error_code ec;
  const bool found = fs::exists(path, ec);
  if (ec) return base::fail(base::io_error("cannot look for", path, ec.value()));
  return found;
}

base::Result<std::string> read_keys(const fs::path& path) {
  const Source keys = TRY(Source::open(path));
  if (keys.size() > payload::kKeysBytesMax) {
    return base::fail(ErrorCode::kIoError,
                      fmt::format("{} is larger than {} bytes", path.string(), payload::kKeysBytesMax));
  }
  return keys.read(0, keys.size());
}

// Of live jobs only: what a crash left in other slots is nobody's. A file that is not there holds none.
base::Result<std::string> live_keys(sqlite::Database& database, const fs::path& path) {
  const std::string held = TRY(is_there(path)) ? TRY(read_keys(path)) : std::string();
  std::string keys;
  const auto slots_count = static_cast<std::int64_t>(held.size() / payload::kKeyBytes);
  const sqlite::StatementUse row(*TRY(database.statement("SELECT key_slot FROM job_payloads ORDER BY key_slot")));
  while (TRY(row->step())) {
    const std::int64_t slot = row->integer(0);
    if (slot < 0 || slot >= slots_count) continue;  // lost: its job ends in PAYLOAD_LOST anyway
    const std::size_t at = static_cast<std::size_t>(slot) * payload::kKeyBytes;
    keys.resize(at + payload::kKeyBytes, '\0');
    keys.replace(at, payload::kKeyBytes, held, at, payload::kKeyBytes);
  }
  return keys;
}

fs::path unfinished(const fs::path& file) { return file.string() + ".part"; }

// Neither the file nor what is made beside it replaces anything.
base::Result<> check_is_new(const fs::path& file) {
  if (TRY(is_there(file))) {
    return base::fail(ErrorCode::kConflict, fmt::format("{} exists; give another name", file.string()));
  }
  const Parts parts = parts_of(file);
  for (const fs::path& beside : {parts.database, parts.keys, unfinished(file)}) {
    if (!TRY(is_there(beside))) continue;
    return base::fail(ErrorCode::kConflict,
                      fmt::format("{} exists, and the backup would overwrite it; give another name, or remove it if a "
                                  "backup that was cut short has left it",
                                  beside.string()));
  }
  return {};
}

// One file of both parts, which are read with the rights of the owner of `directory`. `parts.keys` may hold more than the keys of the
// database's jobs; what is written does not.
base::Result<Summary> assemble(const fs::path& file, const Parts& parts, const fs::path& directory) {
  Summary summary;
  std::string keys;
  std::optional<Source> source;
  {
    const OwnersRights rights = TRY(OwnersRights::take(directory));
    {
      auto database = TRY(sqlite::Database::open({.path = parts.database.string()}));
      TRY(database.execute("PRAGMA wal_checkpoint(TRUNCATE)"));
      summary = TRY(summarise(database));
      keys = TRY(live_keys(database, parts.keys));
    }
    source.emplace(TRY(Source::open(parts.database)));
  }
  const Source& image = *source;
  NewFile out = TRY(NewFile::create(unfinished(file)));
  Header header{.keys_bytes = keys.size(), .database_bytes = image.size()};
  base::Sha256 hash;
  const Sink append = [&](std::string_view part) {
    hash.update(part);
    return out.append(part);
  };
  TRY(out.append(encode(header)));
  TRY(append(keys));
  TRY(image.for_each_part(0, image.size(), append));
  header.digest = hash.digest();
  TRY(out.overwrite_start(encode(header)));
  TRY(out.keep(file));
  summary.bytes = static_cast<std::int64_t>(kHeaderBytes + keys.size() + image.size());
  return summary;
}

}  // namespace

base::Result<Summary> write(const Paths& paths) {
  const fs::path source = paths.directory / kDatabaseName;
  if (!TRY(is_there(source))) {
    return base::fail(ErrorCode::kNotFound, fmt::format("there is no job store in {}", paths.directory.string()));
  }
  TRY(check_is_new(paths.file));
  return assemble(paths.file, {.database = source, .keys = paths.directory / kKeysName}, paths.directory);
}

// ---- beside an orchestratord that serves ----------------------------------------------------------------------------

Parts parts_of(const fs::path& file) {
  return {.database = file.string() + ".database", .keys = file.string() + ".keys"};
}

void remove(const Parts& parts) {
  for (const fs::path& part : {parts.database, parts.keys}) ::unlink(part.c_str());
}

base::Result<> fill(const fs::path& part, std::string_view bytes) {
  auto file = TRY(NewFile::open(part, O_WRONLY | O_TRUNC));
  TRY(file.append(bytes));
  file.keep_as_it_is();
  return {};
}

base::Result<Online> Online::prepare(const Paths& paths) {
  std::error_code ec;
  const Paths absolute{.directory = paths.directory, .file = fs::absolute(paths.file, ec)};
  if (ec) return base::fail(base::io_error("cannot resolve", paths.file, ec.value()));
  Online online(::open(paths.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (online.directory_fd_ < 0) return base::fail(base::io_error("cannot open", paths.directory, errno));
  // A second request would take the place of the first, and each would be told the other's outcome.
  if (::flock(online.directory_fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return base::fail(base::io_error("cannot lock", paths.directory, errno));
    return base::fail(ErrorCode::kConflict, "another backup is being made; wait for its end");
  }
  TRY(check_is_new(absolute.file));
  const Parts parts = parts_of(absolute.file);
  auto database = TRY(NewFile::create(parts.database));
  auto keys = TRY(NewFile::create(parts.keys));
  const fs::path request_name = absolute.directory / kRequestName;
  auto request = TRY(NewFile::replace(request_name.string() + ".part"));
  TRY(request.append(absolute.file.string()));
  // Whoever serves is to read and write them.
  for (NewFile* file : {&database, &keys, &request}) TRY(file->give_to_owner_of(absolute.directory));
  TRY(request.keep(request_name));
  database.keep_as_it_is();
  keys.keep_as_it_is();
  online.paths_ = absolute;
  return online;
}

Online::~Online() {
  if (!paths_.file.empty()) {
    remove(parts_of(paths_.file));
    ::unlink((paths_.directory / kRequestName).c_str());
  }
  if (directory_fd_ >= 0) ::close(directory_fd_);
}

base::Result<Summary> Online::finish() const {
  const Parts parts = parts_of(paths_.file);
  const RemoveJournals remove_journals{parts.database};
  return assemble(paths_.file, parts, paths_.directory);
}

base::Result<fs::path> take_request(const fs::path& directory) {
  const fs::path request = directory / kRequestName;
  auto file = base::read_file(request, kPathBytesMax);
  if (!file) {
    return base::fail(
        ErrorCode::kNotFound,
        "nobody has left the name of a file in the state directory; `llorch backup FILE` does, and asks then");
  }
  ::unlink(request.c_str());
  return fs::path(*std::move(file));
}

namespace {

// Keys of a store that lies elsewhere now open its prompts, and nothing else does. `restored`: those that come, which an attempt that
// was cut short may have left.
base::Result<> check_keys(const fs::path& directory, std::string_view restored) {
  const OwnersRights rights = TRY(OwnersRights::take(directory));
  const fs::path there = directory / kKeysName;
  if (!TRY(is_there(there))) return {};
  const std::string keys = TRY(read_keys(there));
  if (keys == restored || keys.find_first_not_of('\0') == std::string::npos) return {};
  return base::fail(
      ErrorCode::kConflict,
      fmt::format("{} holds keys of prompts, which would be lost; move it away, or give another --state-dir",
                  there.string()));
}

}  // namespace

base::Result<Summary> restore(const Paths& paths) {
  const fs::path target = paths.directory / kDatabaseName;
  for (const fs::path& there : {target, fs::path(target.string() + "-wal")}) {
    if (!TRY(is_there(there))) continue;
    return base::fail(
        ErrorCode::kConflict,
        fmt::format("{} exists, and its jobs would be lost; move it and payload.keys away, or give another "
                    "--state-dir",
                    there.string()));
  }
  const Source source = TRY(Source::open(paths.file));
  const Header header = TRY(read_header(paths.file, source));
  const std::string keys = TRY(source.read(kHeaderBytes, header.keys_bytes));
  TRY(check_keys(paths.directory, keys));

  NewFile database_file = TRY(NewFile::replace(target.string() + ".restored"));
  TRY(database_file.give_to_owner_of(paths.directory));
  const RemoveJournals remove_journals{database_file.path()};
  base::Sha256 hash;  // of what is restored, which was read before and may have changed since
  hash.update(keys);
  TRY(source.for_each_part(kHeaderBytes + header.keys_bytes, header.database_bytes, [&](std::string_view part) {
    hash.update(part);
    return database_file.append(part);
  }));
  TRY(check_digest(paths.file, header, hash));
  Summary summary;
  {
    const OwnersRights rights = TRY(OwnersRights::take(paths.directory));
    auto database = TRY(sqlite::Database::open({.path = database_file.path().string()}));
    TRY(sqlite::check_schema(database, sqlite::migrations()));
    summary = TRY(summarise(database));
  }
  summary.bytes = static_cast<std::int64_t>(source.size());
  // The database last: without it the keys belong to nobody, and this can be done again.
  NewFile keys_file = TRY(NewFile::replace((paths.directory / kKeysName).string() + ".restored"));
  TRY(keys_file.give_to_owner_of(paths.directory));
  TRY(keys_file.append(keys));
  // It names the store that was here before; what keys that one had, check_keys() has found to be none, or these.
  const fs::path owner = paths.directory / KeyOwner::kFileName;
  if (::unlink(owner.c_str()) != 0 && errno != ENOENT) return base::fail(base::io_error("cannot remove", owner, errno));
  TRY(keys_file.keep(paths.directory / kKeysName));
  TRY(database_file.keep(target));
  return summary;
}

}  // namespace llorch::orchestratord::store::backup
