// Apart from its header: every way out of every function would otherwise compile these once more.
#include "base/error.h"

#include <utility>

#include "base/result.h"

namespace llorch::base {

Error Error::with(std::string key, std::int64_t value) && {
  details.emplace_back(std::move(key), value);
  return std::move(*this);
}

Error Error::with(std::string key, std::string value) && {
  details.emplace_back(std::move(key), std::move(value));
  return std::move(*this);
}

tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message), {}});
}

}  // namespace llorch::base
