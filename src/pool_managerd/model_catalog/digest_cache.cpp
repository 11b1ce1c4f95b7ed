#include "pool_managerd/model_catalog/digest_cache.h"

#include <boost/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/file_reads.h"
#include "base/log.h"
#include "pool_managerd/model_catalog/one_state.h"

namespace llorch::pool_managerd::model_catalog {
namespace {

namespace bj = boost::json;

constexpr std::size_t kCacheBytesMax = 16 << 20;
constexpr std::size_t kEntriesMax = 4096;

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

DigestCache::DigestCache(std::filesystem::path cache_file) : cache_file_(std::move(cache_file)) { load(); }

base::Result<engine::io::StampedDigest> DigestCache::digest_of(const std::filesystem::path& model, bool reread) {
  if (auto kept = reread ? std::nullopt : known(model)) return *std::move(kept);
  const auto hash = [&] {
    return engine::io::model_digest(model, [&](std::uint64_t, std::uint64_t) -> base::Result<> {
      base::FileReads::progressed();
      if (!stopped_) return {};
      return base::fail(base::ErrorCode::kCancelled, "the pool manager is stopping");
    });
  };
  auto [digest, stamp] = TRY(of_one_state(model, hash));
  const std::lock_guard lock(mutex_);
  keep(model, {.digest = digest, .stamp = stamp});
  return engine::io::StampedDigest{.digest = std::move(digest), .stamp = std::move(stamp)};
}

void DigestCache::computed(const std::filesystem::path& model, const std::string& digest) {
  auto stamp = engine::io::model_stamp(model);
  if (!stamp) return;
  const std::lock_guard lock(mutex_);
  keep(model, {.digest = digest, .stamp = *std::move(stamp)});
}

base::Result<bool> DigestCache::confirms(const std::filesystem::path& model, const engine::io::StampedDigest& told) {
  TRY(digest_of(model));
  const auto read = known(model);
  return !read || read->stamp != told.stamp || read->digest == told.digest;
}

void DigestCache::keep(const std::filesystem::path& model, engine::io::StampedDigest digest) {
  if (entries_.size() >= kEntriesMax) entries_.clear();
  entries_[model.string()] = std::move(digest);
  save();
}

std::optional<engine::io::StampedDigest> DigestCache::known(const std::filesystem::path& model) const {
  const auto now = engine::io::model_stamp(model);
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(model.string());
  if (!now || it == entries_.end() || it->second.stamp != *now) return std::nullopt;
  return it->second;
}

std::vector<std::filesystem::path> DigestCache::find_files(const std::string& digest) const {
  std::vector<std::pair<std::string, std::string>> candidates;  // paths and stamps
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [path, entry] : entries_) {
      if (entry.digest == digest) candidates.emplace_back(path, entry.stamp);
    }
  }
  // Without the lock: a file of a mount that does not answer holds up this thread, and not those that ask for other models.
  std::vector<std::filesystem::path> out;
  for (const auto& [path, stamp] : candidates) {
    const auto now = engine::io::model_stamp(path);
    if (now && *now == stamp) out.emplace_back(path);
  }
  return out;
}

void DigestCache::load() {
  const auto text = base::read_file(cache_file_, kCacheBytesMax);
  if (!text) return;
  bj::error_code ec;
  const bj::value parsed = bj::parse(*text, ec);
  if (ec || !parsed.is_array()) return;
  for (const bj::value& item : parsed.get_array()) {
    const bj::object* entry = item.if_object();
    if (entry == nullptr) continue;
    const auto text_of = [&](const char* key) {
      const bj::value* v = entry->if_contains(key);
      return v != nullptr && v->is_string() ? std::string(v->get_string().c_str()) : std::string();
    };
    const std::string digest = text_of("sha256");
    if (!is_sha256(digest) || text_of("path").empty()) continue;
    entries_[text_of("path")] = {.digest = digest, .stamp = text_of("stamp")};
  }
}

void DigestCache::save() const {
  bj::array items;
  for (const auto& [path, entry] : entries_) {
    items.push_back(bj::object{{"path", path}, {"stamp", entry.stamp}, {"sha256", entry.digest}});
  }
  const auto saved = base::write_file_atomic(cache_file_, bj::serialize(items));
  if (!saved) {
    base::log_event(base::LogLevel::kWarn, "digest_cache_unsaved", {},
                    "A model's digest cannot be kept and will be computed again after a restart.",
                    {{"reason", saved.error().message}});
  }
}

}  // namespace llorch::pool_managerd::model_catalog
