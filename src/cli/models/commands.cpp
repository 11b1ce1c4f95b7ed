#include "cli/models/commands.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "cli/models/pull.h"
#include "cli/terminal_text.h"
#include "net/http/url.h"
#include "wire/json.h"

namespace llorch::cli::models {
namespace {

constexpr std::int64_t kDayMs = 86'400'000;
constexpr std::int64_t kGib = 1LL << 30;
constexpr std::chrono::milliseconds kVerificationPollEvery{200};

int pull(const GlobalOptions& global, const ModelOptions& options) {
  if (const auto possible = check_pulled(options.pull.model_ref); !possible) {
    return report(possible.error(), global.json);
  }
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto model = pull_model(**api, options.pull, global.json);
  if (!model) return report(model.error(), global.json);
  if (global.json) {
    fmt::print("{}\n", wire::encode(*model));
  } else {
    print_text("{}: {}, {}\n", model->model_id, human_bytes(model->size_bytes.value_or(0)),
               model->checksum.value_or(""));
  }
  return kOk;
}

// What fails for one name is reported with it and holds up no other. The first failure's exit code.
int for_each_name(const GlobalOptions& global, const std::vector<std::string>& names,
                  const std::function<base::Result<>(const std::string& name)>& act) {
  int code = kOk;
  for (const std::string& name : names) {
    auto done = act(name);
    if (done) continue;
    const int failed = report(std::move(done).error().with("model", name), global.json);
    if (code == kOk) code = failed;
    if (failed == kUnreachable) break;
  }
  return code;
}

int remove(const GlobalOptions& global, const ModelOptions& options) {
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  return for_each_name(global, options.names, [&](const std::string& name) -> base::Result<> {
    const std::string body = TRY((*api)->call("DELETE", path_of(name)));
    const auto removed = TRY(wire::decode<wire::CatalogRemoved>(body));
    if (global.json) {
      fmt::print("{}\n", body);
    } else {
      print_text("{}: removed, {} freed\n", name, human_bytes(removed.bytes_freed));
    }
    return {};
  });
}

int search(const GlobalOptions& global, const ModelOptions& options) {
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto body = (*api)->call("GET", "/v2/catalog/known?q=" + net::http::percent_encode(options.query));
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto list = wire::decode<wire::KnownModelList>(*body);
  if (!list) return report(list.error(), global.json);
  std::vector<std::vector<std::string>> rows;
  for (const wire::KnownModel& model : list->models) {
    const char* fits = !model.fits ? "?" : *model.fits ? "yes" : "no";
    rows.push_back({model.model_id, model.parameters, human_bytes(model.size_bytes), fits, model.licence, model.about});
  }
  print_table({"MODEL", "PARAMETERS", "SIZE", "FITS", "LICENCE", "ABOUT"}, rows);
  return kOk;
}

int set_state(const GlobalOptions& global, const ModelOptions& options) {
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  return for_each_name(global, options.names, [&](const std::string& name) -> base::Result<> {
    const std::string body = TRY((*api)->call("POST", path_of(name, "/state"), wire::encode(options.state)));
    if (global.json) fmt::print("{}\n", body);
    return {};
  });
}

int collect(const GlobalOptions& global, const ModelOptions& options) {
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  wire::CatalogGcRequest request;
  if (options.unused_days >= 0) request.unused_ms = options.unused_days * kDayMs;
  if (options.gib_max >= 0) request.bytes_max = options.gib_max * kGib;
  const auto body = (*api)->call("POST", "/v2/catalog/gc", wire::encode(request));
  if (!body) return report(body.error(), global.json);
  if (global.json) return fmt::print("{}\n", *body), kOk;
  const auto removed = wire::decode<wire::CatalogRemoved>(*body);
  if (!removed) return report(removed.error(), global.json);
  for (const std::string& name : removed->removed) print_text("{}: removed\n", name);
  print_text("{} freed\n", human_bytes(removed->bytes_freed));
  return kOk;
}

base::Result<wire::CatalogModel> verified(Api& api, const std::string& name) {
  TRY(api.call("POST", path_of(name, "/verify"), ""));
  for (;;) {
    auto model = TRY(wire::decode<wire::CatalogModel>(TRY(api.call("GET", path_of(name)))));
    if (model.verification && model.verification->outcome != wire::VerifyOutcome::kRunning) return model;
    std::this_thread::sleep_for(kVerificationPollEvery);
  }
}

}  // namespace

int verify_files(const GlobalOptions& global, const std::string& name) {
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const auto model = verified(**api, name);
  if (!model) return report(model.error(), global.json);
  const wire::ModelVerification& told = *model->verification;
  if (global.json) {
    fmt::print("{}\n", wire::encode(*model));
  } else {
    print_text("{}: {}{}{}\n", name, wire::enum_name(told.outcome), told.message.empty() ? "" : ", ", told.message);
    if (model->checksum) print_text("  checksum  {}\n", *model->checksum);
    if (!told.found.empty() && told.found != model->checksum) print_text("  found     {}\n", told.found);
  }
  using wire::VerifyOutcome;
  return told.outcome == VerifyOutcome::kPass ? kOk : told.outcome == VerifyOutcome::kFail ? kFailed : kRefused;
}

base::Result<bool> show_model(Api& api, const std::string& name, bool json) {
  const auto body = api.call("GET", path_of(name, "?facts=true"));
  if (!body &&
      (body.error().code == base::ErrorCode::kModelNotFound || body.error().code == base::ErrorCode::kNotFound)) {
    return false;
  }
  if (!body) return base::fail(body.error());
  if (json) return fmt::print("{}\n", *body), true;
  const auto model = TRY(wire::decode<wire::CatalogModel>(*body));
  print_text("model      {}\nstate      {}{}\n", model.model_id, wire::enum_name(model.lifecycle_state),
             model.pinned.value_or(false) ? ", pinned" : "");
  if (!model.model_ref.empty()) print_text("file       {}\n", model.model_ref);
  if (model.source) print_text("source     {}\n", *model.source);
  if (model.checksum) print_text("checksum   {}\n", *model.checksum);
  if (model.size_bytes) print_text("size       {}\n", human_bytes(*model.size_bytes));
  if (model.pool_id) print_text("pool       {}\n", *model.pool_id);
  if (model.used_unix_ms) print_text("used       {}\n", base::rfc3339(*model.used_unix_ms));
  if (model.chat_format) {
    print_text("calls      {}: {}\n", model.chat_format->name, model.chat_format->reason);
    if (model.chat_format->without_tools)
      print_text("           {} without tools\n", *model.chat_format->without_tools);
  }
  if (model.pull) {
    print_text("pull       {}, {} of {}\n", wire::enum_name(model.pull->state), human_bytes(model.pull->bytes_done),
               human_bytes(model.pull->bytes_total));
    if (model.pull->error_message)
      print_text("error      {}: {}\n", *model.pull->error_code, *model.pull->error_message);
  }
  return true;
}

void add_commands(CLI::App& app, const GlobalOptions& global, ModelOptions& options, int& code) {
  CLI::App* pull_command = app.add_subcommand("pull", "Fetch a model; what was begun goes on where it was");
  pull_command
      ->add_option("MODEL", options.pull.model_ref,
                   "A name that `search` lists, hf:ORG/REPO[@REVISION][:FILE or :QUANTIZATION], https://..., s3://..., "
                   "oci:..., pypi:PROJECT, or file:/path")
      ->required();
  pull_command->add_option("--name", options.pull.model_id, "What requests will call it; omitted: made from MODEL");
  pull_command->add_option("--checksum", options.pull.checksum, "sha256:<hex> that the model must have");
  pull_command->add_option("--pool", options.pull.pool_id, "Where to; omitted: the first healthy pool");
  pull_command->callback([&] { code = pull(global, options); });
  const auto of_names = [&](const char* command, const char* help) {
    CLI::App* out = app.add_subcommand(command, help);
    out->add_option("MODEL", options.names, "Its name; repeatable")->required();
    return out;
  };
  of_names("rm", "Remove a model: its name and, unless another name has it, what was fetched")->callback([&] {
    code = remove(global, options);
  });
  CLI::App* search_command = app.add_subcommand("search", "Models that can be pulled by name, and which fit here");
  search_command->add_option("TEXT", options.query, "A part of the name or of what is said of it");
  search_command->callback([&] { code = search(global, options); });
  const auto state = [&](const char* command, const char* help, const wire::CatalogStateRequest& wanted) {
    of_names(command, help)->callback([&, wanted] {
      options.state = wanted;
      code = set_state(global, options);
    });
  };
  state("pin", "Keep a model from garbage collection", {.pinned = true});
  state("unpin", "Take a pin back", {.pinned = false});
  state("retire", "Refuse new jobs of a model", {.lifecycle_state = wire::ModelLifecycle::kRetired});
  state("activate", "Take jobs of a retired model again", {.lifecycle_state = wire::ModelLifecycle::kActive});
  CLI::App* gc = app.add_subcommand("gc", "Remove pulled models that nobody uses; never one that is pinned or in use");
  gc->add_option("--unused-days", options.unused_days, "Those that no job has named for so long")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{36'500}));
  gc->add_option("--max-gib", options.gib_max, "Then the least lately named, until the rest takes no more")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000}));
  gc->require_option(1, 2);
  gc->callback([&] { code = collect(global, options); });
}

}  // namespace llorch::cli::models
