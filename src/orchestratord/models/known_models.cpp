#include "orchestratord/models/known_models.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/file.h"
#include "wire/json.h"

namespace llorch::orchestratord::models {
namespace {

constexpr std::size_t kListBytesMax = 4 << 20;

base::Result<> add(std::string_view text, std::string_view where, std::vector<wire::KnownModel>& out) {
  auto list = wire::decode<wire::KnownModelList>(text, wire::UnknownKeys::kRefuse);
  if (!list) {
    return base::fail(base::ErrorCode::kConfigInvalid, fmt::format("{}: {}", where, list.error().message));
  }
  for (wire::KnownModel& model : list->models) {
    std::erase_if(out, [&](const wire::KnownModel& other) { return other.model_id == model.model_id; });
    out.push_back(std::move(model));
  }
  return {};
}

}  // namespace

base::Result<std::vector<wire::KnownModel>> load_known_models(const std::vector<std::string>& files) {
  std::vector<wire::KnownModel> out;
  TRY(add(known_models_json(), "known_models.json", out));
  for (const std::string& file : files) TRY(add(TRY(base::read_file(file, kListBytesMax)), file, out));
  return out;
}

}  // namespace llorch::orchestratord::models
