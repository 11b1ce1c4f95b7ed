#include "pool_managerd/peer_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <utility>
#include <vector>

#include "base/error_code.h"
#include "base/log.h"
#include "config/model_grant.h"
#include "wire/json.h"

namespace llorch::pool_managerd {
namespace {

namespace fs = std::filesystem;
using base::Error;
using base::ErrorCode;

constexpr int kSendingsMax = 64;  // four connections of sixteen peers
constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::size_t kLowWaterBytes = 256 << 10;

std::string checksum_of(std::string digest) { return digest.starts_with("sha256:") ? digest : "sha256:" + digest; }

struct Range {
  std::int64_t begin = 0, end = 0;  // exclusive
};
// "bytes=BEGIN-LAST" of a file of so many bytes.
std::optional<Range> range_of(std::string_view header, std::int64_t size_bytes) {
  constexpr std::string_view kUnit = "bytes=";
  if (!header.starts_with(kUnit)) return std::nullopt;
  header.remove_prefix(kUnit.size());
  const char* end = header.data() + header.size();
  Range out;
  std::int64_t last = 0;
  const auto first = std::from_chars(header.data(), end, out.begin);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, last);
  if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
  if (out.begin < 0 || last < out.begin || last >= size_bytes) return std::nullopt;
  out.end = last + 1;
  return out;
}

Error no_such_file() { return {ErrorCode::kModelNotFound, "the model cache here has no such file", {}}; }

}  // namespace

struct PeerFiles::Sending {
  int fd = -1;
  Range left;
  std::int64_t size_bytes = 0;
  net::ExchangePtr exchange;
  std::atomic<int>* count = nullptr;

  explicit Sending(std::atomic<int>* counted) : count(counted) { ++*count; }
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;
  ~Sending() {
    if (fd >= 0) ::close(fd);
    --*count;
  }
};

// The digest as 64 hex digits.
base::Result<std::string> PeerFiles::check_grant(const net::Request& request) const {
  const std::string checksum = checksum_of(request.path_param("digest"));
  const auto grant = request.headers.get(config::kModelGrantHeader);
  const std::int64_t now_unix_s = options_.clock->now().unix_ms / 1000;
  if (!grant || !config::opens_model(*grant, options_.control_token, checksum, now_unix_s)) {
    return base::fail(ErrorCode::kForbidden,
                      "another pool may have this model when orchestratord says so, for a while");
  }
  return checksum.substr(std::string_view("sha256:").size());
}

void PeerFiles::list(const net::Request& request, const net::ExchangePtr& exchange) {
  auto digest = check_grant(request);
  if (!digest) return void(exchange->respond_error(digest.error()));
  thread_.post([this, digest = *std::move(digest), exchange] {
    wire::ModelFiles out{.checksum = checksum_of(digest), .files = {}};
    std::error_code ec;
    const fs::path directory = options_.provisioner->directory_of(digest);
    for (fs::recursive_directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
      std::error_code file_ec;
      if (!it->is_regular_file(file_ec)) continue;
      const auto size = it->file_size(file_ec);
      if (!file_ec)
        out.files.push_back({it->path().lexically_relative(directory).string(), static_cast<std::int64_t>(size)});
    }
    if (out.files.empty()) return void(exchange->respond_error(no_such_file()));
    exchange->respond(net::http::json_response(200, wire::encode(out)));
  });
}

void PeerFiles::send(const net::Request& request, const net::ExchangePtr& exchange) {
  auto digest = check_grant(request);
  if (!digest) return void(exchange->respond_error(digest.error()));
  thread_.post([this, request, digest = *std::move(digest), exchange] {
    auto sending = open(request, digest);
    if (!sending) return void(exchange->respond_error(sending.error()));
    const Range range = (*sending)->left;
    (*sending)->exchange = exchange;
    exchange->start_stream(
        206, {{"Content-Type", "application/octet-stream"},
              {"Content-Range", fmt::format("bytes {}-{}/{}", range.begin, range.end - 1, (*sending)->size_bytes)},
              {"ETag", fmt::format("\"{}\"", digest)}});
    send_more(*sending);
  });
}

base::Result<std::shared_ptr<PeerFiles::Sending>> PeerFiles::open(const net::Request& request,
                                                                  const std::string& digest) {
  const std::string& name = request.path_param("name");
  if (provisioner::sources::safe_model_name(name) != name) return base::fail(no_such_file());
  const auto sending = std::make_shared<Sending>(&sendings_);
  if (sendings_ > kSendingsMax) {
    return base::fail(ErrorCode::kServerBusy, "as many peers as this pool serves fetch models now; try again later");
  }
  sending->fd = ::open((options_.provisioner->directory_of(digest) / name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  struct stat facts {};
  if (sending->fd < 0 || ::fstat(sending->fd, &facts) != 0 || !S_ISREG(facts.st_mode))
    return base::fail(no_such_file());
  sending->size_bytes = facts.st_size;
  const auto range = range_of(request.headers.get("Range").value_or(""), facts.st_size);
  if (!range) {
    return base::fail(Error{ErrorCode::kInvalidParams, "the request needs one range of the file: bytes=BEGIN-LAST", {}}
                          .with("field", std::string("Range"))
                          .with("size_bytes", static_cast<std::int64_t>(facts.st_size)));
  }
  sending->left = *range;
  return sending;
}

void PeerFiles::send_more(const std::shared_ptr<Sending>& sending) {
  Range& left = sending->left;
  std::vector<char> piece(std::min<std::size_t>(kPieceBytes, static_cast<std::size_t>(left.end - left.begin)));
  const ssize_t got = ::pread(sending->fd, piece.data(), piece.size(), left.begin);
  if (got <= 0) {
    const int why = got == 0 ? 0 : errno;
    if (const auto left_out = failed_reads_.admit(options_.clock->now().mono_ms)) {
      base::log_event(base::LogLevel::kError, "peer_read_failed", {},
                      "A model's file could not be read for another pool.",
                      {{"errno", why}, {"left_out_before", *left_out}});
    }
    return sending->exchange->abort();
  }
  left.begin += got;
  if (!sending->exchange->write({piece.data(), static_cast<std::size_t>(got)})) return;  // nobody reads any more
  if (left.begin == left.end) return void(sending->exchange->end());
  // The exchange holds what it is to call, which holds the exchange no longer than until then.
  sending->exchange->on_drain(kLowWaterBytes,
                              [this, sending] { thread_.post([this, sending] { send_more(sending); }); });
}

}  // namespace llorch::pool_managerd
