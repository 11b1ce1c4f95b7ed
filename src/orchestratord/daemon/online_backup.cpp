#include "orchestratord/daemon/online_backup.h"

#include <fmt/core.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>
#include <future>
#include <optional>

#include "base/process.h"
#include "net/client.h"
#include "net/http/url.h"
#include "net/sse/sse.h"
#include "orchestratord/daemon/run_file.h"
#include "wire/json.h"
#include "wire/task.h"

namespace llorch::orchestratord::daemon {
namespace {

namespace backup = store::backup;
using base::ErrorCode;

// One that is alive says something several times a second.
constexpr std::int64_t kSilenceMs = 60'000;
constexpr double kPagesPerMb = 256;

// What the answer has said so far. Filled on the io thread, read after its end.
struct Answer {
  int status = 0;
  std::string refusal;  // of a status that is no success
  net::sse::Decoder events;
  std::optional<base::Error> error;
  bool done = false;
  bool on_terminal = isatty(STDERR_FILENO) != 0;

  void hear(const net::sse::Decoder::Decoded& event) {
    if (event.event == "done") done = true;
    if (event.event == "progress" && on_terminal) show(event.data);
    if (event.event != "error") return;
    const auto body = wire::decode<wire::ErrorBody>(event.data);
    error = body ? wire::to_error(*body) : body.error();
  }
  static void show(std::string_view data) {
    boost::json::error_code failed;
    const boost::json::value value = boost::json::parse(data, failed);
    if (failed || !value.is_object()) return;
    const auto number = [&](const char* key) {
      const auto* found = value.get_object().if_contains(key);
      return found != nullptr && found->is_int64() ? static_cast<double>(found->get_int64()) : 0.0;
    };
    fmt::print(stderr, "\rcopied {:.1f} of {:.1f} MB ", number("pages_done") / kPagesPerMb,
               number("pages_total") / kPagesPerMb);
  }
};

base::Result<> ask(const OrchestratorOptions& options) {
  const std::string bind = TRY(RunFile::bind_of(options.state_directory));
  net::IoRuntime runtime;
  net::Client client(runtime);
  Answer answer;
  std::promise<base::Result<>> ended;
  client.stream({.method = "POST",
                 .url = net::http::local_url(bind) + "/v2/store/backup",
                 .bearer = options.api_token,
                 .idle_timeout_ms = kSilenceMs},
                {.on_response = [&](int status, const net::http::Headers&) { answer.status = status; },
                 .on_data =
                     [&](std::string_view bytes) {
                       if (answer.status != 200) return void(answer.refusal += bytes);
                       (void)answer.events.feed(bytes, [&](const auto& event) { answer.hear(event); });
                     },
                 .on_end = [&](base::Result<> result) { ended.set_value(std::move(result)); }});
  const base::Result<> result = ended.get_future().get();
  if (answer.on_terminal) fmt::print(stderr, "\r\x1b[K");
  if (answer.done) return {};
  if (answer.error) return base::fail(*answer.error);
  if (answer.status > 0 && answer.status != 200) {
    return base::fail(net::http::error_of({.status = answer.status, .body = answer.refusal}));
  }
  return base::fail(ErrorCode::kUnreachable,
                    fmt::format("orchestratord at {} did not finish the backup{}{}; try again", bind,
                                result ? "" : ": ", result ? "" : result.error().message));
}

}  // namespace

base::Result<backup::Summary> online_backup(const OrchestratorOptions& options, const backup::Paths& paths) {
  const backup::Online parts = TRY(backup::Online::prepare(paths));
  TRY(ask(options));
  base::block_stop_signals();  // from here on a Ctrl-C would leave the parts, and with them keys of prompts
  return parts.finish();
}

}  // namespace llorch::orchestratord::daemon
