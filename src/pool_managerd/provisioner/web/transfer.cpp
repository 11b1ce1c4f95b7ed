#include "pool_managerd/provisioner/web/transfer.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/assert.h"
#include "base/libcurl.h"
#include "base/log.h"
#include "base/version.h"

namespace llorch::pool_managerd::provisioner::web {
namespace {

using base::ErrorCode;

constexpr long kConnectTimeoutMs = 15'000;
constexpr long kSilentBytesPerSecond = 1024;
constexpr std::size_t kHeadersMax = 64;
constexpr long kReadBytes = 256 << 10;  // of one recv()

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

}  // namespace

base::Result<std::unique_ptr<Transfer>> Transfer::make(const WebOptions& options, RateLimit& limit,
                                                       const StopFlag& stop, const WebRequest& request, Sink sink) {
  base::init_curl_once();
  Address address = TRY(address_of(request.url));
  TRY(check_egress(options.egress, address));
  std::unique_ptr<Transfer> out(new Transfer(options, limit, stop, std::move(address), std::move(sink)));
  out->configure(request);
  return out;
}

Transfer::Transfer(const WebOptions& options, RateLimit& limit, const StopFlag& stop, Address address, Sink sink)
    : options_(options), limit_(limit), stop_(stop), address_(std::move(address)), sink_(std::move(sink)) {}

Transfer::~Transfer() {
  if (easy_ != nullptr) curl_easy_cleanup(easy_);
  curl_slist_free_all(static_cast<curl_slist*>(header_list_));
}

void Transfer::configure(const WebRequest& request) {
  easy_ = curl_easy_init();
  ASSERT(easy_ != nullptr, "libcurl gives no handle");
  const auto set = [this](CURLoption option, auto value) {
    const CURLcode code = curl_easy_setopt(easy_, option, value);
    ASSERT(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option), curl_easy_strerror(code));
  };
  curl_slist* headers = nullptr;
  for (const std::string& header : request.headers) headers = curl_slist_append(headers, header.c_str());
  if (!request.authorization.empty()) {
    headers = curl_slist_append(headers, ("Authorization: " + request.authorization).c_str());
  }
  header_list_ = headers;
  logged_path_ = without_query(request.url);
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_USERAGENT, fmt::format("llama-orch/{}", base::kVersion).c_str());
  if (request.range) {
    set(CURLOPT_RANGE, fmt::format("{}-{}", request.range->begin, request.range->end - 1).c_str());
  }
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, options_.proxy.c_str());
  if (!options_.ca_file.empty()) {
    set(CURLOPT_CAINFO, options_.ca_file.c_str());
    set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  }
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_BUFFERSIZE, kReadBytes);
  set(CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  set(CURLOPT_LOW_SPEED_LIMIT, kSilentBytesPerSecond);
  set(CURLOPT_LOW_SPEED_TIME, std::max<long>(1, options_.stall_timeout_ms / 1000));
  set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
  set(CURLOPT_XFERINFODATA, this);
  // Behind a proxy the address is the proxy's, which the operator has named.
  if (options_.proxy.empty() && !options_.egress.names(address_.host)) {
    const curl_opensocket_callback callback = [](void* self, curlsocktype purpose, curl_sockaddr* address) {
      return static_cast<curl_socket_t>(open_socket(self, purpose, address));
    };
    set(CURLOPT_OPENSOCKETFUNCTION, callback);
    set(CURLOPT_OPENSOCKETDATA, this);
  }
}

std::size_t Transfer::on_header(char* data, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {  // a new response: after 100 Continue, or a proxy's own
    transfer.head_ = {};
    return line.size();
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || transfer.head_.headers.size() >= kHeadersMax) return line.size();
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  transfer.head_.headers[name] = std::string(trimmed(line.substr(colon + 1)));
  return line.size();
}

std::size_t Transfer::on_body(char* data, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  const std::string_view bytes(data, size * count);
  if (transfer.head_.status == 0) {
    long status = 0;
    curl_easy_getinfo(transfer.easy_, CURLINFO_RESPONSE_CODE, &status);
    transfer.head_.status = static_cast<int>(status);
    std::int64_t length = 0;
    const std::string_view text = transfer.head_.header("content-length");
    if (std::from_chars(text.data(), text.data() + text.size(), length).ec == std::errc() && length >= 0) {
      transfer.head_.content_length = length;
    }
  }
  transfer.bytes_ += static_cast<std::int64_t>(bytes.size());
  const auto pause = transfer.limit_.take(static_cast<std::int64_t>(bytes.size()));
  if (pause.count() > 0) {
    transfer.stop_.wait(std::chrono::duration_cast<std::chrono::milliseconds>(pause));
  }
  if (transfer.sink_(transfer.head_, bytes)) return bytes.size();
  transfer.cut_short_ = true;
  return 0;
}

int Transfer::on_progress(void* self, std::int64_t, std::int64_t, std::int64_t, std::int64_t) {
  return static_cast<Transfer*>(self)->stop_.requested() ? 1 : 0;
}

int Transfer::open_socket(void* self, int, void* opaque) {
  auto& transfer = *static_cast<Transfer*>(self);
  const auto* address = static_cast<const curl_sockaddr*>(opaque);
  if (!is_public(address->addr)) {
    transfer.private_address_ = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

base::Result<> Transfer::perform() { return outcome(curl_easy_perform(easy_)); }

base::Result<> Transfer::outcome(int raw_code) {
  const auto code = static_cast<CURLcode>(raw_code);
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  head_.status = static_cast<int>(status);
  base::log_event(base::LogLevel::kInfo, "egress", {}, "A server outside was asked for a model.",
                  {{"host", address_.host}, {"url", logged_path_}, {"status", head_.status}, {"bytes", bytes_}});
  if (code == CURLE_OK || (cut_short_ && code == CURLE_WRITE_ERROR)) return {};
  if (private_address_) {
    return base::fail(base::Error{ErrorCode::kForbidden,
                                  fmt::format("{} has an address of a private network; if that is meant, list it in "
                                              "models.pull.allowed_hosts",
                                              address_.host),
                                  {}}
                          .with("reason", std::string("egress"))
                          .with("host", address_.host));
  }
  if (code == CURLE_ABORTED_BY_CALLBACK) return base::fail(ErrorCode::kCancelled, "the pull was cancelled");
  if (base::is_tls_failure(code)) {
    return base::fail(base::Error{
        ErrorCode::kUnreachable,
        fmt::format("no trusted connection to {}: {}; models.pull.ca_file names certificates "
                    "to trust",
                    address_.host, curl_easy_strerror(code)),
        {}}.with("reason", std::string("tls")));
  }
  if (code == CURLE_OPERATION_TIMEDOUT) {
    return base::fail(ErrorCode::kTimeout, fmt::format("{} was silent for too long", address_.host));
  }
  const bool unreachable =
      code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY;
  return base::fail(unreachable ? ErrorCode::kUnreachable : ErrorCode::kIoError,
                    fmt::format("{}: {}", address_.host, curl_easy_strerror(code)));
}

std::string Transfer::redirect_url() const {
  const char* url = nullptr;
  curl_easy_getinfo(easy_, CURLINFO_REDIRECT_URL, &url);
  return url == nullptr ? std::string() : std::string(url);
}

}  // namespace llorch::pool_managerd::provisioner::web
