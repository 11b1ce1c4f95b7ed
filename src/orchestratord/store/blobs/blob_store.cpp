#include "orchestratord/store/blobs/blob_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <utility>

#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "wire/json.h"

namespace llorch::orchestratord::store::blobs {
namespace {

using base::ErrorCode;
using payload::Key;
using payload::Slot;

constexpr std::string_view kMagic = "llblob1\n";
constexpr std::string_view kMagicOfAnyVersion = kMagic.substr(0, 6);
constexpr std::size_t kHeaderBytes = kMagic.size() + sizeof(std::uint32_t);
constexpr std::size_t kFrameHeadBytes = sizeof(std::uint32_t) + 1;
constexpr std::size_t kSealBytes = payload::kNonceBytes + payload::kTagBytes;
constexpr std::size_t kPieceBytesMax = 64 << 10;  // of content in one frame: what reading a few bytes of it costs
constexpr std::size_t kFrameBytesMax = std::max(BlobStore::kFactsBytesMax, kPieceBytesMax);
constexpr std::string_view kSuffix = ".blob";
constexpr std::uint64_t kFileBytesMin = 4096;  // what any file takes of a disk, and more than what it takes of memory

std::uint64_t counted_bytes(std::uint64_t file_bytes) { return std::max(file_bytes, kFileBytesMin); }

void append_u32(std::string& out, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xff);
}

std::uint32_t read_u32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) value |= std::uint32_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
  return value;
}

tl::unexpected<base::Error> file_error(std::string_view action, const std::filesystem::path& path) {
  base::Error error = base::io_error(action, path, errno);
  error.code = ErrorCode::kStoreUnavailable;
  return base::fail(std::move(error));
}

base::Result<> as_unavailable(base::Result<> result) {
  if (!result) result.error().code = ErrorCode::kStoreUnavailable;
  return result;
}

tl::unexpected<base::Error> not_found(const std::string& id) {
  return base::fail(base::Error{ErrorCode::kNotFound, "nothing is kept under this id", {}}.with("id", id));
}

// An open blob file.
class File {
 public:
  static base::Result<File> open(const std::filesystem::path& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return file_error("cannot open", path);
    return File(fd, path);
  }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  File& operator=(File&&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }

  base::Result<std::uint64_t> size() const {
    struct stat st {};
    if (::fstat(fd_, &st) != 0) return file_error("cannot stat", path_);
    return static_cast<std::uint64_t>(st.st_size);
  }
  base::Result<std::string> read(std::uint64_t offset, std::size_t bytes) const {
    std::string out(bytes, '\0');
    const ssize_t n = ::pread(fd_, out.data(), bytes, static_cast<off_t>(offset));
    if (n >= 0 && static_cast<std::size_t>(n) != bytes) errno = EIO;
    if (n < 0 || static_cast<std::size_t>(n) != bytes) return file_error("cannot read", path_);
    return out;
  }
  base::Result<> write_at_end(std::uint64_t end, std::string_view bytes) {
    // What an append that failed has left behind the end goes first.
    if (TRY(size()) != end && ::ftruncate(fd_, static_cast<off_t>(end)) != 0) return file_error("cannot cut", path_);
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(end));
    if (n >= 0 && static_cast<std::size_t>(n) != bytes.size()) errno = ENOSPC;
    if (n < 0 || static_cast<std::size_t>(n) != bytes.size()) return file_error("cannot write", path_);
    if (::fdatasync(fd_) != 0) return file_error("cannot sync", path_);
    return {};
  }

 private:
  File(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}

  int fd_;
  std::filesystem::path path_;
};

