#pragma once
// Files that a client asked to have kept: uploads, and results that wait to be read. One file each in the directory `blobs` of
// the state directory, sealed under a key of its own in `blobs/keys`; to erase a blob is to overwrite its key.
//
// A file is a header {magic, slot of the key} and frames {kind, length, nonce, sealed bytes}, appended and never changed. A frame
// holds a piece of the content, or the blob's facts, the latest of which count. Each frame is bound to the blob's id, to its
// place among the frames and to its kind. What a crash tore off at the end is cut off at the next start, all of it: what one
// append() wrote is there whole or not at all.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/entropy.h"
#include "base/log_limiter.h"
#include "base/result.h"
#include "base/settled_clock.h"
#include "orchestratord/store/payload/payload_keys.h"

namespace llorch::orchestratord::store::blobs {

struct Facts {
  std::string kind;       // who made it: "file", "response", "batch", ...
  std::string tenant_id;  // whose it is; empty: the operator's
  std::int64_t created_unix_ms = 0;
  std::optional<std::int64_t> expires_unix_ms{};  // when expire() takes it; absent: it stays
  std::string body;                               // what its maker knows of it, as text
};

struct Blob {
  std::string id;
  Facts facts;
  std::uint64_t content_bytes = 0;
};

// Not thread-safe; every member may wait for the disk. Errors of all: STORE_UNAVAILABLE; of those that take an id of a blob that
// is not there: NOT_FOUND; of those that take facts: PAYLOAD_TOO_LARGE, they are more than kFactsBytesMax as text.
class BlobStore {
 public:
  static constexpr std::size_t kFactsBytesMax = 64 << 20;

  struct Options {
    std::filesystem::path directory;  // made if it is missing
    std::uint64_t tenant_bytes_max = 1ULL << 30;
    std::uint64_t answer_bytes_max = 256ULL << 20;  // of answers, what a tenant may have past tenant_bytes_max
    const base::Clock* clock = nullptr;             // REQUIRES not null; outlives the store
    std::function<std::int64_t()> asleep_ms = base::asleep_ms;
  };
  // Reads what is there: whatever cannot be a blob any more (no key, no facts) is erased. Where a file cannot be read, nothing is.
  // REQUIRES: `entropy` outlives the store. Only one store has the directory at a time.
  static base::Result<std::unique_ptr<BlobStore>> open(Options options, base::Entropy& entropy);

  // A new blob with all of `content`; it is there with both or not at all. REQUIRES: `id` is a name of a file, and find() does not
  // know it. Errors: QUOTA_EXCEEDED; STORE_UNAVAILABLE also while an erased blob of this id has its key on the disk.
  base::Result<> create(std::string id, Facts facts, std::string_view content = {});
  // When it returns, the bytes are on the disk. After an error a restart may find them or not; whoever tries again has them once.
  base::Result<> append(const std::string& id, std::string_view bytes);
  // A tenant's room is not asked for: what a blob is begun with is as long as what it is ended with, and between them few write.
  base::Result<> set_facts(const std::string& id, Facts facts);
  // The blob with these facts and this content instead, under a new key. Returns whether nobody can read what it held before; where
  // the disk refused that, expire() tries again. After an error a restart finds the one or the other, whole. A tenant's room is not
  // asked for.
  base::Result<bool> replace(const std::string& id, Facts facts, std::string_view content);
  // What a blob was begun for is here: `content` first, unless an earlier call has written it, then the facts that say that it is
  // whole. Tried again after an error it goes on where it was.
  struct Ending {
    std::string_view content;
    std::string body;  // of the facts
    std::int64_t expires_unix_ms = 0;
  };
  base::Result<> complete(const std::string& id, Ending ending);
  // Up to `bytes_max` bytes from `offset`; fewer at the end, none behind it. CORRUPT_FILE: the disk gave back other bytes.
  base::Result<std::string> read(const std::string& id, std::uint64_t offset, std::size_t bytes_max);
  // When it returns, nobody can read the content any more. Idempotent. It needs no room on the disk. After an error the blob is not
  // found any more and counts for nobody, but its key may still be on the disk: the next call, or expire(), overwrites it.
  base::Result<> erase(const std::string& id);

  // Null: none has this id.
  const Blob* find(const std::string& id) const;
  // Oldest first; of all tenants where `tenant_id` is absent. Looks at nothing else.
  std::vector<const Blob*> list(std::string_view kind,
                                const std::optional<std::string>& tenant_id = std::nullopt) const;

