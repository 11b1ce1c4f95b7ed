#include "orchestratord/http/watched_models.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "wire/model_name.h"

namespace llorch::orchestratord::http {
namespace {

// Of one pool. Each is a question to every pool, which holds a socket until it is answered.
constexpr std::size_t kUnderWayMax = 16;
constexpr std::int64_t kDropRetryMs = 60'000;

}  // namespace

void WatchedModels::seen(const base::PoolId& pool_id, const std::vector<wire::WatchedModel>& models) {
  drop_unpaired();
  if (!context_.pools->is_paired(pool_id)) return;  // since it sent this
  const std::map<std::string, Known> before = std::exchange(known_[pool_id.value], {});
  std::vector<const wire::WatchedModel*> news;
  for (const wire::WatchedModel& model : models) {
    const auto known = before.find(model.model_ref);
    const bool is_known = known != before.end() && (model.stamp.empty() || known->second.stamp == model.stamp);
    if (is_known && (!known->second.is_taken || is_taken(pool_id, model))) {
      known_[pool_id.value].insert(*known);
    } else if (!model.stamp.empty()) {
      news.push_back(&model);
    }
  }
  // Those that found no room come first, so that none keeps the others from it.
  std::string& next = next_[pool_id.value];
  const auto first = std::ranges::find(news, next, [](const wire::WatchedModel* model) { return model->model_ref; });
  if (first != news.end()) std::ranges::rotate(news, first);
  std::set<std::string>& under_way = under_way_[pool_id.value];
  for (const wire::WatchedModel* model : news) {
    if (under_way.size() >= kUnderWayMax) {
      next = model->model_ref;
      break;
    }
    if (under_way.insert(model->model_ref).second) name(pool_id, *model);
  }
  drop_gone(pool_id, models);
}

void WatchedModels::name(const base::PoolId& pool_id, const wire::WatchedModel& model) {
  const auto settled = [this, pool_id, model](std::string_view why_not, bool taken) {
    under_way_[pool_id.value].erase(model.model_ref);
    if (!context_.pools->is_paired(pool_id)) return drop_unpaired();  // while it was asked
    known_[pool_id.value][model.model_ref] = {.stamp = model.stamp, .is_taken = taken};
    if (why_not.empty()) return;
    const auto left_out = refused_lines_.admit(context_.clock->now().mono_ms);
    if (!left_out) return;
    base::log_event(base::LogLevel::kWarn, "catalog.watched_model_refused", {}, std::string(why_not),
                    {{"model", model.model_id}, {"pool_id", pool_id}, {"left_out_before", *left_out}});
  };
  wire::NamedModel named{.model_id = model.model_id,
                         .source = model.model_ref,
                         .pool_id = pool_id.value,
                         .watched = true,
                         .created_unix_ms = context_.clock->now().unix_ms};
  if (is_taken(pool_id, model)) {
    return settled("A file in a watched directory has no name of its own: another model has it.", true);
  }
  if (!wire::is_model_name(model.model_id)) {
    return settled("A file in a watched directory has a name for no model.", false);
  }
  catalog_.add_file(std::move(named), {},
                    [this, pool_id, model, settled](base::Result<CatalogModels::Created> created) {
                      context_.request_executor->post([this, pool_id, model, settled, created = std::move(created)] {
                        if (created) return settled("", false);
                        // A large file may not be hashed yet: the next report brings it again.
                        if (base::info(created.error().code).retriable)
                          return void(under_way_[pool_id.value].erase(model.model_ref));
                        settled(created.error().message, created.error().code == base::ErrorCode::kConflict);
                      });
                    });
}

bool WatchedModels::is_taken(const base::PoolId& pool_id, const wire::WatchedModel& model) const {
  if (context_.names->is_configured(model.model_id)) return true;
  const auto there = context_.names->find(model.model_id);
  return there && !(there->watched && there->source == model.model_ref && there->pool_id == pool_id.value);
}

void WatchedModels::drop_gone(const base::PoolId& pool_id, const std::vector<wire::WatchedModel>& models) {
  for (const wire::NamedModel& named : context_.names->named()) {
    if (!named.watched || named.pool_id != pool_id.value) continue;
    const bool may_be_there = std::ranges::any_of(models, [&](const wire::WatchedModel& model) {
      return model.model_ref == named.source ||
             (model.stamp.empty() && named.source.starts_with(model.model_ref + "/"));
    });
    if (!may_be_there) drop(named);  // if it fails, the next report tries again
  }
}

bool WatchedModels::drop(const wire::NamedModel& named) {
  if (!named.model_ref.empty() && context_.jobs->any_of_model(named.model_ref)) return false;
  if (!context_.names->erase(named.model_id)) return false;
  if (const auto left_out = gone_lines_.admit(context_.clock->now().mono_ms)) {
    base::log_event(base::LogLevel::kInfo, "catalog.watched_model_gone", {},
                    "The file of a watched model, or its pool, is gone.",
                    {{"model", named.model_id}, {"left_out_before", *left_out}});
  }
  return true;
}

void WatchedModels::unpaired(const base::PoolId& pool_id) {
  known_.erase(pool_id.value);
  under_way_.erase(pool_id.value);
  next_.erase(pool_id.value);
  drop_unpaired();
}

void WatchedModels::drop_unpaired() {
  bool has_left = false;
  for (const wire::NamedModel& named : context_.names->named()) {
    if (!named.watched || context_.pools->is_paired(base::PoolId(named.pool_id))) continue;
    has_left |= !drop(named);
  }
  if (!has_left || std::exchange(is_retry_due_, true)) return;
  context_.request_executor->post_after(kDropRetryMs, [this] {
    is_retry_due_ = false;
    drop_unpaired();
  });
}

}  // namespace llorch::orchestratord::http
