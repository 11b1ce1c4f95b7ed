#include "orchestratord/pool_access/pool_access.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <sstream>

#include "base/assert.h"
#include "base/file.h"

namespace llorch::orchestratord::pool_access {
namespace {

using base::ErrorCode;

constexpr std::string_view kFirstLine = "llorch-pool-credentials 1";
constexpr std::size_t kFileBytesMax = 4 << 20;

std::optional<base::Sha256Digest> digest_of(std::string_view hex) {
  base::Sha256Digest out;
  if (hex.size() != 2 * out.size() || hex.find_first_not_of("0123456789abcdef") != std::string_view::npos) return {};
  const auto value = [&](std::size_t i) {
    return static_cast<unsigned>(hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10);
  };
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::uint8_t>(value(2 * i) << 4 | value(2 * i + 1));
  return out;
}

}  // namespace

base::Result<std::unique_ptr<PoolAccess>> PoolAccess::open(std::filesystem::path file, base::Entropy& entropy) {
  std::unique_ptr<PoolAccess> access(new PoolAccess(std::move(file), entropy));
  TRY(access->read());
  return access;
}

base::Result<> PoolAccess::read() {
  struct stat st {};
  if (::stat(file_.c_str(), &st) != 0) {
    if (errno == ENOENT) return {};
    return base::fail(base::io_error("cannot open", file_, errno));
  }
  if ((st.st_mode & 077) != 0) {
    return base::fail(ErrorCode::kConfigInvalid,
                      fmt::format("{} can be read by others; run: chmod 600 {}", file_.string(), file_.string()));
  }
  std::istringstream text(TRY(base::read_file(file_, kFileBytesMax)));
  std::string line;
  std::size_t number = 1;
  const auto corrupt = [&] {
    return base::fail(
        ErrorCode::kCorruptFile,
        fmt::format("{} line {} is not as orchestratord wrote it; restore the file, or remove it and pair "
                    "every pool again with `llorch pool pair POOL_ID`",
                    file_.string(), number));
  };
  if (!std::getline(text, line) || line != kFirstLine) return corrupt();
  Entries entries;
  while (std::getline(text, line)) {
    ++number;
    std::istringstream words(line);
    std::string id, hash, token, more;
    words >> id >> hash >> token;
    const auto digest = digest_of(hash);
    if (!digest || !digest_of(token) || !base::is_valid_identifier(id) || words >> more) return corrupt();
    Entry entry{.node_token_sha256 = *digest, .control_token = std::move(token), .endpoint = {}};
    if (!entries.emplace(base::PoolId(id), std::move(entry)).second) return corrupt();
  }
  put(std::move(entries));
  return {};
}

base::Result<> PoolAccess::write(const Entries& entries) const {
  std::string text = fmt::format("{}\n", kFirstLine);
  for (const auto& [id, entry] : entries) {
    text += fmt::format("{} {} {}\n", id.value, base::to_hex(entry.node_token_sha256), entry.control_token);
  }
  return base::write_file_atomic(file_, text, 0600);
}

void PoolAccess::put(Entries entries) {
  const std::lock_guard lock(mutex_);
  // What was learnt of endpoints while the file was written stays, of the pools whose credential does.
  for (auto& [id, entry] : entries) {
    const auto old = entries_.find(id);
    const bool same = old != entries_.end() && old->second.control_token == entry.control_token;
    entry.endpoint = same ? old->second.endpoint : std::string();
  }
  entries_ = std::move(entries);
  by_node_token_.clear();
  for (const auto& [id, entry] : entries_) by_node_token_.emplace(entry.node_token_sha256, id);
}

base::Result<contract::PoolCredential> PoolAccess::pair(const base::PoolId& pool_id) {
  const std::lock_guard writing(writing_);
  Entries entries;
  {
    const std::lock_guard lock(mutex_);
    entries = entries_;
  }
  if (entries.size() >= kPoolsMax && !entries.contains(pool_id)) {
    return base::fail(base::Error{
        ErrorCode::kConflict,
        fmt::format("{} pools are paired, which is the most there can be; remove one that is "
                    "gone with `llorch pool unpair POOL_ID`",
                    entries.size()),
        {}}.with("pools_max", static_cast<std::int64_t>(kPoolsMax)));
  }
  auto credential = contract::PoolCredential::make(pool_id, entropy_);
  entries[pool_id] = {.node_token_sha256 = base::sha256(credential.node_token()),
                      .control_token = credential.control_token(),
                      .endpoint = {}};
  TRY(write(entries));
  put(std::move(entries));
  return credential;
}

base::Result<bool> PoolAccess::unpair(const base::PoolId& pool_id) {
  const std::lock_guard writing(writing_);
  Entries entries;
  {
    const std::lock_guard lock(mutex_);
    entries = entries_;
  }
  if (entries.erase(pool_id) == 0) return false;
  TRY(write(entries));
  put(std::move(entries));
  return true;
}

bool PoolAccess::is_paired(const contract::PoolCredential& credential) const {
  const auto pool = pool_of(base::sha256(credential.node_token()));
  return pool && *pool == credential.pool_id();
}

std::optional<base::PoolId> PoolAccess::pool_of(const base::Sha256Digest& node_token_sha256) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_node_token_.find(node_token_sha256);
  return it == by_node_token_.end() ? std::nullopt : std::optional(it->second);
}

void PoolAccess::remember(const base::PoolId& pool_id, const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(pool_id);
  if (it == entries_.end()) return;
  // One pool answers at an endpoint: the one that was accepted there last.
  for (auto& [id, entry] : entries_) {
    if (entry.endpoint == endpoint) entry.endpoint.clear();
  }
  it->second.endpoint = endpoint;
}

void PoolAccess::forget(const base::PoolId& pool_id) {
  const std::lock_guard lock(mutex_);
  if (const auto it = entries_.find(pool_id); it != entries_.end()) it->second.endpoint.clear();
}

std::optional<std::string> PoolAccess::endpoint_of(const base::PoolId& pool_id) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(pool_id);
  if (it == entries_.end() || it->second.endpoint.empty()) return std::nullopt;
  return it->second.endpoint;
}

std::optional<PoolAccess::Pool> PoolAccess::at(const std::string& endpoint) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    if (!endpoint.empty() && entry.endpoint == endpoint) return Pool{id, entry.control_token};
  }
  return std::nullopt;
}

std::optional<std::string> PoolAccess::token_of(const base::PoolId& pool_id) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(pool_id);
  return it == entries_.end() ? std::nullopt : std::optional(it->second.control_token);
}

}  // namespace llorch::orchestratord::pool_access
