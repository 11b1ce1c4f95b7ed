#include "adapter/upstream/http_client.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/libcurl.h"
#include "base/version.h"

namespace llorch::adapter::upstream {
namespace {

using base::ErrorCode;
using SteadyClock = std::chrono::steady_clock;

constexpr int kIdleWaitMs = 60'000;                // a wakeup ends it earlier
constexpr std::size_t kHeaderBytesMax = 64 << 10;  // of an answer, with its trailers

// Of a line "NAME: value"; `name` is lower case. Absent: it is another header.
std::optional<std::string_view> value_of(std::string_view line, std::string_view name) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  if (line.size() <= name.size() || line[name.size()] != ':') return std::nullopt;
  if (!std::ranges::equal(line.substr(0, name.size()), name, {}, lower)) return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(' ', name.size() + 1), line.size()));
  return line.substr(0, line.find_first_of(" \r\n"));
}
// The whole of `text`, which has a value from 0 to `max`.
std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t max) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > max) return std::nullopt;
  return value;
}

// Says what happened to the connection and nothing of the request, which may hold a prompt or a key.
base::Result<> outcome_of(CURL* easy, CURLcode code) {
  if (code == CURLE_OK) return {};
  if (base::is_tls_failure(code)) {
    return base::fail(base::Error{
        ErrorCode::kUnreachable,
        fmt::format("there is no trusted connection to the engine: {}", curl_easy_strerror(code)),
        {}}.with("reason", std::string("tls")));
  }
  curl_off_t connected_us = 0;
  curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &connected_us);
  const bool unreachable = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
                           code == CURLE_COULDNT_RESOLVE_PROXY ||
                           (code == CURLE_OPERATION_TIMEDOUT && connected_us == 0);
  const ErrorCode as = unreachable                        ? ErrorCode::kUnreachable
                       : code == CURLE_OPERATION_TIMEDOUT ? ErrorCode::kTimeout
                                                          : ErrorCode::kIoError;
  return base::fail(as, fmt::format("the connection to the engine failed: {}", curl_easy_strerror(code)));
}

}  // namespace

class HttpClient::Impl {
 public:
  explicit Impl(ClientOptions options) : options_(std::move(options)) {
    base::init_curl_once();
    multi_ = curl_multi_init();
    ASSERT(multi_ != nullptr, "libcurl gives no handle");
    thread_ = std::thread([this] { run(); });
  }
  ~Impl() {
    stop();
    curl_multi_cleanup(multi_);
  }