// One frame holds them, and a start reads no larger one.
base::Result<std::string> encode(const Facts& facts) {
  boost::json::object object{{"kind", facts.kind},
                             {"tenant_id", facts.tenant_id},
                             {"created_unix_ms", facts.created_unix_ms},
                             {"body", facts.body}};
  if (facts.expires_unix_ms) object["expires_unix_ms"] = *facts.expires_unix_ms;
  std::string text = boost::json::serialize(object);
  if (text.size() <= BlobStore::kFactsBytesMax) return text;
  return base::fail(base::Error{
      ErrorCode::kPayloadTooLarge,
      fmt::format("what is to be kept of this request has {} bytes as text, and {} is the "
                  "limit; send a smaller one",
                  text.size(), BlobStore::kFactsBytesMax),
      {}}.with("bytes_max", static_cast<std::int64_t>(BlobStore::kFactsBytesMax)));
}

std::optional<Facts> decode_facts(std::string_view text) {
  boost::system::error_code failed;
  const boost::json::value value = boost::json::parse(text, failed);
  if (failed || !value.is_object()) return std::nullopt;
  const auto text_of = [&](const char* name) {
    const auto* member = value.get_object().if_contains(name);
    return member != nullptr && member->is_string() ? std::optional<std::string>(member->get_string()) : std::nullopt;
  };
  const auto number_of = [&](const char* name) {
    const auto* member = value.get_object().if_contains(name);
    return member != nullptr && member->is_int64() ? std::optional(member->get_int64()) : std::nullopt;
  };
  const auto kind = text_of("kind"), tenant_id = text_of("tenant_id"), body = text_of("body");
  const auto created_unix_ms = number_of("created_unix_ms");
  if (!kind || !tenant_id || !body || !created_unix_ms) return std::nullopt;
  return Facts{*kind, *tenant_id, *created_unix_ms, number_of("expires_unix_ms"), *body};
}

struct Frame {
  std::uint8_t kind = 0;
  std::uint32_t sealed_bytes = 0;
};

// Nothing: the file ends before the frame does.
base::Result<std::optional<Frame>> frame_at(const File& file, std::uint64_t at, std::uint64_t file_bytes) {
  if (file_bytes - at < kFrameHeadBytes) return std::nullopt;
  const std::string head = TRY(file.read(at, kFrameHeadBytes));
  const Frame frame{static_cast<std::uint8_t>(head[sizeof(std::uint32_t)]), read_u32(head)};
  const bool fits = frame.sealed_bytes >= kSealBytes && frame.sealed_bytes <= kFrameBytesMax + kSealBytes &&
                    frame.sealed_bytes <= file_bytes - at - kFrameHeadBytes;
  return fits ? std::optional(frame) : std::nullopt;
}

base::Result<std::string> unseal(const Key& key, const std::string& context, const std::string& sealed) {
  return payload::unseal(key, {context}, {sealed.substr(0, payload::kNonceBytes), sealed.substr(payload::kNonceBytes)});
}

// The slot that the file's header names; nothing: this is no blob. Errors: STORE_UNAVAILABLE, nobody can say what it is;
// UNSUPPORTED_FORMAT_VERSION.
base::Result<std::optional<Slot>> slot_of(const std::filesystem::path& path) {
  const File file = TRY(File::open(path, O_RDONLY));
  if (TRY(file.size()) < kHeaderBytes) return std::nullopt;
  const std::string header = TRY(file.read(0, kHeaderBytes));
  if (!header.starts_with(kMagic)) {
    if (!header.starts_with(kMagicOfAnyVersion)) return std::nullopt;
    return base::fail(ErrorCode::kUnsupportedFormatVersion,
                      fmt::format("{} was kept by another version of orchestratord, whose format this one does not "
                                  "know; run that version, or move the file away to give it up",
                                  path.string()));
  }
  return Slot{read_u32(std::string_view(header).substr(kMagic.size()))};
}

}  // namespace

std::filesystem::path BlobStore::path_of(const std::string& id) const {
  return options_.directory / (id + std::string(kSuffix));
}

std::string BlobStore::context_of(const std::string& id, std::uint64_t frame, FrameKind kind) const {
  return fmt::format("{}:{}:{}", id, frame, static_cast<int>(kind));
}

