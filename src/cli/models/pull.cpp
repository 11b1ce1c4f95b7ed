#include "cli/models/pull.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "cli/stop_signals.h"
#include "cli/stream/request.h"
#include "cli/terminal_text.h"
#include "engine/io/model_layout.h"
#include "net/http/url.h"
#include "wire/json.h"
#include "wire/model_name.h"

namespace llorch::cli::models {
namespace {

using base::ErrorCode;
using wire::PullState;

constexpr std::chrono::milliseconds kPollEvery{300};
constexpr std::int64_t kBarCells = 24;
constexpr std::string_view kWipe = "\r\x1b[K";

void to_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::int64_t percent_of(const wire::PullStatus& status) {
  return status.bytes_total > 0 ? std::min<std::int64_t>(100, status.bytes_done * 100 / status.bytes_total) : 0;
}

std::string_view words(PullState state) {
  switch (state) {
    case PullState::kQueued: return "waits for its turn";
    case PullState::kLocating: return "looking for it";
    case PullState::kFinishing: return "verifying and unpacking";
    default: return "";
  }
}

base::Error error_of(const wire::PullStatus& status) {
  const auto code = base::error_code_from_name(status.error_code.value_or("")).value_or(ErrorCode::kInternal);
  return {code, status.error_message.value_or("the pull failed, and nobody says why"), {}};
}

bool is_reference(std::string_view text) {
  static constexpr std::array<std::string_view, 6> kSchemes{"hf:", "https:", "http:", "s3:", "oci:", "pypi:"};
  return std::any_of(kSchemes.begin(), kSchemes.end(),
                     [&](std::string_view scheme) { return text.starts_with(scheme); });
}

// What `path` may have meant; empty: nobody knows.
std::string meant_reference(const std::string& path) {
  std::string file = stream::model_reference(path);
  if (file != path) return file;
  std::error_code ec;
  if (std::filesystem::exists(path, ec)) return "";  // and is no model
  if (path.starts_with('/')) return "file:" + path;
  std::string_view repository = path;
  for (const std::string_view hub : {"hf.co/", "huggingface.co/"}) {
    if (repository.starts_with(hub)) repository.remove_prefix(hub.size());
  }
  const bool has_two_names =
      std::ranges::count(repository, '/') == 1 && !repository.starts_with('/') && !repository.ends_with('/');
  const bool is_repository = has_two_names && !repository.starts_with('.') && !repository.starts_with('~') &&
                             !engine::io::has_gguf_name(repository);
  return is_repository ? fmt::format("hf:{}", repository) : "";
}

// A person's answer; no is what silence and everything but yes mean.
bool asked(const std::string& question) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) return false;
  to_stderr(without_controls(question) + " [Y/n] ");
  std::string answer;
  if (!std::getline(std::cin, answer)) return false;
  return answer.empty() || answer.starts_with('y') || answer.starts_with('Y');
}

}  // namespace

std::string path_of(const std::string& model_id, std::string_view what) {
  return fmt::format("/v2/catalog/models/{}{}", net::http::percent_encode(model_id), what);
}

PullDisplay::Form PullDisplay::form(bool json) {
  if (json) return Form::kJson;
  return isatty(STDERR_FILENO) != 0 ? Form::kBar : Form::kLines;
}

std::string PullDisplay::line(const wire::PullStatus& status) const {
  const bool has_bar = form_ == Form::kBar;
  const std::size_t columns = has_bar ? columns_() : 0;
  const std::string name = fmt::format("{}: ", without_controls(name_));
  if (status.state != PullState::kFetching) return progress_line(name, "", words(status.state), columns);
  const std::int64_t percent = percent_of(status);
  std::string bar;
  if (has_bar) {
    const auto full = static_cast<std::size_t>(percent * kBarCells / 100);
    bar = fmt::format("[{}{}] ", std::string(full, '#'), std::string(static_cast<std::size_t>(kBarCells) - full, '.'));
  }
  std::string facts =
      fmt::format("{} %, {} of {}", percent, human_bytes(status.bytes_done), human_bytes(status.bytes_total));
  if (status.bytes_per_second > 0) facts += fmt::format(", {}/s", human_bytes(status.bytes_per_second));
  if (status.eta_ms) facts += fmt::format(", {} s left", (*status.eta_ms + 999) / 1000);
  return progress_line(name, bar, facts, columns);
}

void PullDisplay::show(const wire::PullStatus& status) {
  if (form_ == Form::kBar) {
    is_drawn_ = true;
    return write_(std::string(kWipe) + line(status));
  }
  // Whoever reads lines needs no more than one for every tenth.
  const std::string step = fmt::format("{} {}", wire::enum_name(status.state), percent_of(status) / 10);
  if (step == shown_) return;
  shown_ = step;
  if (form_ == Form::kLines) return write_(line(status) + "\n");
  write_(fmt::format("{{\"event\":\"pull_progress\",\"pull\":{}}}\n", wire::encode(status)));
}

void PullDisplay::finish() {
  if (is_drawn_) write_(kWipe);
  is_drawn_ = false;
}