  // Whether the tenant may begin a blob of this many bytes; each counts as 4 KiB at least. Takes no longer with more blobs. Errors:
  // QUOTA_EXCEEDED.
  base::Result<> check_room(const std::string& tenant_id, std::uint64_t bytes) const;
  // Whether an answer of this many bytes may be kept, to a request that was accepted while there was room: how long it would be nobody
  // knew. One of no more than 4 KiB always may. Errors: QUOTA_EXCEEDED, and the log says so.
  base::Result<> check_answer(const std::string& tenant_id, std::uint64_t bytes) const;
  // Erases what expired, but nothing that `in_use` names; what could not be erased is tried again by the next call.
  // Returns how many are gone. What was given its end by this process ends by elapsed_ms(), the rest by unix_ms(). Looks at nothing that
  // has time left.
  std::size_t expire(const std::function<bool(const Blob&)>& in_use = {});
  // The time by which what an earlier process kept expires: no jump of the wall clock ends it.
  std::int64_t unix_ms() { return settled_->unix_ms(); }
  // Monotonic, and goes on while the machine sleeps.
  std::int64_t elapsed_ms() const;

 private:
  enum class FrameKind : std::uint8_t {
    kFacts = 1,
    kContent = 2,
    kContentGoesOn = 3
  };  // 3: not the last of an append()
  struct Piece {
    std::uint64_t content_offset = 0;
    std::uint64_t file_offset = 0;  // of the frame
    std::uint64_t frame = 0;        // its place among the frames
    std::uint32_t sealed_bytes = 0;
    FrameKind kind = FrameKind::kContent;
  };
  struct Entry {
    Blob blob;
    payload::Slot slot{};
    std::uint64_t file_bytes = 0;
    std::uint64_t frames = 0;
    std::vector<Piece> pieces{};
    std::optional<std::int64_t> due_elapsed_ms{};  // when it expires, if this process said when
    bool erased = false;  // its file is removed and its key is overwritten, as soon as the disk does it
  };

  BlobStore(Options options, payload::PayloadKeys keys, base::Entropy& entropy)
      : options_(std::move(options)), keys_(std::move(keys)), entropy_(entropy) {}

  std::filesystem::path path_of(const std::string& id) const;
  std::string context_of(const std::string& id, std::uint64_t frame, FrameKind kind) const;
  void add_frame(Entry& entry, const payload::Key& key, FrameKind kind, std::string_view bytes, std::string& out) const;
  void add_content(Entry& entry, const payload::Key& key, std::string_view content, std::string& out) const;
  struct End {
    std::uint64_t file_bytes = 0, frames = 0, content_bytes = 0;
    std::size_t pieces = 0;
  };
  static End end_of(const Entry& entry) {
    return {entry.file_bytes, entry.frames, entry.blob.content_bytes, entry.pieces.size()};
  }
  base::Result<> extend(Entry& entry, const End& end, std::string_view bytes);
  // A whole file under a new key, and what it is written as.
  base::Result<std::pair<Entry, std::string>> compose(const std::string& id, Facts facts, std::string_view content);
  base::Result<Entry> read_entry(const std::string& id, payload::Slot slot);
  static void cut(Entry& entry, const End& end);
  void remove_file(const std::string& id) const;
  // Errors: the slot's key may still be on the disk.
  base::Result<> make_erasure_durable(payload::Slot slot);
  Entry* entry_of(const std::string& id);
  std::uint64_t held_bytes(const std::string& tenant_id) const;
  std::optional<std::int64_t> due_elapsed_ms(const Facts& facts) const;
  // Each entry is listed by its facts and counts for its tenant, from when it is there until it is erased. REQUIRES of delist(): the
  // entry is as it was when it was listed, but for its size, which extend() counts.
  void enlist(const Entry& entry);
  void delist(const Entry& entry);

  // By a time, then by id.
  struct Listed {
    std::int64_t at_ms = 0;
    const Blob* blob = nullptr;
    bool operator<(const Listed& other) const {
      return at_ms != other.at_ms ? at_ms < other.at_ms : blob->id < other.blob->id;
    }
  };

  Options options_;
  payload::PayloadKeys keys_;
  base::Entropy& entropy_;
  std::map<std::string, Entry> entries_;
  std::map<std::pair<std::string, std::string>, std::set<Listed>>
      owned_;                                                  // by kind and tenant, from when they were made
  std::map<std::string, std::uint64_t> held_bytes_;            // by tenant
  std::set<Listed> due_elapsed_, due_unix_;                    // when each expires, by elapsed_ms() and by unix_ms()
  std::set<std::string> unerased_;                             // ids of the erased ones of `entries_`
  std::optional<base::SettledClock> settled_;                  // set by open()
  mutable base::LogLimiter refused_answer_lines_{10, 10'000};  // clients decide how often one is refused
};

}  // namespace llorch::orchestratord::store::blobs
