// Models whose jobs wait for a device are read into the host's memory meanwhile.
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

void Staging::wait_for_memory(const wire::ModelFacts& model, const pools::Pool& pool) {
  Shelf& shelf = shelves_[pool.id];
  if (shelf.boot_id != pool.boot_id) shelf = {.boot_id = pool.boot_id, .models = {}};
  const auto desired = shelf.models.want({.model_ref = model.model_ref,
                                          .bytes = model.size_bytes,
                                          .bytes_max = pool.staging_bytes_max,
                                          .now_ms = now_.mono_ms},
                                         pool.staged_models);
  for (const std::string& gone : desired.unstage) emit(StageModel{pool.id, pool.endpoint, gone, false});
  if (!desired.stage) return;
  emit(StageModel{pool.id, pool.endpoint, model.model_ref, true});
  log(base::LogLevel::kInfo, "model.staged", "A model whose jobs wait is read into memory.",
      {{"pool_id", pool.id}, {"digest", model.digest}, {"bytes", model.size_bytes}});
}

}  // namespace llorch::orchestratord::core
