#include "pool_managerd/pull_operations.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "wire/json.h"

namespace llorch::pool_managerd {
namespace {

using base::ErrorCode;
using net::ExchangePtr;

constexpr std::string_view kSha256 = "sha256:";
constexpr std::int64_t kRetryAfterMs = 1'000;

base::Error no_such_pull() {
  return {ErrorCode::kNotFound, "no pull here has this id; the last few that ended are remembered", {}};
}

void answer(const base::Result<wire::PullStatus>& status, int http_status, const ExchangePtr& exchange) {
  if (!status) return void(exchange->respond_error(status.error()));
  exchange->respond(net::http::json_response(http_status, wire::encode(*status)));
}

// Begins on the main thread: no worker begins to read the files meanwhile. One that has read them needs them no more, but a replay of
// its jobs would.
void remove_model(const PullOperationsOptions& options, const std::string& digest, bool unless_loaded,
                  const ExchangePtr& exchange) {
  const std::string hex = digest.starts_with(kSha256) ? digest.substr(kSha256.size()) : digest;
  const std::string inside = "file:" + options.provisioner->directory_of(hex).string();
  for (const wire::WorkerInfo& worker : options.workers()) {
    if (!worker.model_ref.starts_with(inside)) continue;
    if (worker.status == wire::WorkerStatus::kStarting) {
      return void(exchange->respond_error({ErrorCode::kConflict, "a worker is loading this model now", {}}));
    }
    if (unless_loaded) return void(exchange->respond_error({ErrorCode::kConflict, "a worker has this model", {}}));
  }
  options.staging->unstage_all(inside);
  if (const auto refusal = refusal_of(*options.removals, inside)) return void(exchange->respond_error(*refusal));
  const auto removal = std::make_shared<const char>();              // until nothing of it runs any more
  const auto decided = std::make_shared<std::atomic<bool>>(false);  // whether it happens: by who is first
  options.removals->insert_or_assign(inside, removal);
  options.files->read<std::int64_t>(
      inside,
      [provisioner = options.provisioner, hex, removal, decided] {
        return provisioner->remove(hex, [&] { return !decided->exchange(true); });
      },
      [digest, exchange, decided](const base::Result<std::int64_t>& bytes) {
        if (!bytes) {
          base::Error error = bytes.error();
          const bool is_refusal = error.code == ErrorCode::kPoolUnready;  // of who waits, not of the removal
          if (is_refusal && decided->exchange(true)) error.message += "; its removal has begun and may still happen";
          return void(exchange->respond_error(error));
        }
        exchange->respond(net::http::json_response(
            200, wire::encode(wire::CatalogRemoved{.removed = {digest}, .bytes_freed = *bytes})));
      });
}

// Of a file whose weights are read from elsewhere: what a start reads of it first, the tokenizer with it.
constexpr std::int64_t kHeadBytes = 32 << 20;

// What a read of a model's files uses; it owns all of it.
struct ForStaging {
  std::shared_ptr<staging::Staging> staging;
  std::shared_ptr<const model_catalog::ModelCatalog> catalog;
  std::optional<engine::inference::repack_cache::RepackCache> packed;
};

ForStaging for_staging(const PullOperationsOptions& options) {
  return {options.staging, options.catalog, options.packed};
}

base::Result<std::vector<staging::HeldPart>> parts_of(const ForStaging& with, const std::string& model_ref) {
  const auto files = TRY(with.catalog->files_of(model_ref));
  const auto digest = with.packed ? with.catalog->known_digest(model_ref) : std::nullopt;
  const auto packed = digest ? with.packed->last_used_of(*digest) : std::nullopt;
  std::vector<staging::HeldPart> out;
  if (packed) out.push_back({.path = *packed});
  for (const std::filesystem::path& file : files) {
    out.push_back({.path = file});
    if (packed) out.back().bytes_max = kHeadBytes;
  }
  return out;
}

// On the main thread: in the order in which they came, and letting go of much memory takes its time.
void stage_model(const PullOperationsOptions& options, const std::string& model_ref, bool stage,
                 const ExchangePtr& exchange) {
  if (!stage) {  // without a look at the disk
    options.staging->unstage(model_ref);
    return void(exchange->respond(net::http::json_response(200, wire::encode(wire::StageRequest{model_ref}))));
  }
  if (const auto refusal = refusal_of(*options.removals, model_ref)) return void(exchange->respond_error(*refusal));
  options.files->read<net::Response>(
      model_ref,
      [with = for_staging(options), model_ref,
       order = options.staging->order(model_ref)]() -> base::Result<net::Response> {
        const auto parts = TRY(parts_of(with, model_ref));
        return net::http::json_response(202, wire::encode(TRY(with.staging->stage(model_ref, parts, order))));
      },
      [exchange](base::Result<net::Response> response) {
        if (!response) return void(exchange->respond_error(response.error()));
        exchange->respond(*std::move(response));
      });
}

}  // namespace

std::optional<base::Error> refusal_of(Removals& removals, const std::string& model_ref) {
  std::erase_if(removals, [](const auto& removal) { return removal.second.expired(); });
  const auto holds = [&](const auto& removal) { return model_ref.starts_with(removal.first); };
  if (std::ranges::none_of(removals, holds)) return std::nullopt;
  return base::Error{ErrorCode::kPoolUnready, "the model is being removed from the cache here; try again", {}}
      .with("retry_after_ms", kRetryAfterMs)
      .with("reason", std::string("MODEL_BEING_READ"));
}

void stage_again(const PullOperationsOptions& options) {
  for (const wire::StagedModel& model : options.staging->list()) {
    if (refusal_of(*options.removals, model.model_ref)) continue;
    options.files->read<wire::StagedModel>(
        model.model_ref,
        [with = for_staging(options), model_ref = model.model_ref,
         order = options.staging->order(model.model_ref)]() -> base::Result<wire::StagedModel> {
          const auto staged = with.staging->list();
          const auto is_it = [&](const wire::StagedModel& other) { return other.model_ref == model_ref; };
          if (std::ranges::none_of(staged, is_it)) return base::fail(ErrorCode::kNotFound, "it need not stay any more");
          const auto parts = TRY(parts_of(with, model_ref));
          return with.staging->stage(model_ref, parts, order);
        },
        [](const base::Result<wire::StagedModel>&) {});  // where that fails, what was staged stays
  }
}

void add_pull_operations(control_api::Operations& out, PullOperationsOptions options) {
  const auto provisioner = options.provisioner;
  out.pull = [provisioner](const wire::PoolPullRequest& wanted, const base::CorrelationId& correlation_id,
                           const ExchangePtr& exchange) {
    answer(provisioner->start(wanted, correlation_id), 202, exchange);
  };
  const auto status_of = [provisioner](const std::string& pull_id) -> base::Result<wire::PullStatus> {
    if (auto status = provisioner->status(pull_id)) return *std::move(status);
    return base::fail(no_such_pull());
  };
  out.pull_status = [status_of](const std::string& pull_id, const ExchangePtr& exchange) {
    answer(status_of(pull_id), 200, exchange);
  };
  out.cancel_pull = [provisioner, status_of](const std::string& pull_id, const ExchangePtr& exchange) {
    provisioner->cancel(pull_id);
    answer(status_of(pull_id), 200, exchange);
  };
  out.model_files = [peers = options.peer_files](const net::Request& request, const ExchangePtr& exchange) {
    peers->list(request, exchange);
  };
  out.model_file = [peers = options.peer_files](const net::Request& request, const ExchangePtr& exchange) {
    peers->send(request, exchange);
  };
  out.stage_model = [options](const std::string& model_ref, bool stage, const ExchangePtr& exchange) {
    options.on_main([=] { stage_model(options, model_ref, stage, exchange); });
  };
  out.remove_model = [options = std::move(options)](const std::string& digest, bool unless_loaded,
                                                    const ExchangePtr& exchange) {
    options.on_main([=] { remove_model(options, digest, unless_loaded, exchange); });
  };
}

}  // namespace llorch::pool_managerd
