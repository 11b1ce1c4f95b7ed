#include "orchestratord/store/key_owner.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "orchestratord/store/payload/payload_keys.h"
#include "orchestratord/store/payload/sealing.h"

namespace llorch::orchestratord::store {
namespace {

using base::ErrorCode;

// One write of one sector, whatever it replaces.
constexpr std::size_t kRecordBytes = 64;

}  // namespace

// "KIND MADE_UNIX_MS", a line break, blanks.
std::optional<KeyOwner::Name> KeyOwner::parse(std::string_view text) {
  const std::size_t end = text.find('\n'), blank = text.find(' ');
  if (end == std::string_view::npos || blank == 0 || blank >= end) return std::nullopt;
  Name name{std::string(text.substr(0, blank)), 0};
  const auto [rest, failed] = std::from_chars(text.data() + blank + 1, text.data() + end, name.made_unix_ms);
  if (failed != std::errc() || rest != text.data() + end) return std::nullopt;
  return name;
}

std::string KeyOwner::words(const Name& name) {
  return fmt::format("the {} store that was made at {}", name.kind, base::rfc3339(name.made_unix_ms));
}

base::Result<KeyOwner> KeyOwner::open(Options options) {
  ASSERT(options.keys != nullptr && options.name != nullptr);
  std::string text(std::min<std::size_t>(TRY(options.name->size()), kRecordBytes), '\0');
  TRY(options.name->read(0, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}));
  return KeyOwner(std::move(options), parse(text));
}

base::Result<bool> KeyOwner::holds_keys() const {
  std::vector<std::uint8_t> bytes(TRY(payload::keys_bytes(*options_.keys)));
  TRY(options_.keys->read(0, bytes));
  return std::ranges::any_of(bytes, [](std::uint8_t byte) { return byte != 0; });
}

std::optional<std::string> KeyOwner::unsealed(const SealedPayload& payload) const {
  payload::Key key;
  if (!options_.keys->read(std::uint64_t{payload.row.key_slot} * payload::kKeyBytes, key.bytes)) return std::nullopt;
  auto text = payload::unseal(key, {.associated_data = payload.job_id}, {payload.row.nonce, payload.row.ciphertext});
  if (!text) return std::nullopt;
  return std::move(*text);
}

// The keys tell whose the payloads are: they come along where a state directory is moved or restored, and where that lost its record. A
// start without them would end live jobs of a store, or of the store that the keys were for, and it may be one that was never meant. What
// has no schema yet has sealed nothing, so that keys are of another store even where that is not named. Keys of jobs to come, which only a
// crash leaves, look like those of live ones.
base::Result<> KeyOwner::check(const FoundStore& found) const {
  if (options_.take_over) return {};
  const bool is_named_otherwise = !found.made_unix_ms || (name_ && *name_ != Name{found.kind, *found.made_unix_ms});
  const bool keys_of_another = is_named_otherwise && TRY(holds_keys());
  if (!found.owner && !keys_of_another) return {};
  const std::vector<SealedPayload> payloads = TRY(found.payloads());
  const auto opened_count =
      std::ranges::count_if(payloads, [&](const SealedPayload& p) { return unsealed(p).has_value(); });
  const bool opens_all = std::cmp_equal(opened_count, payloads.size());
  if (opens_all && (!keys_of_another || !payloads.empty())) return {};
  if (keys_of_another) {
    const std::string other = name_ ? words(*name_) : "another store";
    const std::string here =
        found.made_unix_ms ? words({found.kind, *found.made_unix_ms}) : fmt::format("a new {} store", found.kind);
    return base::fail(base::Error{
        ErrorCode::kConflict,
        fmt::format(
            "payload.keys of {} holds keys for prompts of {}, which a start with {} destroys. Name "
            "the former store in orchestratord.persistence again; give this one a state directory "
            "of its own; move payload.keys away where that store is gone for good; or, to give these prompts up, run "
            "orchestratord once with --take-over",
            options_.place, other, here),
        {}}.with("keys_of", other));
  }
  return base::fail(base::Error{
      ErrorCode::kConflict,
      fmt::format("the job store in this {0} database is that of the orchestratord of {1}: the payload.keys "
                  "of {2} opens the prompts of {3} of its {4} live jobs, and those of the others would be "
                  "lost. Start the orchestratord of {1}, or move its state directory here; give this one "
                  "a database of its own; or, to give these prompts up, run it once with --take-over",
                  found.kind, *found.owner, options_.place, opened_count, payloads.size()),
      {}}.with("store_owner", *found.owner)
                        .with("live_jobs", static_cast<std::int64_t>(payloads.size()))
                        .with("opened_jobs", static_cast<std::int64_t>(opened_count)));
}

base::Result<> KeyOwner::record(const std::string& kind, std::int64_t made_unix_ms) {
  Name name{kind, made_unix_ms};
  if (name_ == name) return {};
  std::string text = fmt::format("{} {}\n", name.kind, name.made_unix_ms);
  ASSERT(text.size() <= kRecordBytes);
  text.resize(kRecordBytes, ' ');
  auto written = options_.name->write(0, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  if (written) written = options_.name->sync();
  if (!written && name_) return written;
  if (!written) {
    base::log_event(base::LogLevel::kWarn, "store.keys_not_named", {},
                    "Cannot record which store the payload keys are of; the next start tries again.",
                    {{"error", written.error().message}});
    return {};
  }
  name_ = std::move(name);
  return {};
}

}  // namespace llorch::orchestratord::store