base::Result<std::unique_ptr<BlobStore>> BlobStore::open(Options options, base::Entropy& entropy) {
  TRY(as_unavailable(base::ensure_private_directory(options.directory)));
  std::map<std::string, Slot> candidates;
  std::vector<std::filesystem::path> others;
  std::error_code failed;
  for (const auto& file : std::filesystem::directory_iterator(options.directory, failed)) {
    const std::filesystem::path& path = file.path();
    if (path.filename() == "keys") continue;
    const auto slot = path.extension() == kSuffix ? TRY(slot_of(path)) : std::nullopt;
    if (slot && index(*slot) < (1U << 24)) {
      candidates.emplace(path.stem().string(), *slot);
    } else {
      others.push_back(path);
    }
  }
  if (failed) {
    errno = failed.value();
    return file_error("cannot list", options.directory);
  }
  std::set<Slot> named;
  for (const auto& [id, slot] : candidates) named.insert(slot);
  payload::PayloadKeys keys(TRY(files::open_state_file(options.directory / "keys")), entropy);
  TRY(keys.adopt(named));
  std::unique_ptr<BlobStore> store(new BlobStore(std::move(options), std::move(keys), entropy));
  // Two files name one slot where a crash came between the end of one blob's key and the end of its file.
  std::set<Slot> used;
  std::optional<std::int64_t> newest_unix_ms;
  for (const auto& [id, slot] : candidates) {
    auto entry = store->read_entry(id, slot);
    if (!entry && entry.error().code != ErrorCode::kCorruptFile) return base::fail(std::move(entry).error());
    if (entry) {
      used.insert(slot);
      newest_unix_ms = std::max(newest_unix_ms, std::optional(entry->blob.facts.created_unix_ms));
      store->enlist(store->entries_.emplace(id, *std::move(entry)).first->second);
    } else {
      base::log_event(base::LogLevel::kWarn, "blobs.dropped", {},
                      "A kept file that has no key or no facts any more is removed.");
      others.push_back(store->path_of(id));
    }
  }
  for (const Slot slot : named) {
    if (!used.contains(slot)) store->keys_.erase(slot);
  }
  TRY(store->keys_.sync());
  for (const auto& path : others) std::filesystem::remove(path, failed);
  store->settled_.emplace(*store->options_.clock, newest_unix_ms);
  return store;
}

void BlobStore::cut(Entry& entry, const End& end) {
  entry.file_bytes = end.file_bytes;
  entry.frames = end.frames;
  entry.pieces.resize(end.pieces);
  entry.blob.content_bytes = end.content_bytes;
}