  void post(std::function<void()> fn) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      posted_.push_back(std::move(fn));
    }
    curl_multi_wakeup(multi_);
  }
  void post_after(std::int64_t delay_ms, std::function<void()> fn) {
    post([this, at = SteadyClock::now() + std::chrono::milliseconds(delay_ms), fn = std::move(fn)]() mutable {
      start_timer(at, std::move(fn));
    });
  }
  TimerId start_timer(SteadyClock::time_point at, std::function<void()> fn) {
    const TimerId id{++timers_count_};
    timers_.emplace(id, timers_due_.emplace(at, Timer{id, std::move(fn)}));
    return id;
  }
  void cancel(TimerId id) {
    const auto it = timers_.find(id);
    if (it == timers_.end()) return;
    timers_due_.erase(it->second);
    timers_.erase(it);
  }

  TransferId start(const Call& call, Callbacks callbacks);
  void cancel(TransferId id) {
    const auto it = transfers_.find(id);
    if (it == transfers_.end()) return;
    it->second->cancelled = true;
    // libcurl removes no handle inside a callback of it; perform() does, which comes behind whatever runs on this thread.
    if (!in_libcurl_) drop(it);
  }
  void resume(TransferId id) {
    const auto it = transfers_.find(id);
    if (it == transfers_.end() || it->second->cancelled) return;
    // It calls back with the bytes that it kept.
    const bool was_in_libcurl = std::exchange(in_libcurl_, true);
    curl_easy_pause(it->second->easy, CURLPAUSE_CONT);
    in_libcurl_ = was_in_libcurl;
  }
  bool on_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(stopping_, true)) return;
    }
    ASSERT(!on_thread());
    curl_multi_wakeup(multi_);
    thread_.join();
  }

 private:
  struct Transfer {
    TransferId id{};
    CURL* easy = nullptr;
    curl_slist* headers = nullptr;
    Call call;
    Callbacks callbacks;
    Head head;
    std::optional<int> grpc_status;
    std::size_t header_bytes = 0;
    bool head_told = false;
    bool cancelled = false;

    Transfer() = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    ~Transfer() {
      if (easy != nullptr) curl_easy_cleanup(easy);
      curl_slist_free_all(headers);
    }
    void tell_head() {
      if (std::exchange(head_told, true)) return;
      long status = 0;
      curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
      head.status = static_cast<int>(status);
      if (callbacks.on_head) callbacks.on_head(head);
    }
  };
  using Transfers = std::map<TransferId, std::unique_ptr<Transfer>>;

  void configure(Transfer& t);
  static int on_connection(void* self, char*, char*, int, int) {
    auto& t = *static_cast<Transfer*>(self);
    return t.call.may_send() ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
  }
  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);
  Transfers::iterator drop(Transfers::iterator it) {
    curl_multi_remove_handle(multi_, it->second->easy);
    return transfers_.erase(it);
  }
  void run();
  void run_posted();
  int run_timers();
  void perform();

  const ClientOptions options_;
  CURLM* multi_ = nullptr;
  std::mutex mutex_;
  std::deque<std::function<void()>> posted_;
  bool stopping_ = false;
  // Of the thread alone.
  struct Timer {
    TimerId id{};
    std::function<void()> fn;
  };
  using TimersDue = std::multimap<SteadyClock::time_point, Timer>;
  TimersDue timers_due_;
  std::map<TimerId, TimersDue::iterator> timers_;
  std::uint64_t timers_count_ = 0;
  Transfers transfers_;
  std::uint64_t transfers_count_ = 0;
  bool in_libcurl_ = false;  // which may be calling back
  std::thread thread_;       // last: it uses the others
};

TransferId HttpClient::Impl::start(const Call& call, Callbacks callbacks) {
  ASSERT(on_thread());
  auto t = std::make_unique<Transfer>();
  t->id = TransferId{++transfers_count_};
  t->call = call;
  t->callbacks = std::move(callbacks);
  configure(*t);
  const TransferId id = t->id;
  curl_multi_add_handle(multi_, t->easy);
  transfers_.emplace(id, std::move(t));
  return id;
}

void HttpClient::Impl::configure(Transfer& t) {
  t.easy = curl_easy_init();
  ASSERT(t.easy != nullptr, "libcurl gives no handle");
  const auto set = [&t](CURLoption option, auto value) {
    const CURLcode code = curl_easy_setopt(t.easy, option, value);
    ASSERT(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option), curl_easy_strerror(code));
  };
  const auto add = [&t](const std::string& line) { t.headers = curl_slist_append(t.headers, line.c_str()); };
  if (t.call.method == "POST") {
    add(t.call.grpc ? "Content-Type: application/grpc" : "Content-Type: application/json");
    add("Expect:");
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(t.call.body.size()));
    set(CURLOPT_POSTFIELDS, t.call.body.c_str());
  }
  if (t.call.grpc) add("TE: trailers");
  for (const std::string& line : t.call.headers) add(line);
  if (!t.call.bearer.empty()) add("Authorization: Bearer " + t.call.bearer);
  set(CURLOPT_URL, t.call.url.c_str());
  set(CURLOPT_HTTPHEADER, t.headers);
  set(CURLOPT_USERAGENT, fmt::format("llama-orch/{}", base::kVersion).c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  const bool plain_http2 = t.call.grpc && t.call.url.starts_with("http:");
  set(CURLOPT_HTTP_VERSION,
      static_cast<long>(plain_http2 ? CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE : CURL_HTTP_VERSION_2TLS));
  // A proxy that reads requests would end HTTP/2.
  if (plain_http2 && !options_.proxy.empty()) set(CURLOPT_HTTPPROXYTUNNEL, 1L);
  // A connection each: one that is not read holds up no other call, and libcurl 7.88 fails on a plain one that it uses again.
  if (t.call.grpc) {
    set(CURLOPT_FRESH_CONNECT, 1L);
    set(CURLOPT_FORBID_REUSE, 1L);
  }
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, options_.proxy.c_str());
  if (!options_.ca_file.empty()) {
    set(CURLOPT_CAINFO, options_.ca_file.c_str());
    set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  }
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout_ms));
  if (t.call.timeout_ms > 0) set(CURLOPT_TIMEOUT_MS, static_cast<long>(t.call.timeout_ms));
  if (t.call.silence_ms > 0) {
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>((t.call.silence_ms + 999) / 1000));
  }
  if (t.call.may_send) {
    set(CURLOPT_PREREQFUNCTION, &Impl::on_connection);
    set(CURLOPT_PREREQDATA, &t);
  }
  set(CURLOPT_HEADERFUNCTION, &Impl::on_header);
  set(CURLOPT_HEADERDATA, &t);
  set(CURLOPT_WRITEFUNCTION, &Impl::on_body);
  set(CURLOPT_WRITEDATA, &t);
  set(CURLOPT_PRIVATE, &t);
}

