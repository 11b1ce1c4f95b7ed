#pragma once
// POST /api/pull, POST /api/copy and DELETE /api/delete: what they name, and what is told of a pull. Pure.
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/catalog.h"

namespace llorch::orchestratord::http::ollama {

struct PullCall {
  std::string model;  // of a known model its name, or a reference; without the tag ":latest"
  bool stream = true;
};
// Errors: INVALID_PARAMS with details {field, reason}.
base::Result<PullCall> decode_pull(std::string_view body);
struct CopyCall {
  std::string source;       // as the client spelled it
  std::string destination;  // without the tag ":latest"
};
base::Result<CopyCall> decode_copy(std::string_view body);
base::Result<std::string> decode_delete(std::string_view body);

// How far it is, as one line.
std::string pull_line(const wire::PullStatus& pull);
// The last line, and the whole answer where nothing streams. `model`: what came.
std::string pulled_line(const wire::CatalogModel& model);

}  // namespace llorch::orchestratord::http::ollama