// Frame by frame. What was last written proves that no crash tore it. CORRUPT_FILE: no facts can be read. STORE_UNAVAILABLE: the
// disk does not give all of it now, which says nothing of what is there.
base::Result<BlobStore::Entry> BlobStore::read_entry(const std::string& id, Slot slot) {
  const Key key = TRY(keys_.read(slot));
  const File file = TRY(File::open(path_of(id), O_RDONLY));
  const std::uint64_t file_bytes = TRY(file.size());
  Entry entry{.blob = {.id = id, .facts = {}}, .slot = slot, .file_bytes = kHeaderBytes};
  const auto open_frame = [&](const Piece& at) -> base::Result<std::string> {
    const std::string sealed = TRY(file.read(at.file_offset + kFrameHeadBytes, at.sealed_bytes));
    return unseal(key, context_of(id, at.frame, at.kind), sealed);
  };
  std::optional<Facts> facts;
  End last = end_of(entry);  // where the write that is being read began
  End whole = last;
  while (const auto frame = TRY(frame_at(file, entry.file_bytes, file_bytes))) {
    const Piece piece{entry.blob.content_bytes, entry.file_bytes, entry.frames, frame->sealed_bytes,
                      static_cast<FrameKind>(frame->kind)};
    if (piece.kind == FrameKind::kFacts) {
      const auto text = open_frame(piece);
      if (!text && text.error().code != ErrorCode::kCorruptFile) return base::fail(text.error());
      if (!text) break;
      facts = decode_facts(*text);
    } else {
      entry.pieces.push_back(piece);
      entry.blob.content_bytes += frame->sealed_bytes - kSealBytes;
    }
    ++entry.frames;
    entry.file_bytes += kFrameHeadBytes + frame->sealed_bytes;
    if (piece.kind == FrameKind::kContentGoesOn) continue;
    last = std::exchange(whole, end_of(entry));
  }
  if (!facts) return base::fail(ErrorCode::kCorruptFile, "the blob has no facts that its key opens");
  cut(entry, whole);
  for (std::size_t i = last.pieces; i < entry.pieces.size(); ++i) {
    const auto content = open_frame(entry.pieces[i]);
    if (content) continue;
    if (content.error().code != ErrorCode::kCorruptFile) return base::fail(content.error());
    base::log_event(base::LogLevel::kWarn, "blobs.cut", {},
                    "The last bytes of a kept file are damaged, and are cut off.",
                    {{"bytes", entry.blob.content_bytes - last.content_bytes}});
    cut(entry, last);
    break;
  }
  entry.blob.facts = *std::move(facts);
  return entry;
}

void BlobStore::add_frame(Entry& entry, const Key& key, FrameKind kind, std::string_view bytes,
                          std::string& out) const {
  const std::string context = context_of(entry.blob.id, entry.frames, kind);
  const payload::Sealed sealed = payload::seal(key, {context}, bytes, entropy_);
  const auto sealed_bytes = static_cast<std::uint32_t>(sealed.nonce.size() + sealed.ciphertext.size());
  append_u32(out, sealed_bytes);
  out += static_cast<char>(kind);
  out.append(sealed.nonce).append(sealed.ciphertext);
  if (kind != FrameKind::kFacts) {
    entry.pieces.push_back({entry.blob.content_bytes, entry.file_bytes, entry.frames, sealed_bytes, kind});
    entry.blob.content_bytes += bytes.size();
  }
  ++entry.frames;
  entry.file_bytes += kFrameHeadBytes + sealed_bytes;
}

void BlobStore::add_content(Entry& entry, const Key& key, std::string_view content, std::string& out) const {
  for (std::size_t at = 0; at < content.size(); at += kPieceBytesMax) {
    const bool is_last = content.size() - at <= kPieceBytesMax;
    add_frame(entry, key, is_last ? FrameKind::kContent : FrameKind::kContentGoesOn, content.substr(at, kPieceBytesMax),
              out);
  }
}

std::int64_t BlobStore::elapsed_ms() const { return options_.clock->now().mono_ms + options_.asleep_ms(); }

std::optional<std::int64_t> BlobStore::due_elapsed_ms(const Facts& facts) const {
  if (!facts.expires_unix_ms) return std::nullopt;
  return elapsed_ms() + std::max<std::int64_t>(0, *facts.expires_unix_ms - options_.clock->now().unix_ms);
}

base::Result<std::pair<BlobStore::Entry, std::string>> BlobStore::compose(const std::string& id, Facts facts,
                                                                          std::string_view content) {
  const std::string text = TRY(encode(facts));
  const auto [slot, key] = TRY(keys_.create());
  Entry entry{.blob = {.id = id, .facts = std::move(facts)}, .slot = slot, .file_bytes = kHeaderBytes};
  entry.due_elapsed_ms = due_elapsed_ms(entry.blob.facts);
  std::string bytes(kMagic);
  append_u32(bytes, index(slot));
  add_frame(entry, key, FrameKind::kFacts, text, bytes);
  add_content(entry, key, content, bytes);
  return std::pair(std::move(entry), std::move(bytes));
}