std::size_t HttpClient::Impl::on_header(char* data, std::size_t size, std::size_t count, void* self) {
  auto& t = *static_cast<Transfer*>(self);
  const std::string_view line(data, size * count);
  t.header_bytes += line.size();
  if (t.header_bytes > kHeaderBytesMax) {
    t.grpc_status.reset();
    return 0;
  }
  if (line.starts_with("HTTP/")) {  // a new response: after 100 Continue, or a proxy's own
    t.head = {};
    t.grpc_status.reset();
  }
  if (const auto after = value_of(line, "retry-after")) {
    const auto seconds = whole_number(*after, 86'400);
    if (seconds) t.head.retry_after_ms = *seconds * 1000;
  }
  if (!t.call.grpc) return size * count;
  if (const auto status = value_of(line, "grpc-status")) {
    const auto code = whole_number(*status, std::numeric_limits<int>::max());
    if (code) t.grpc_status = static_cast<int>(*code);
  }
  return size * count;
}

std::size_t HttpClient::Impl::on_body(char* data, std::size_t size, std::size_t count, void* self) {
  auto& t = *static_cast<Transfer*>(self);
  if (t.cancelled) return 0;
  t.tell_head();
  if (t.cancelled) return 0;
  const bool taken = !t.callbacks.on_data || t.callbacks.on_data({data, size * count});
  if (t.cancelled) return 0;
  return taken ? size * count : CURL_WRITEFUNC_PAUSE;
}

void HttpClient::Impl::run_posted() {
  std::deque<std::function<void()>> posted;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (auto& fn : posted) fn();
}

// Until the next one is due, in milliseconds.
int HttpClient::Impl::run_timers() {
  for (;;) {
    const auto it = timers_due_.begin();
    if (it == timers_due_.end()) return kIdleWaitMs;
    const auto left = it->first - SteadyClock::now();
    if (left > SteadyClock::duration::zero()) {
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      return static_cast<int>(std::min<std::int64_t>(ms, kIdleWaitMs));
    }
    const auto fn = std::move(it->second.fn);
    cancel(it->second.id);
    fn();
  }
}

void HttpClient::Impl::perform() {
  int running = 0;
  in_libcurl_ = true;
  curl_multi_perform(multi_, &running);
  in_libcurl_ = false;
  std::vector<std::pair<TransferId, CURLcode>> ended;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Transfer* t = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
    ended.emplace_back(t->id, message->data.result);
  }
  for (const auto& [id, code] : ended) {
    const auto it = transfers_.find(id);
    if (it == transfers_.end()) continue;
    const std::unique_ptr<Transfer> t = std::move(it->second);
    transfers_.erase(it);
    curl_multi_remove_handle(multi_, t->easy);
    if (t->cancelled) continue;
    // A status ends a call, even if the server reset the rest of a request that it did not want to read.
    const CURLcode outcome = t->grpc_status ? CURLE_OK : code;
    if (outcome == CURLE_OK) t->tell_head();
    if (!t->cancelled && t->grpc_status && t->callbacks.on_grpc_status) t->callbacks.on_grpc_status(*t->grpc_status);
    if (!t->cancelled && t->callbacks.on_end) t->callbacks.on_end(outcome_of(t->easy, outcome));
  }
  for (auto it = transfers_.begin(); it != transfers_.end();) it = it->second->cancelled ? drop(it) : std::next(it);
}

