#include "orchestratord/pool_access/pool_access.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "base/assert.h"
#include "base/file.h"
#include "config/model_grant.h"
#include "orchestratord/pool_access/pool_address.h"

namespace llorch::orchestratord::pool_access {
namespace {

using base::ErrorCode;

constexpr std::string_view kFirstLine = "llorch-pool-credentials 1";
constexpr std::size_t kFileBytesMax = 4 << 20;
// More reports that name different places are not on their way to the core at a time.
constexpr std::size_t kAnnouncedMax = 16;

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
    Entry entry{.node_token_sha256 = *digest, .control_token = std::move(token), .endpoint = {}, .announced = {}};
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
    entry.announced = same ? old->second.announced : std::vector<std::string>();
  }
  entries_ = std::move(entries);
  by_node_token_.clear();
  for (const auto& [id, entry] : entries_) by_node_token_.emplace(entry.node_token_sha256, id);
}

base::Result<config::PoolCredential> PoolAccess::pair(const base::PoolId& pool_id) {
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
  auto credential = config::PoolCredential::make(pool_id, entropy_);
  entries[pool_id] = {.node_token_sha256 = base::sha256(credential.node_token()),
                      .control_token = credential.control_token(),
                      .endpoint = {},
                      .announced = {}};
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

bool PoolAccess::is_paired(const config::PoolCredential& credential) const {
  const auto caller = caller_of(base::sha256(credential.node_token()));
  return caller && caller->name == credential.pool_id().value;
}

bool PoolAccess::is_paired(const base::PoolId& pool_id) const {
  const std::lock_guard lock(mutex_);
  return entries_.contains(pool_id);
}

net::http::Principal PoolAccess::Entry::caller(const base::PoolId& pool_id) const {
  return {.role = net::http::Role::kNode,
          .name = pool_id.value,
          .identity = "pool:" + pool_id.value,
          .account = "token:" + base::to_hex(node_token_sha256)};
}

std::optional<net::http::Principal> PoolAccess::caller_of(const base::Sha256Digest& node_token_sha256) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_node_token_.find(node_token_sha256);
  if (it == by_node_token_.end()) return std::nullopt;
  return entries_.at(it->second).caller(it->second);
}

bool PoolAccess::is_current(const net::http::Principal& caller) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(base::PoolId(caller.name));
  return it != entries_.end() && it->second.caller(it->first) == caller;
}

bool PoolAccess::announce(const net::http::Principal& caller, const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(base::PoolId(caller.name));
  if (it == entries_.end() || it->second.caller(it->first) != caller) return false;
  auto& announced = it->second.announced;
  std::erase(announced, endpoint);
  announced.push_back(endpoint);
  if (announced.size() > kAnnouncedMax) announced.erase(announced.begin());
  return true;
}

void PoolAccess::remember(const base::PoolId& pool_id, const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(pool_id);
  if (it == entries_.end()) return;
  const auto& announced = it->second.announced;
  if (std::find(announced.begin(), announced.end(), endpoint) != announced.end()) move_to(it->second, endpoint);
}

void PoolAccess::restore(const base::PoolId& pool_id, const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  if (const auto it = entries_.find(pool_id); it != entries_.end()) move_to(it->second, endpoint);
}

// One pool answers at an endpoint: the one that was accepted there last.
void PoolAccess::move_to(Entry& entry, const std::string& endpoint) {
  for (auto& [id, other] : entries_) {
    if (other.endpoint == endpoint) other.endpoint.clear();
  }
  entry.endpoint = endpoint;
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

bool PoolAccess::all_are_here() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::none_of(entries_, [](const auto& entry) { return entry.second.endpoint.empty(); });
}

std::vector<std::string> PoolAccess::besides(const std::vector<std::string>& endpoints) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [id, entry] : entries_) {
    if (std::ranges::find(endpoints, entry.endpoint) == endpoints.end()) out.push_back(id.value);
  }
  return out;
}

std::optional<PoolAccess::Pool> PoolAccess::at(const std::string& endpoint) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    if (!endpoint.empty() && entry.endpoint == endpoint) return Pool{id, entry.control_token};
  }
  return std::nullopt;
}

std::optional<std::string> PoolAccess::grant(const base::PoolId& pool_id, std::string_view checksum,
                                             std::int64_t until_unix_s) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(pool_id);
  if (it == entries_.end()) return std::nullopt;
  return config::model_grant(it->second.control_token, checksum, until_unix_s);
}

std::optional<std::string> PoolAccess::token_for_worker(const base::PoolId& pool_id, const std::string& uri) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(pool_id);
  if (it == entries_.end() || !check_worker_uri(uri, it->second.endpoint)) return std::nullopt;
  return it->second.control_token;
}

}  // namespace llorch::orchestratord::pool_access
