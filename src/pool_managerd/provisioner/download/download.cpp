#include "pool_managerd/provisioner/download/download.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>

#include "base/assert.h"
#include "base/file.h"

namespace llorch::pool_managerd::provisioner::download {
namespace {

using base::ErrorCode;
using web::ByteRange;

// Of one request. The hash waits for the first range, which comes at a connection's share of the rate, and ends behind the last
// ones: shorter ranges are less of both, longer ones are fewer requests.
constexpr std::int64_t kRangeBytesMax = 16LL << 20;
constexpr std::chrono::milliseconds kPollMs{200};
using Clock = std::chrono::steady_clock;

base::Error changed() {
  return {ErrorCode::kConflict, "the file at the source changed while it was fetched; ask again to begin anew", {}};
}

// What a first request for one byte tells.
struct Remote {
  std::string url;  // behind all redirects
  std::int64_t size_bytes = 0;
  bool takes_ranges = false;
  std::string validator;  // of this version of the file; empty: the server gives none
};

// Two responses with one of these are of equal bytes. A weak entity tag promises less.
std::string validator_of(const web::ReplyHead& head) {
  const std::string_view etag = head.header("etag");
  if (!etag.empty() && !etag.starts_with("W/")) return std::string(etag);
  const std::string_view time = head.header("last-modified");
  return time.empty() ? std::string() : fmt::format("last-modified {}", time);
}

// The N of "bytes 0-0/N".
std::optional<std::int64_t> total_of(std::string_view content_range) {
  const std::size_t slash = content_range.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  content_range.remove_prefix(slash + 1);
  std::int64_t total = 0;
  const auto [end, ec] = std::from_chars(content_range.data(), content_range.data() + content_range.size(), total);
  if (ec != std::errc() || end != content_range.data() + content_range.size() || total < 0) return std::nullopt;
  return total;
}

base::Result<Remote> probe(web::Web& web, const DownloadOptions& options, const StopFlag& stop) {
  web::WebRequest request = options.request;
  request.range = ByteRange{0, 1};
  const web::WebReply reply = TRY(web.get(std::move(request), 1, stop));
  Remote out{.url = reply.url, .validator = validator_of(reply.head)};
  const bool is_range = reply.head.status == 206;
  // Without either, nobody could tell that two ranges are of one version.
  out.takes_ranges = is_range && !(out.validator.empty() && options.sha256.empty());
  const auto size = is_range ? total_of(reply.head.header("content-range")) : reply.head.content_length;
  if (!size || *size == 0) {
    return base::fail(ErrorCode::kUntrustedArtifact,
                      fmt::format("{} does not say how long the file is", web::without_query(reply.url)));
  }
  out.size_bytes = *size;
  if (options.size_bytes && *options.size_bytes != out.size_bytes) {
    return base::fail(base::Error{ErrorCode::kUntrustedArtifact, "the file is not as long as its source says", {}}
                          .with("expected_bytes", *options.size_bytes)
                          .with("found_bytes", out.size_bytes));
  }
  return out;
}

// The requests of one file, on one thread.
class Fetch {
 public:
  Fetch(web::Web& web, const DownloadOptions& options, const StopFlag& stop, const OnBytes& on_bytes, Remote remote,
        PartFile& file)
      : web_(web), options_(options), stop_(stop), on_bytes_(on_bytes), remote_(std::move(remote)), file_(file) {
    multi_ = curl_multi_init();
    ASSERT(multi_ != nullptr, "libcurl gives no multi handle");
  }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;
  ~Fetch() {
    for (const auto& part : parts_) curl_multi_remove_handle(multi_, part->transfer->easy());
    parts_.clear();
    curl_multi_cleanup(multi_);
  }

  base::Result<> run() {
    while (!file_.is_hashed()) {
      if (stop_.requested()) return base::fail(ErrorCode::kCancelled, "the pull was cancelled");
      TRY(begin_parts());
      int running = 0;
      curl_multi_perform(multi_, &running);
      TRY(end_parts());
      if (write_failure_) return base::fail(*write_failure_);
      TRY(file_.hash_ready());
      on_bytes_(file_.bytes_done() + under_way(), file_.size_bytes());
      if (file_.is_complete()) {
        TRY(file_.hash_ready(true));
        continue;
      }
      if (parts_.empty()) {
        stop_.wait(
            std::min(kPollMs, std::chrono::duration_cast<std::chrono::milliseconds>(begin_again_ - Clock::now())));
      } else {
        curl_multi_poll(multi_, nullptr, 0, kPollMs.count(), nullptr);
      }
    }
    return {};
  }

