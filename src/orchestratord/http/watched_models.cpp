#include "orchestratord/http/watched_models.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "wire/model_name.h"

namespace llorch::orchestratord::http {
namespace {

// Of one pool. Each is a question to every pool, which holds a socket until it is answered.
constexpr std::size_t kUnderWayMax = 16;

}  // namespace

void WatchedModels::seen(const base::PoolId& pool_id, const std::vector<wire::WatchedModel>& models) {
  const std::map<std::string, std::string> before = std::exchange(known_[pool_id.value], {});
  std::vector<const wire::WatchedModel*> news;
  for (const wire::WatchedModel& model : models) {
    const auto known = before.find(model.model_ref);
    if (known != before.end() && known->second == model.stamp) {
      known_[pool_id.value].insert(*known);
    } else {
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
  const auto settled = [this, pool_id, model](std::string_view why_not) {
    under_way_[pool_id.value].erase(model.model_ref);
    known_[pool_id.value][model.model_ref] = model.stamp;
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
  const auto there = context_.names->find(model.model_id);
  const bool is_its_own = there && there->watched && there->source == named.source && there->pool_id == named.pool_id;
  const bool is_taken = context_.names->is_configured(model.model_id) || (there && !is_its_own);
  if (is_taken) return settled("A file in a watched directory has no name of its own: another model has it.");
  if (!wire::is_model_name(model.model_id)) return settled("A file in a watched directory has a name for no model.");
  catalog_.add_file(std::move(named), {},
                    [this, pool_id, model, settled](base::Result<CatalogModels::Created> created) {
                      context_.request_executor->post([this, pool_id, model, settled, created = std::move(created)] {
                        if (created) return settled("");
                        // A large file may not be hashed yet: the next report brings it again.
                        if (base::info(created.error().code).retriable)
                          return void(under_way_[pool_id.value].erase(model.model_ref));
                        settled(created.error().message);
                      });
                    });
}

void WatchedModels::drop_gone(const base::PoolId& pool_id, const std::vector<wire::WatchedModel>& models) {
  for (const wire::NamedModel& named : context_.names->named()) {
    if (!named.watched || named.pool_id != pool_id.value) continue;
    const bool is_there =
        std::ranges::any_of(models, [&](const wire::WatchedModel& model) { return model.model_ref == named.source; });
    if (is_there || (!named.model_ref.empty() && context_.jobs->any_of_model(named.model_ref))) continue;
    if (!context_.names->erase(named.model_id)) continue;          // the next report tries again
    for (auto& [pool, known] : known_) known.erase(named.source);  // another one may have it as well
    base::log_event(base::LogLevel::kInfo, "catalog.watched_model_gone", {}, "A file in a watched directory is gone.",
                    {{"model", named.model_id}});
  }
}

}  // namespace llorch::orchestratord::http