base::Result<> BlobStore::create(std::string id, Facts facts, std::string_view content) {
  ASSERT(base::is_valid_identifier(id) && find(id) == nullptr, "a new blob has a new name");
  TRY(erase(id));  // what an earlier call could not
  TRY(check_room(facts.tenant_id, TRY(encode(facts)).size() + content.size()));
  auto [entry, bytes] = TRY(compose(id, std::move(facts), content));
  if (auto written = as_unavailable(base::write_file_atomic(path_of(id), bytes)); !written) {
    keys_.erase(entry.slot);
    remove_file(id);
    return written;
  }
  enlist(entries_.emplace(std::move(id), std::move(entry)).first->second);
  return {};
}

base::Result<bool> BlobStore::replace(const std::string& id, Facts facts, std::string_view content) {
  Entry* entry = entry_of(id);
  if (entry == nullptr) return not_found(id);
  auto [fresh, bytes] = TRY(compose(id, std::move(facts), content));
  if (fresh.blob.facts.expires_unix_ms == entry->blob.facts.expires_unix_ms)
    fresh.due_elapsed_ms = entry->due_elapsed_ms;
  auto written = as_unavailable(base::write_file_atomic(path_of(id), bytes));
  if (!written) {
    const auto on_disk = slot_of(path_of(id));
    if (on_disk && *on_disk != fresh.slot) keys_.erase(fresh.slot);
    if (!on_disk || *on_disk != fresh.slot) return base::fail(std::move(written).error());
  }
  delist(*entry);
  const Slot before = std::exchange(*entry, std::move(fresh)).slot;
  enlist(*entry);
  // The new file is there and may not stay: both keys do, until a start sees which file did. So they do above, where it may be there.
  if (!written) return base::fail(std::move(written).error());
  keys_.erase(before);
  return make_erasure_durable(before).has_value();
}

// `end`: where the entry's frames ended before they grew by `bytes`, and end again if the disk does not take them.
base::Result<> BlobStore::extend(Entry& entry, const End& end, std::string_view bytes) {
  auto file = File::open(path_of(entry.blob.id), O_RDWR);
  auto written = file ? file->write_at_end(end.file_bytes, bytes) : base::Result<>(base::fail(file.error()));
  if (!written) cut(entry, end);
  held_bytes_[entry.blob.facts.tenant_id] += counted_bytes(entry.file_bytes) - counted_bytes(end.file_bytes);
  return written;
}

base::Result<> BlobStore::append(const std::string& id, std::string_view bytes) {
  Entry* entry = entry_of(id);
  if (entry == nullptr) return not_found(id);
  if (bytes.empty()) return {};
  const Key key = TRY(keys_.read(entry->slot));
  const End end = end_of(*entry);
  std::string out;
  add_content(*entry, key, bytes, out);
  return extend(*entry, end, out);
}

base::Result<> BlobStore::set_facts(const std::string& id, Facts facts) {
  Entry* entry = entry_of(id);
  if (entry == nullptr) return not_found(id);
  const std::string text = TRY(encode(facts));
  const Key key = TRY(keys_.read(entry->slot));
  const End end = end_of(*entry);
  std::string out;
  add_frame(*entry, key, FrameKind::kFacts, text, out);
  TRY(extend(*entry, end, out));
  delist(*entry);
  if (facts.expires_unix_ms != entry->blob.facts.expires_unix_ms) entry->due_elapsed_ms = due_elapsed_ms(facts);
  entry->blob.facts = std::move(facts);
  enlist(*entry);
  return {};
}

base::Result<> BlobStore::complete(const std::string& id, Ending ending) {
  const Blob* blob = find(id);
  if (blob == nullptr) return not_found(id);
  if (blob->content_bytes == 0) TRY(append(id, ending.content));
  Facts facts = blob->facts;
  facts.body = std::move(ending.body);
  facts.expires_unix_ms = ending.expires_unix_ms;
  return set_facts(id, std::move(facts));
}

