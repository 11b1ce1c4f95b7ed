#pragma once
// Reading files that others may change meanwhile.
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "engine/io/model_digest.h"

namespace llorch::pool_managerd::model_catalog {

template <class T>
struct OfOneState {
  T value;
  std::string stamp;  // of the files it was read from
};

// Calls `read`, which reads the model's files, and returns its result if the files were the same before and after.
// Errors: CONFLICT if they were not, whatever `read` returned: a refusal of files in two states is as worthless as a
// result; else those of `read` and model_stamp.
template <class Read, class T = typename std::invoke_result_t<Read>::value_type>
base::Result<OfOneState<T>> of_one_state(const std::filesystem::path& model, Read&& read) {
  const auto before = engine::io::model_stamp(model);
  auto result = read();
  const auto after = engine::io::model_stamp(model);
  if (before.has_value() != after.has_value() || (before && *before != *after)) {
    return base::fail(base::ErrorCode::kConflict,
                      "the model's files changed while they were read; try again when they are complete");
  }
  if (!result) return base::fail(std::move(result).error());
  if (!before) return base::fail(before.error());
  return OfOneState<T>{.value = *std::move(result), .stamp = *before};
}

}  // namespace llorch::pool_managerd::model_catalog