 private:
  struct Part {
    ByteRange range;
    std::int64_t at = 0;   // offset of the next byte
    std::string gathered;  // what has come of its chunk: a write a chunk costs half of one for each of curl's 16 KiB
    std::optional<bool> is_right;  // the response is of the range that was asked for, and of the same file
    std::unique_ptr<web::Transfer> transfer;
  };

  base::Result<> begin_parts() {
    if (file_.is_complete()) return {};  // only the hash is under way
    if (Clock::now() < begin_again_) return {};
    const auto parts_max = static_cast<std::size_t>(remote_.takes_ranges ? options_.connections : 1);
    if (!remote_.takes_ranges && parts_.empty() && file_.bytes_done() > 0) TRY(file_.reset());
    while (parts_.size() < parts_max) {
      auto range = file_.claim(remote_.takes_ranges ? range_bytes() : remote_.size_bytes);
      if (!range) return {};
      auto part = std::make_unique<Part>(Part{.range = *range, .at = range->begin});
      web::WebRequest request = options_.request;
      if (TRY(web::address_of(remote_.url)).origin != TRY(web::address_of(request.url)).origin) {
        request.authorization.clear();
      }
      request.url = remote_.url;
      if (remote_.takes_ranges) request.range = range;
      part->transfer = TRY(
          web_.transfer(request, stop_, [this, self = part.get()](const web::ReplyHead& head, std::string_view bytes) {
            return take(*self, head, bytes);
          }));
      curl_multi_add_handle(multi_, part->transfer->easy());
      parts_.push_back(std::move(part));
    }
    return {};
  }

  // Every connection has its share of a small file, too.
  std::int64_t range_bytes() const {
    const std::int64_t share = (file_.size_bytes() + options_.connections - 1) / options_.connections;
    return std::clamp(share, PartFile::kChunkBytes, kRangeBytesMax);
  }

  bool take(Part& part, const web::ReplyHead& head, std::string_view bytes) {
    if (head.status >= 300) return false;
    if (!part.is_right) part.is_right = is_right(part, head);
    if (!*part.is_right) return false;
    bytes = bytes.substr(0, static_cast<std::size_t>(part.range.end - part.at));
    while (!bytes.empty()) {
      const std::int64_t chunk_end =
          std::min(part.range.end, (part.at / PartFile::kChunkBytes + 1) * PartFile::kChunkBytes);
      const std::string_view now = bytes.substr(0, static_cast<std::size_t>(chunk_end - part.at));
      bytes.remove_prefix(now.size());
      part.gathered.append(now);
      part.at += static_cast<std::int64_t>(now.size());
      if (part.at < chunk_end) return true;
      const std::int64_t begin = part.at - static_cast<std::int64_t>(part.gathered.size());
      if (auto written = file_.write(begin, part.gathered); !written) {
        write_failure_ = std::move(written).error();
        return false;
      }
      part.gathered.clear();
    }
    return true;
  }

  bool is_right(const Part& part, const web::ReplyHead& head) const {
    const std::string validator = validator_of(head);
    const bool is_untold = validator.empty() && !options_.sha256.empty();  // the checksum tells
    return (head.status == 206) == remote_.takes_ranges &&
           (remote_.takes_ranges ? is_asked_range(part, head.header("content-range"))
                                 : head.content_length.value_or(remote_.size_bytes) == remote_.size_bytes) &&
           (is_untold || remote_.validator.empty() || validator == remote_.validator);
  }

  bool is_asked_range(const Part& part, std::string_view content_range) const {
    return content_range == fmt::format("bytes {}-{}/{}", part.range.begin, part.range.end - 1, remote_.size_bytes);
  }