base::Result<std::string> BlobStore::read(const std::string& id, std::uint64_t offset, std::size_t bytes_max) {
  const Entry* found = entry_of(id);
  if (found == nullptr) return not_found(id);
  const Entry& entry = *found;
  std::string out;
  if (offset >= entry.blob.content_bytes) return out;
  const Key key = TRY(keys_.read(entry.slot));
  const File file = TRY(File::open(path_of(id), O_RDONLY));
  auto piece = std::prev(std::upper_bound(entry.pieces.begin(), entry.pieces.end(), offset,
                                          [](std::uint64_t at, const Piece& p) { return at < p.content_offset; }));
  for (; piece != entry.pieces.end() && out.size() < bytes_max; ++piece) {
    const std::string sealed = TRY(file.read(piece->file_offset + kFrameHeadBytes, piece->sealed_bytes));
    const std::string text = TRY(unseal(key, context_of(id, piece->frame, piece->kind), sealed));
    const std::uint64_t skip = offset > piece->content_offset ? offset - piece->content_offset : 0;
    out += std::string_view(text).substr(skip, bytes_max - out.size());
  }
  return out;
}

void BlobStore::remove_file(const std::string& id) const {
  std::error_code failed;
  std::filesystem::remove(path_of(id), failed);
}

// Another slot that finds no room keeps nobody from giving up what takes it.
base::Result<> BlobStore::make_erasure_durable(Slot slot) {
  auto synced = keys_.sync();
  return keys_.erasure_pending(slot) ? synced : base::Result<>();
}

// Key first: without it the file is noise, and a start removes it where it is still there.
base::Result<> BlobStore::erase(const std::string& id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return {};
  if (!it->second.erased) {
    keys_.erase(it->second.slot);
    delist(it->second);
    unerased_.insert(id);
  }
  it->second.erased = true;
  auto durable = make_erasure_durable(it->second.slot);
  remove_file(id);
  if (!durable) return durable;
  unerased_.erase(id);
  entries_.erase(it);
  return {};
}

void BlobStore::enlist(const Entry& entry) {
  const Blob& blob = entry.blob;
  const Facts& facts = blob.facts;
  owned_[{facts.kind, facts.tenant_id}].insert({facts.created_unix_ms, &blob});
  held_bytes_[facts.tenant_id] += counted_bytes(entry.file_bytes);
  if (entry.due_elapsed_ms) {
    due_elapsed_.insert({*entry.due_elapsed_ms, &blob});
  } else if (facts.expires_unix_ms) {
    due_unix_.insert({*facts.expires_unix_ms, &blob});
  }
}

void BlobStore::delist(const Entry& entry) {
  const Blob& blob = entry.blob;
  const Facts& facts = blob.facts;
  const auto owner = owned_.find({facts.kind, facts.tenant_id});
  owner->second.erase({facts.created_unix_ms, &blob});
  if (owner->second.empty()) owned_.erase(owner);
  const auto held = held_bytes_.find(facts.tenant_id);
  held->second -= counted_bytes(entry.file_bytes);
  if (held->second == 0) held_bytes_.erase(held);
  if (entry.due_elapsed_ms) {
    due_elapsed_.erase({*entry.due_elapsed_ms, &blob});
  } else if (facts.expires_unix_ms) {
    due_unix_.erase({*facts.expires_unix_ms, &blob});
  }
}

BlobStore::Entry* BlobStore::entry_of(const std::string& id) {
  const auto it = entries_.find(id);
  return it == entries_.end() || it->second.erased ? nullptr : &it->second;
}

const Blob* BlobStore::find(const std::string& id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() || it->second.erased ? nullptr : &it->second.blob;
}