void HttpClient::Impl::run() {
  for (;;) {
    run_posted();
    const int wait_ms = run_timers();
    perform();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
      if (!posted_.empty()) continue;
    }
    curl_multi_poll(multi_, nullptr, 0, wait_ms, nullptr);
  }
  for (auto it = transfers_.begin(); it != transfers_.end();) it = drop(it);
  timers_.clear();
  timers_due_.clear();
  const std::lock_guard lock(mutex_);
  posted_.clear();
}

HttpClient::HttpClient(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
HttpClient::~HttpClient() = default;
void HttpClient::post(std::function<void()> fn) { impl_->post(std::move(fn)); }
void HttpClient::post_after(std::int64_t delay_ms, std::function<void()> fn) {
  impl_->post_after(delay_ms, std::move(fn));
}
TimerId HttpClient::start_timer(std::int64_t delay_ms, std::function<void()> fn) {
  ASSERT(impl_->on_thread());
  return impl_->start_timer(SteadyClock::now() + std::chrono::milliseconds(delay_ms), std::move(fn));
}
void HttpClient::cancel(TimerId id) { impl_->cancel(id); }
TransferId HttpClient::start(const Call& call, Callbacks callbacks) { return impl_->start(call, std::move(callbacks)); }
void HttpClient::cancel(TransferId id) { impl_->cancel(id); }
void HttpClient::resume(TransferId id) { impl_->resume(id); }
void HttpClient::stop() { impl_->stop(); }

namespace {

// A call that somebody waits for. The transfer's callbacks own it together: once the last of them is gone, with an end or without,
// nobody can answer any more and the wait is over.
class Waiting {
 public:
  explicit Waiting(std::size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    if (!ended_) answer_.set_value(base::fail(ErrorCode::kShuttingDown, "the client was stopped during the call"));
  }
  std::future<base::Result<Reply>> answer() { return answer_.get_future(); }
  void head(const Head& head) { reply_.head = head; }
  void grpc_status(int code) { reply_.grpc_status = code; }
  void data(std::string_view bytes) {
    const std::size_t room = body_bytes_max_ - reply_.body.size();
    too_long_ = too_long_ || bytes.size() > room;
    reply_.body.append(bytes.substr(0, room));
  }
  void end(const base::Result<>& result) {
    ended_ = true;
    if (!result) return answer_.set_value(base::fail(result.error()));
    if (too_long_) return answer_.set_value(base::fail(ErrorCode::kPayloadTooLarge, "the engine's answer is too long"));
    answer_.set_value(std::move(reply_));
  }

 private:
  const std::size_t body_bytes_max_;
  std::promise<base::Result<Reply>> answer_;
  Reply reply_;
  bool too_long_ = false;
  bool ended_ = false;
};

}  // namespace

base::Result<Reply> HttpClient::call(const Call& call, std::size_t body_bytes_max) {
  ASSERT(!impl_->on_thread());
  auto waiting = std::make_shared<Waiting>(body_bytes_max);
  auto answer = waiting->answer();
  post([this, call, waiting = std::move(waiting)] {
    start(call, {.on_head = [waiting](const Head& head) { waiting->head(head); },
                 .on_data =
                     [waiting](std::string_view bytes) {
                       waiting->data(bytes);
                       return true;
                     },
                 .on_grpc_status = [waiting](int code) { waiting->grpc_status(code); },
                 .on_end = [waiting](const base::Result<>& result) { waiting->end(result); }});
  });
  return answer.get();
}

}  // namespace llorch::adapter::upstream