base::Result<wire::CatalogModel> wait_for_pull(Api& api, wire::CatalogModel model, bool json,
                                               std::chrono::milliseconds away_max) {
  using Clock = std::chrono::steady_clock;
  const StopSignals signals(StopSignals::Second::kEndsAtOnce);
  auto answered_at = Clock::now();
  PullDisplay display(PullDisplay::form(json), model.model_id, to_stderr,
                      [] { return terminal_columns(STDERR_FILENO); });
  while (model.pull) {
    if (model.pull->state == PullState::kFailed || model.pull->state == PullState::kCancelled) {
      display.finish();
      return base::fail(error_of(*model.pull));
    }
    if (StopSignals::requested()) {
      display.finish();
      const std::string name = without_controls(model.model_id);
      return base::fail(
          ErrorCode::kCancelled,
          fmt::format("left; the pull goes on: llorch pull {} shows it, llorch rm {} ends it", name, name));
    }
    display.show(*model.pull);
    std::this_thread::sleep_for(kPollEvery);
    auto body = api.call("GET", path_of(model.model_id));
    if (!body && body.error().code == ErrorCode::kUnreachable) {  // it is started again, and goes on
      if (Clock::now() - answered_at < away_max) continue;
      body.error().message +=
          fmt::format("; the pull goes on when the stack is up: llorch pull {}", without_controls(model.model_id));
    }
    if (!body) {
      display.finish();
      return base::fail(body.error());
    }
    answered_at = Clock::now();
    model = TRY(wire::decode<wire::CatalogModel>(*body));
  }
  display.finish();
  if (StopSignals::requested()) {  // while it ended: what was to follow it does not
    return base::fail(ErrorCode::kCancelled,
                      fmt::format("left; the pull of {} has ended", without_controls(model.model_id)));
  }
  return model;
}

base::Result<> check_pulled(const std::string& model) {
  if (model.empty()) return base::fail(ErrorCode::kInvalidParams, "the model has no name; llorch search lists some");
  if (!stream::is_path(model)) return {};
  const std::string meant = meant_reference(model);
  return base::fail(
      ErrorCode::kInvalidParams,
      fmt::format(
          "{} is neither a model's name nor a reference{} A repository of the hub is hf:ORG/REPO, a file of the "
          "pool's machine file:/path",
          model, meant.empty() ? "." : fmt::format("; did you mean {}?", meant)));
}

base::Result<wire::CatalogModel> pull_model(Api& api, const wire::CreateCatalogModelRequest& request, bool json) {
  const std::string body = TRY(api.call("POST", "/v2/catalog/models", wire::encode(request)));
  return wait_for_pull(api, TRY(wire::decode<wire::CatalogModel>(body)), json);
}

base::Result<std::optional<wire::KnownModel>> find_known(Api& api, const std::string& name) {
  const std::string body = TRY(api.call("GET", "/v2/catalog/known?q=" + net::http::percent_encode(name)));
  for (wire::KnownModel& model : TRY(wire::decode<wire::KnownModelList>(body)).models) {
    if (model.model_id == name) return std::optional(std::move(model));
  }
  return std::optional<wire::KnownModel>();
}

// The name that a reference was pulled under; empty: none. The listing keeps no query, which may be what tells two URLs apart.
base::Result<std::string> find_pulled(Api& api, const std::string& reference) {
  if (reference.starts_with("http")) return std::string();
  const std::string body = TRY(api.call("GET", "/v2/catalog/models"));
  for (wire::CatalogModel& model : TRY(wire::decode<wire::CatalogModelList>(body)).models) {
    if (model.source == reference && !model.model_ref.empty()) return std::move(model.model_id);
  }
  return std::string();
}

base::Result<> check_name(const GlobalOptions& global, const std::string& model) {
  // With a tag it may be another one's name.
  if (!wire::is_model_name(model) || model.find(':') != std::string::npos || stream::model_reference(model) != model)
    return {};
  const auto api = TRY(Api::connect(global));
  const auto found = api->call("GET", path_of(model));
  if (found || found.error().code != ErrorCode::kModelNotFound) return {};  // a job says the rest
  return base::fail(ErrorCode::kModelNotFound,
                    fmt::format("no model has the name {}; llorch ls lists those that are here, llorch search those "
                                "that can be pulled",
                                model));
}

base::Result<std::string> ensure_model(Api& api, const std::string& model, bool pull, bool json) {
  if (model.empty()) return base::fail(ErrorCode::kInvalidParams, "the model has no name; llorch ls lists those here");
  wire::CreateCatalogModelRequest request{.model_ref = model};
  std::string what = model;
  if (is_reference(model)) {
    std::string name = TRY(find_pulled(api, model));
    if (!name.empty()) return name;
  } else {
    TRY(stream::check_path(model));
    if (model.find('/') != std::string::npos || stream::model_reference(model) != model) return model;
    const auto body = api.call("GET", path_of(model));
    if (body) {
      const auto found = TRY(wire::decode<wire::CatalogModel>(*body));
      const bool comes = found.pull && found.pull->state != PullState::kFailed;
      if (!found.model_ref.empty()) return model;
      if (comes) return TRY(wait_for_pull(api, found, json)).model_id;
    } else if (body.error().code != ErrorCode::kModelNotFound) {
      return base::fail(body.error());
    }
    const auto known = TRY(find_known(api, model));
    if (!known && engine::io::has_gguf_name(model)) {
      return base::fail(ErrorCode::kModelNotFound,
                        fmt::format("there is no file {} here, and no model has this name", model));
    }
    if (!known) return model;
    what = fmt::format("{} ({}, {}, licence {})", known->model_id, known->source, human_bytes(known->size_bytes),
                       known->licence);
  }
  if (!pull && !asked(fmt::format("The model is not here. Fetch {}?", what))) {
    return base::fail(ErrorCode::kModelNotFound,
                      fmt::format("the model is not here; fetch it with: llorch pull {}", model));
  }
  return TRY(pull_model(api, request, json)).model_id;
}

}  // namespace llorch::cli::models