std::vector<const Blob*> BlobStore::list(std::string_view kind, const std::optional<std::string>& tenant_id) const {
  std::vector<Listed> found;
  auto owner = owned_.lower_bound({std::string(kind), tenant_id.value_or("")});
  for (; owner != owned_.end() && owner->first.first == kind; ++owner) {
    if (tenant_id && owner->first.second != *tenant_id) break;
    found.insert(found.end(), owner->second.begin(), owner->second.end());
  }
  if (!tenant_id) std::sort(found.begin(), found.end());
  std::vector<const Blob*> out;
  out.reserve(found.size());
  for (const Listed& each : found) out.push_back(each.blob);
  return out;
}

std::uint64_t BlobStore::held_bytes(const std::string& tenant_id) const {
  const auto it = held_bytes_.find(tenant_id);
  return it == held_bytes_.end() ? 0 : it->second;
}

base::Result<> BlobStore::check_room(const std::string& tenant_id, std::uint64_t bytes) const {
  const std::uint64_t held = held_bytes(tenant_id);
  bytes = counted_bytes(bytes);
  const std::uint64_t max = options_.tenant_bytes_max;
  if (held <= max && bytes <= max - held) return {};
  return base::fail(base::Error{ErrorCode::kQuotaExceeded,
                                fmt::format("{} of {} bytes of kept files and results are taken, and {} more are asked "
                                            "for; delete some, or raise orchestratord.files.tenant_bytes_max",
                                            held, max, bytes),
                                {}}
                        .with("held_bytes", static_cast<std::int64_t>(held))
                        .with("bytes_max", static_cast<std::int64_t>(max)));
}

base::Result<> BlobStore::check_answer(const std::string& tenant_id, std::uint64_t bytes) const {
  if (bytes <= kFileBytesMin)
    return {};  // it takes the room that its blob counted as, or is an error that takes an answer's place
  const std::uint64_t held = held_bytes(tenant_id);
  const std::uint64_t max = options_.tenant_bytes_max + options_.answer_bytes_max;
  if (held <= max && bytes <= max - held) return {};
  if (const auto left_out = refused_answer_lines_.admit(options_.clock->now().mono_ms)) {
    base::log_event(base::LogLevel::kWarn, "blobs.answer_refused", {},
                    "An answer is not kept, for its owner keeps more than it may.",
                    {{"held_bytes", held}, {"bytes", bytes}, {"bytes_max", max}, {"left_out_before", *left_out}});
  }
  return base::fail(base::Error{ErrorCode::kQuotaExceeded,
                                fmt::format("{} of {} bytes of kept files and results are taken, and the answer, of {} "
                                            "bytes, was too long to be kept beside them; delete some, or raise "
                                            "orchestratord.files.tenant_bytes_max, and ask again with the same seed",
                                            held, options_.tenant_bytes_max, bytes),
                                {}}
                        .with("held_bytes", static_cast<std::int64_t>(held))
                        .with("bytes_max", static_cast<std::int64_t>(options_.tenant_bytes_max)));
}

std::size_t BlobStore::expire(const std::function<bool(const Blob&)>& in_use) {
  const std::int64_t now_elapsed_ms = elapsed_ms();
  const std::int64_t now_unix_ms = unix_ms();
  if (keys_.erasure_pending()) (void)keys_.sync();
  std::vector<std::string> expired(unerased_.begin(), unerased_.end());
  const auto take = [&](const std::set<Listed>& due, std::int64_t now_ms) {
    for (auto it = due.begin(); it != due.end() && it->at_ms <= now_ms; ++it) {
      if (!(in_use && in_use(*it->blob))) expired.push_back(it->blob->id);
    }
  };
  take(due_elapsed_, now_elapsed_ms);
  take(due_unix_, now_unix_ms);
  return static_cast<std::size_t>(
      std::count_if(expired.begin(), expired.end(), [this](const std::string& id) { return erase(id).has_value(); }));
}

}  // namespace llorch::orchestratord::store::blobs