  base::Result<> end_parts() {
    base::Result<> failure;
    web::ReplyHead refused;
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const auto it = std::find_if(parts_.begin(), parts_.end(),
                                   [&](const auto& part) { return part->transfer->easy() == message->easy_handle; });
      ASSERT(it != parts_.end(), "a transfer that nobody began");
      const std::unique_ptr<Part> part = std::move(*it);
      parts_.erase(it);
      const int code = message->data.result;  // gone with the handle
      curl_multi_remove_handle(multi_, part->transfer->easy());
      file_.release(part->range);
      if (auto settled = settle(*part, code); !settled) {
        failure = std::move(settled);
        refused = part->transfer->head();
      }
    }
    return failure ? failure : pause(failure.error(), refused);
  }

  // What is wrong with a part that has ended before its range did.
  base::Result<> settle(const Part& part, int code) {
    TRY(part.transfer->outcome(code));
    if (part.at == part.range.end) return {};
    const web::ReplyHead& head = part.transfer->head();
    if (part.is_right && !*part.is_right) return base::fail(changed());
    if (head.status >= 300) return base::fail(web::status_error(head, remote_.url));
    return base::fail(ErrorCode::kIoError, "the server ended the connection early");
  }

  // After a failure: begins again later where it may pass. Parts that fail together count as one failure.
  base::Result<> pause(base::Error error, const web::ReplyHead& head) {
    const bool has_link = remote_.url != options_.request.url;
    // A link that was made for a while may have ended; the source makes another.
    const bool link_ended = has_link && (head.status == 401 || head.status == 403 || head.status == 410);
    if (!link_ended && !web::may_pass(error)) return base::fail(std::move(error));
    if (file_.bytes_done() > done_at_failure_) failures_ = 0;
    done_at_failure_ = std::max(done_at_failure_, file_.bytes_done());
    if (++failures_ >= web_.options().attempts_max) return base::fail(std::move(error));
    if (link_ended) remote_.url = TRY(probe(web_, options_, stop_)).url;
    begin_again_ = Clock::now() + web::retry_delay(failures_, head);
    return {};
  }

  // Bytes of chunks that have begun.
  std::int64_t under_way() const {
    std::int64_t bytes = 0;
    for (const auto& part : parts_) {
      if (part->at < part->range.end) bytes += part->at % PartFile::kChunkBytes;
    }
    return bytes;
  }

  web::Web& web_;
  const DownloadOptions& options_;
  const StopFlag& stop_;
  const OnBytes& on_bytes_;
  Remote remote_;
  PartFile& file_;
  CURLM* multi_ = nullptr;
  std::vector<std::unique_ptr<Part>> parts_;
  std::optional<base::Error> write_failure_;
  std::int64_t done_at_failure_ = 0;  // the most there was at any: without ranges each attempt begins anew
  int failures_ = 0;                  // in a row, with nothing that came between them
  Clock::time_point begin_again_{};
};

}  // namespace

base::Result<PartFile> download(web::Web& web, const DownloadOptions& options, const StopFlag& stop,
                                const OnBytes& on_bytes) {
  const Remote remote = TRY(probe(web, options, stop));
  // Where the checksum is known two sources of one file share what has come.
  std::string identity;
  if (!options.sha256.empty()) {
    identity = "sha256:" + options.sha256;
  } else if (const auto boot_id = base::read_file("/proc/sys/kernel/random/boot_id", 100);
             boot_id && !remote.validator.empty()) {
    // No checksum would tell which of the bytes a power cut has taken.
    identity = fmt::format("{} {} boot {}", web::without_query(options.request.url), remote.validator,
                           boot_id->substr(0, boot_id->find('\n')));
  }
  PartFile file = TRY(PartFile::open(
      options.stem, {.text = identity, .size_bytes = remote.size_bytes, .room_advice = options.room_advice}));
  for (bool from_scratch = !file.has_resumed();; from_scratch = true) {
    Fetch fetch(web, options, stop, on_bytes, remote, file);
    if (auto fetched = fetch.run(); !fetched) {
      file.give_back_room();
      return base::fail(std::move(fetched).error());
    }
    const std::string found = file.sha256_hex();
    if (options.sha256.empty() || found == options.sha256) break;
    TRY(file.reset());
    if (!from_scratch) continue;  // a power cut may have taken what an earlier process wrote
    file.remove();
    return base::fail(base::Error{ErrorCode::kUntrustedArtifact, "the file has another checksum than it should", {}}
                          .with("expected", options.sha256)
                          .with("found", found));
  }
  TRY(file.sync());
  return file;
}

}  // namespace llorch::pool_managerd::provisioner::download
